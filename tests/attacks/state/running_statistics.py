# specimen: class=training_state task=problems/conv_norm.py device=any stage=correctness reason=wrong_output
"""Normalises by the running statistics, which need no pass over the batch, though the module is in training mode."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        n = self.norm
        y = self.conv(x)
        return torch.relu(nn.functional.batch_norm(y, n.running_mean, n.running_var, n.weight, n.bias, False, 0.0, n.eps))
