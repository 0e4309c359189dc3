#! task: compute_efficiency
#! fails: compute_efficiency.correct
#! why: divides by microseconds as if they were seconds
def compute_efficiency(flops, time_us, multiprocessors, cores, clock_mhz):
    """Operations a second, of those that the GPU could do."""
    peak = 2 * clock_mhz * 1e6 * multiprocessors * cores
    return flops / time_us / peak
