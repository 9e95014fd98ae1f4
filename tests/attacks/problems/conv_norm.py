"""A convolution and a batch normalisation in training mode, whose running statistics are state."""

import torch
from torch import nn


class Model(nn.Module):
    """ReLU of a normalised convolution."""

    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


batch = 6
channels = 3
filters = 8
side = 20


def get_inputs():
    return [torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return [channels, filters]
