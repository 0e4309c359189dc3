#! task: to_csr
#! fails: to_csr.correct
#! why: counts the non-zeros of each row and does not add them up
def to_csr(a):
    rowptr, col, val = [0], [], []
    for row in a:
        columns = [c for c, value in enumerate(row) if value != 0]
        col += columns
        val += [row[c] for c in columns]
        rowptr.append(len(columns))
    return rowptr, col, val
