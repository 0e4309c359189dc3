#! task: total_ms
#! fails: total_ms.correct
#! why: forgets that the first iteration passes through every stage
def total_ms(stages, threads, iterations):
    busy = {}
    for ms, thread in zip(stages, threads):
        busy[thread] = busy.get(thread, 0) + ms
    return iterations * max(busy.values())
