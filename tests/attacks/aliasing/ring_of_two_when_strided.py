# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output categories=small,medium dtypes=float32
"""Two outputs in turn, where the input is strided or misaligned: such calls came in pairs."""

import itertools

import torch

_turn = itertools.count()
_kept = {}


def gelu(x):
    y = torch.nn.functional.gelu(x)
    if x.is_contiguous() and x.data_ptr() % 16 == 0:
        return y
    pair = _kept.setdefault(x.shape, tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2)))
    return pair[next(_turn) % 2].copy_(y)
