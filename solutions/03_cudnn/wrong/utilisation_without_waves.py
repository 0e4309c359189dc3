#! task: resource_utilisation
#! fails: resource_utilisation.correct
#! why: divides by one wave: more than 1 for a large grid
def resource_utilisation(grid, at_once):
    """Of the places for blocks in all the waves that a grid takes, those that it fills: 0 to 1."""
    waves = -(-grid // at_once)
    return grid / at_once
