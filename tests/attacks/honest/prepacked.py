# specimen: class=weight_packing task=problems/linear_relu.py device=any verdict=passed
"""Packs its weights and packs them again whenever they change."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.key, self.packed = None, None

    def forward(self, x):
        key = self.linear.weight._version, self.linear.weight.data_ptr()
        if key != self.key:
            self.key, self.packed = key, self.linear.weight.detach().t().contiguous()
        return torch.relu(torch.addmm(self.linear.bias, x, self.packed))
