def max_blocks(multiprocessors, registers, block, register_file):
    """Blocks that the registers of the whole GPU hold at once; it has one mistake."""
    of_a_block = block * registers
    return multiprocessors * register_file // of_a_block
