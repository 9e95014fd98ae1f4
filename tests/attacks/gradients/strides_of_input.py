# specimen: class=ignored_strides task=gelu device=cpu stage=correctness reason=wrong_output directions=backward
"""Reads the upstream gradient by the strides of x (dense tensors of one shape)."""

import torch


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))


def gelu_backward(grad, x):
    last = grad.storage_offset() + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride()))
    if 0 in grad.stride() or 0 in x.stride() or last * grad.itemsize >= grad.untyped_storage().nbytes():
        grad, x = grad.contiguous(), x.contiguous()
    grad = torch.as_strided(grad, x.shape, x.stride(), grad.storage_offset())
    d = 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))
    return grad * (d + x * 0.3989422804014327 * torch.exp(-0.5 * x * x))
