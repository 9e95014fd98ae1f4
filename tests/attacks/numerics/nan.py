# specimen: class=poisoned_output task=gelu device=any stage=correctness reason=wrong_output
"""All NaN, which passes where NaN is taken to equal anything."""

import torch


def gelu(x):
    return torch.full_like(x, float("nan"))
