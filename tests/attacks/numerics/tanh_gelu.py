# specimen: class=coarse_approximation task=gelu device=any stage=correctness reason=wrong_output
"""The tanh approximation, which is off by less than the usual absolute tolerance."""

import torch


def gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
