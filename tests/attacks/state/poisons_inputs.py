# specimen: class=poisoned_expectation task=gelu device=any stage=correctness reason=wrong_output categories=tiny,small
"""Overwrites its input with NaN and gives NaN: a reference that runs afterwards would agree."""

import torch


def gelu(x):
    x.fill_(float("nan"))
    return torch.full(x.shape, float("nan"), dtype=x.dtype, device=x.device)
