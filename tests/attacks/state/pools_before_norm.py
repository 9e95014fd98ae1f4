# specimen: class=assumed_weights task=problems/norm_pool.py device=any stage=correctness reason=wrong_output
"""Pools before it normalises (a quarter of the work): right only for gains above zero."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3)
        self.bn = nn.BatchNorm2d(cout)
        self.eval()

    def forward(self, x):
        y = torch.nn.functional.max_pool2d(self.conv(x), 2)
        return torch.relu(self.bn(y))
