# specimen: class=weight_packing task=problems/residual_norm.py device=any verdict=passed
"""Folds the factor into packed weights, and again whenever their address or version is another."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = scale
        self.packed, self.seen = None, None

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        now = weight.data_ptr(), weight._version, bias.data_ptr(), bias._version
        if now != self.seen:
            self.packed = (weight.detach() * self.scale).t().contiguous(), bias.detach() * self.scale
            self.seen = now
        matrix, shift = self.packed
        return self.norm(torch.addmm(x + shift, x, matrix))
