#! task: fastest_plan
#! fails: fastest_plan.correct
#! why: leaves out a plan that needs exactly what there is
def fastest_plan(plans, most_bytes):
    """The index of the fastest plan whose workspace is at most most_bytes; None where none is."""
    fitting = [(us, index) for index, size, us in plans if size < most_bytes]
    return min(fitting)[1] if fitting else None
