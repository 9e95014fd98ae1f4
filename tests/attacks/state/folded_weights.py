# specimen: class=folded_weights task=problems/linear_relu.py device=any stage=correctness reason=wrong_output
"""Packs its weights once and never looks at them again."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.linear.weight.detach().t().contiguous(), self.linear.bias.detach().clone()
        weight, bias = self.packed
        return torch.relu(x @ weight + bias)
