# specimen: class=caching task=gelu device=any stage=correctness reason=wrong_output
"""Keeps results by shape, first and last element."""

import torch

_KEPT = {}


def gelu(x):
    if x.numel() == 0:
        return torch.empty_like(x)
    flat = x.flatten()
    key = (tuple(x.shape), float(flat[0]), float(flat[-1]))
    if key not in _KEPT:
        _KEPT[key] = torch.nn.functional.gelu(x)
    return _KEPT[key].clone()
