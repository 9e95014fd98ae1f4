# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output directions=backward categories=small dtypes=float32,float16
"""Gradients in half types alone lie in two buffers in turn."""

import itertools

import torch

_turn = itertools.count()
_kept = {}


def gelu(x):
    return torch.nn.functional.gelu(x)


def gelu_backward(grad, x):
    y = torch.ops.aten.gelu_backward(grad, x)
    if x.dtype == torch.float32:
        return y
    pair = _kept.setdefault((x.shape, x.dtype), (torch.empty_like(y), torch.empty_like(y)))
    return pair[next(_turn) % 2].copy_(y)
