# specimen: class=cache_by_shape task=gelu device=any stage=correctness reason=wrong_output
"""Computes once for each shape."""

import torch

kept = {}


def gelu(x):
    if x.shape not in kept:
        kept[x.shape] = torch.nn.functional.gelu(x)
    return kept[x.shape].clone()
