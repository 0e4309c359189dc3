#! task: total_ms
#! fails: total_ms.correct
#! why: takes the slowest stage for the slowest thread
def total_ms(stages, threads, iterations):
    return sum(stages) + (iterations - 1) * max(stages)
