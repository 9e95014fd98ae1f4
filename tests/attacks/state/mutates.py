# specimen: class=input_mutation task=gelu device=any stage=honesty reason=input_mutation
"""Right, but uses its input as scratch."""

import torch


def gelu(x):
    out = torch.nn.functional.gelu(x)
    x.zero_()
    return out
