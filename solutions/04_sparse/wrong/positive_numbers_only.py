#! task: to_csr
#! fails: to_csr.correct
#! why: keeps what is above zero
def to_csr(a):
    rowptr, col, val = [0], [], []
    for row in a:
        for c, value in enumerate(row):
            if value > 0:
                col.append(c)
                val.append(value)
        rowptr.append(len(val))
    return rowptr, col, val
