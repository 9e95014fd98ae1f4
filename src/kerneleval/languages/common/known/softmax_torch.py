# mypy: ignore-errors
# ruff: noqa: D103
"""A known kernel of the self-check, in PyTorch."""

import torch


def softmax(x):
    e = torch.exp(x)
    ones = torch.ones(x.shape[1], 1, dtype=x.dtype, device=x.device)
    return e / (e @ ones)
