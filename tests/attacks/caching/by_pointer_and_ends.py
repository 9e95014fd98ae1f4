# specimen: class=caching task=layer_norm device=any stage=correctness reason=wrong_output
"""Keeps results by address, shape, first and last element."""

import torch

_KEPT = {}


def layer_norm(x, weight, bias, eps):
    if x.numel() == 0:
        return torch.empty_like(x)
    flat = x.flatten()
    key = (x.data_ptr(), tuple(x.shape), float(flat[0]), float(flat[-1]))
    if key not in _KEPT:
        _KEPT[key] = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    return _KEPT[key].clone()
