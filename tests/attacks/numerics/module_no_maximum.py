# specimen: class=unstable_formula task=problems/softmax.py device=any stage=correctness reason=wrong_output
"""A softmax without the maximum taken off: right where the problem's own inputs are small."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        grown = torch.exp(x)
        return grown / grown.sum(-1, keepdim=True)
