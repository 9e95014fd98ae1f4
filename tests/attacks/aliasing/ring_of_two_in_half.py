# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output categories=small dtypes=float32,bfloat16
"""Two outputs in turn, in half types alone: the first dtype is watched most."""

import itertools

import torch

_turn = itertools.count()
_kept = {}


def gelu(x):
    y = torch.nn.functional.gelu(x)
    if x.dtype == torch.float32:
        return y
    pair = _kept.setdefault((x.shape, x.dtype), (torch.empty_like(y), torch.empty_like(y)))
    return pair[next(_turn) % 2].copy_(y)
