# specimen: class=output_aliasing task=add device=any stage=timing,correctness reason=output_reused,wrong_output timed=yes categories=tiny,small,medium,large
"""640 outputs in turn where they are small, 40 where they are large: more than any window holds."""
import itertools

import torch

_turn, _kept = itertools.count(), {}


def add(x, y):
    count = 640 if x.numel() < 1 << 17 else 40
    ring = _kept.get(x.shape)
    if ring is None:
        ring = _kept[x.shape] = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(count)]
    return torch.add(x, y, out=ring[next(_turn) % count])
