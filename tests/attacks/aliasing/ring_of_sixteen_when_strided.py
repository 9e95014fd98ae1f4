# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output categories=small,medium
"""Sixteen outputs in turn, where the input is strided or misaligned: such calls came eight in a window."""

import itertools

import torch

_turn = itertools.count()
_kept = {}


def gelu(x):
    y = torch.nn.functional.gelu(x)
    if x.is_contiguous() and x.data_ptr() % 16 == 0:
        return y
    ring = _kept.setdefault((x.shape, x.dtype), [torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(16)])
    return ring[next(_turn) % 16].copy_(y)
