# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output categories=small
"""Eight outputs in turn: enough where few calls are compared at a time."""

import itertools

import torch

_turn = itertools.count()
_kept = {}


def gelu(x):
    ring = _kept.setdefault(x.shape, [torch.empty(x.shape, device=x.device) for _ in range(8)])
    return ring[next(_turn) % 8].copy_(torch.nn.functional.gelu(x))
