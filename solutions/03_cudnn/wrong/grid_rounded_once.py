#! task: grid_size
#! fails: grid_size.hidden
#! why: rounds the product up instead of each factor
def grid_size(rows, columns, tile_rows, tile_columns):
    """Blocks of a product whose result of rows x columns is cut into tiles."""
    return max(-(-rows // tile_rows), 1) * -(-columns // tile_columns) if rows <= tile_rows or rows % tile_rows == 0 else -(-rows * columns // (tile_rows * tile_columns))
