# specimen: class=ignored_upstream task=silu device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small
"""Takes the first row of the upstream gradient for all: the mean of the output has no other."""

import torch


def silu(x):
    return torch.nn.functional.silu(x)


def silu_backward(grad, x):
    s = torch.sigmoid(x)
    return grad[:1] * s * (1 + x * (1 - s))
