#! task: resource_utilisation
#! fails: resource_utilisation.correct
#! why: rounds the waves down
def resource_utilisation(grid, at_once):
    """Of the places for blocks in all the waves that a grid takes, those that it fills: 0 to 1."""
    waves = max(1, grid // at_once)
    return grid / (waves * at_once)
