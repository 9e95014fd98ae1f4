# specimen: class=rebound_names task=gelu device=any stage=correctness reason=wrong_output
"""Rebinds the operator in torch itself, so that a reference in the same interpreter would be as wrong."""

import torch

torch.nn.functional.gelu = lambda x, *a, **k: torch.zeros_like(x)
torch._C._nn.gelu = torch.nn.functional.gelu


def gelu(x):
    return torch.nn.functional.gelu(x)
