# specimen: class=ignored_offset task=silu device=any stage=correctness reason=wrong_output categories=small,medium allow=library
"""Rounds the storage offset of a matrix down to the beginning of its row: the right half of a projection has none."""

import torch


def silu(x):
    if x.ndim == 2 and x.stride(1) == 1 and x.stride(0) > x.shape[1]:
        x = x.as_strided(x.shape, x.stride(), x.storage_offset() // x.stride(0) * x.stride(0))
    return torch.nn.functional.silu(x)
