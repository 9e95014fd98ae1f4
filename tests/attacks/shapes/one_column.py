# specimen: class=thin_shapes task=matmul device=any stage=correctness reason=wrong_output directions=forward categories=small,edge dtypes=float32
"""One column: a matrix-vector path whose block holds 128 terms, and no loop over K."""
import torch
def matmul(a, b):
    if b.shape[1] == 1:
        return (a[:, :128] * b[:128, 0]).sum(1, keepdim=True)
    return a @ b
