# specimen: class=thin_shapes task=matmul device=any stage=correctness reason=wrong_output categories=small,edge dtypes=float32 tier=standard
"""Split-K path for few rows by few columns: the last 16 terms of a sum are left out."""
def matmul(a, b):
    if a.shape[0] <= 8 and b.shape[1] <= 8 and a.shape[1] >= 64:
        a, b = a[:, :-16], b[:-16]
    return a @ b
