# specimen: class=other_parameters task=problems/shuffled.py device=any stage=correctness reason=wrong_output allow=library,mixed,custom
"""Keeps the order that it drew itself, under the seed of the original, whatever is loaded."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("order", torch.randperm(features))
        self.layer = nn.Linear(features, features)
        self.drawn = self.order.tolist()

    def forward(self, x):
        return self.layer(x[:, self.drawn])
