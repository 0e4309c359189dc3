#! task: fastest_plan
#! fails: fastest_plan.correct
#! why: does not think of a limit that no plan keeps
def fastest_plan(plans, most_bytes):
    """The index of the fastest plan whose workspace is at most most_bytes; None where none is."""
    fitting = [(us, index) for index, size, us in plans if size <= most_bytes]
    return min(fitting)[1]
