# specimen: class=ignored_strides task=batched_matmul device=any stage=correctness reason=wrong_output categories=small,medium allow=library
"""Reads the pitch of a matrix and takes the matrices of a batch to lie one after another: rows of a part do not."""

import torch


def _batch(t):
    if t.stride(2) != 1 or not 0 < t.stride(1) < t.stride(0):
        return t.contiguous()
    return t.as_strided(t.shape, (t.shape[1] * t.stride(1), t.stride(1), 1), t.storage_offset())


def batched_matmul(a, b):
    return torch.bmm(_batch(a), _batch(b))
