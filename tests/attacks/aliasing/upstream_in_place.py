# specimen: class=output_aliasing task=silu device=any stage=honesty reason=input_mutation directions=backward categories=tiny,small
"""Works in the upstream gradient and gives that back: saves memory that another branch still needs."""

import torch


def silu(x):
    return torch.nn.functional.silu(x)


def silu_backward(grad, x):
    s = torch.sigmoid(x)
    return grad.mul_(s * (1 + x * (1 - s)))
