# specimen: class=dropped_nan task=rms_norm device=any stage=correctness reason=wrong_output
"""Replaces NaN by zero first."""

import torch


def rms_norm(x, weight, eps):
    return torch.nn.functional.rms_norm(torch.nan_to_num(x), x.shape[-1:], weight, eps)
