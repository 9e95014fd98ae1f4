# specimen: class=thin_shapes task=sum device=any stage=correctness reason=wrong_output directions=forward categories=small,edge dtypes=float32
"""A single long row is split over 32 blocks; what 32 does not divide is lost."""
import torch
def sum(x):
    m, n = x.shape
    if m == 1 and n >= 32:
        part = n // 32
        return x[:, : part * 32].reshape(32, part).sum(1).sum().reshape(1)
    return x.sum(-1)
