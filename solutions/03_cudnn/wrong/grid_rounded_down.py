#! task: grid_size
#! fails: grid_size.correct
#! why: rounds down: the last, smaller tiles get no block
def grid_size(rows, columns, tile_rows, tile_columns):
    """Blocks of a product whose result of rows x columns is cut into tiles."""
    return max(1, rows // tile_rows) * max(1, columns // tile_columns)
