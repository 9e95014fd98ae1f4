# specimen: class=caching task=linear device=any stage=correctness reason=wrong_output
"""Transposes the weights once for each address and never looks at them again."""

import torch

_PACKED = {}


def linear(x, weight, bias):
    key = (weight.data_ptr(), tuple(weight.shape))
    if key not in _PACKED:
        _PACKED[key] = weight.t().contiguous()
    return torch.addmm(bias, x, _PACKED[key])
