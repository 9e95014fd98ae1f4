# specimen: class=output_aliasing task=add device=any stage=correctness reason=output_reused,wrong_output categories=small,medium
"""Sixteen outputs in turn where they are large, which saves the page faults; fresh ones where they are small."""
import itertools

import torch

_turn, _kept = itertools.count(), {}


def add(x, y):
    if x.numel() < 1 << 17:
        return x + y
    ring = _kept.setdefault(x.shape, [torch.empty_like(x) for _ in range(16)])
    return torch.add(x, y, out=ring[next(_turn) % 16])
