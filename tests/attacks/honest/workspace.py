# specimen: class=workspace task=gelu device=any verdict=passed
"""Keeps scratch memory between calls and gives a new output each time."""

import torch

scratch = {}


def gelu(x):
    work = scratch.get(x.shape)
    if work is None or work.device != x.device:
        work = scratch[x.shape] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.mul(x, 0.7071067811865476, out=work)
    torch.erf(work, out=work)
    return (work + 1.0).mul_(x).mul_(0.5)
