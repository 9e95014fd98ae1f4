# specimen: class=stale_weights task=problems/linear_relu.py device=any stage=correctness reason=wrong_output
"""Gives its state out as copies: what is written into them never reaches the weights that it computes with."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(inner, outer)

    def state_dict(self, *args, **kwargs):
        return {name: tensor.clone() for name, tensor in super().state_dict(*args, **kwargs).items()}

    def forward(self, x):
        return torch.relu(self.linear(x))
