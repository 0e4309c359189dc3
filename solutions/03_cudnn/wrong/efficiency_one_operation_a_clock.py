#! task: compute_efficiency
#! fails: compute_efficiency.correct
#! why: counts a multiply-add as one operation of the device
def compute_efficiency(flops, time_us, multiprocessors, cores, clock_mhz):
    """Operations a second, of those that the GPU could do."""
    peak = clock_mhz * 1e6 * multiprocessors * cores
    return flops / (time_us * 1e-6) / peak
