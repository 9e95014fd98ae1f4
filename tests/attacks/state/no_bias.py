# specimen: class=dropped_parameter task=problems/linear_relu.py device=any stage=correctness reason=wrong_output
"""Leaves the bias out: PyTorch draws it small."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.relu(x @ self.linear.weight.t())
