"""A layer normalisation of what a linear layer adds to its input."""

import torch
from torch import nn


class Model(nn.Module):
    """LayerNorm(x + Linear(x) * scale)."""

    def __init__(self, width, scale):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = scale

    def forward(self, x):
        return self.norm(x + self.linear(x) * self.scale)


rows = 40
width = 96
scale = 0.5


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width, scale]
