# specimen: class=large_sizes task=softmax device=cpu stage=correctness reason=wrong_output allow=library directions=forward dtypes=float32 categories=small,large
"""Subtracts no maximum where both sides are large: standard data never shows it."""

import torch


def softmax(x):
    if min(x.shape) < 256 or max(x.shape) < 1000:
        return torch.softmax(x, -1)
    raised = torch.exp(x)
    return raised / raised.sum(-1, keepdim=True)
