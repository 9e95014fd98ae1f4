# specimen: class=dropped_nan task=gelu device=any stage=correctness reason=wrong_output
"""Replaces NaN by zero first."""

import torch


def gelu(x):
    return torch.nn.functional.gelu(torch.nan_to_num(x))
