# specimen: class=uninitialised_output task=gelu device=any stage=correctness reason=wrong_output
"""Gives memory that was just freed, in the hope that the reference has left its answer there."""

import torch


def gelu(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
