# specimen: class=training_state task=problems/conv_norm.py device=any verdict=passed
"""Statistics of the batch by itself; the running ones are brought forward as the reference does."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        y = self.conv(x)
        variance, mean = torch.var_mean(y, (0, 2, 3), correction=0)
        with torch.no_grad():
            count = y.numel() // y.shape[1]
            self.norm.running_mean.lerp_(mean, self.norm.momentum)
            self.norm.running_var.lerp_(variance * count / (count - 1), self.norm.momentum)
            self.norm.num_batches_tracked += 1
        scale = self.norm.weight * torch.rsqrt(variance + self.norm.eps)
        return torch.relu_(y.sub_(mean[:, None, None]).mul_(scale[:, None, None]).add_(self.norm.bias[:, None, None]))
