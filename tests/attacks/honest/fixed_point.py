# specimen: class=integers_of_floats task=problems/fixed_point.py device=any verdict=passed allow=library categories=tiny,small,medium
"""Rounds in fp64."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.round(x.double() * 1e9).long()
