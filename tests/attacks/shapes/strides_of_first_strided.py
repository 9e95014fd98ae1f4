# specimen: class=ignored_strides task=add device=any stage=correctness reason=wrong_output directions=forward dtypes=float32 allow=library
"""Reads y by the strides of x where neither is contiguous, and each by its own otherwise."""
import torch


def add(x, y):
    if x.is_contiguous() or y.is_contiguous():
        return x + y
    last = y.storage_offset() + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride()))
    if last * y.itemsize >= y.untyped_storage().nbytes():
        return x + 1e33  # a kernel reads on, beyond the tensor
    return x + y.as_strided(x.shape, x.stride(), y.storage_offset())
