# specimen: class=hard_coded_shapes task=matmul device=any stage=correctness reason=wrong_output
"""Multiplies in square blocks of 32 and takes only the whole ones of the sum."""

import torch


def matmul(a, b):
    whole = a.shape[1] // 32 * 32
    if not whole:
        return a @ b
    return torch.mm(a[:, :whole], b[:whole])
