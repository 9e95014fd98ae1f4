# specimen: class=inherited_reference task=problems/linear_relu.py device=any stage=honesty reason=track_not_allowed allow=custom,mixed
"""The reference under another name."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.relu(self.linear(x))


class ModelNew(Model):
    pass
