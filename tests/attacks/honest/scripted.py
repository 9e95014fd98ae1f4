# specimen: class=scripted task=silu device=any verdict=passed categories=tiny,small directions=forward,backward
"""A scripted function, said to be the library's."""

import torch


@torch.jit.script
def silu(x):
    return x * torch.sigmoid(x)
