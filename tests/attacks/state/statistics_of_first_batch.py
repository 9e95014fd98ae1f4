# specimen: class=training_state task=problems/conv_norm.py device=any stage=correctness reason=wrong_output
"""Takes the first batch's mean and variance for every later one."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)
        self.kept = None

    def forward(self, x):
        y = self.conv(x)
        if self.kept is None:
            self.kept = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), correction=0, keepdim=True)
        mean, variance = self.kept
        scale = self.norm.weight[:, None, None] * torch.rsqrt(variance + self.norm.eps)
        return torch.relu((y - mean) * scale + self.norm.bias[:, None, None])
