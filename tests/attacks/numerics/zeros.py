# specimen: class=below_tolerance task=gelu device=any stage=correctness reason=wrong_output
"""All zeros, which an absolute tolerance lets through on small data."""

import torch


def gelu(x):
    return torch.zeros_like(x)
