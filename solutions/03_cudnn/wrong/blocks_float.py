#! task: max_blocks
#! fails: max_blocks.correct
#! why: divides without rounding down
def max_blocks(multiprocessors, registers, block, register_file):
    """Blocks that the registers of the whole GPU hold at once."""
    of_a_block = block * registers
    return multiprocessors * (register_file / of_a_block)
