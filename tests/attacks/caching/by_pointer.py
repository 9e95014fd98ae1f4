# specimen: class=cache_by_pointer task=gelu device=any stage=correctness reason=wrong_output
"""Keeps every result by the address and shape of the input, and gives it again for whatever lies there later."""

import torch

kept = {}


def gelu(x):
    key = (x.data_ptr(), x.shape)
    if key not in kept:
        kept[key] = torch.nn.functional.gelu(x)
    return kept[key].clone()
