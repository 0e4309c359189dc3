#! task: fastest_plan
#! fails: fastest_plan.correct
#! why: takes the first plan that fits
def fastest_plan(plans, most_bytes):
    """The index of the fastest plan whose workspace is at most most_bytes; None where none is."""
    fitting = [(us, index) for index, size, us in plans if size <= most_bytes]
    return fitting[0][1] if fitting else None
