"""Channels in an order that was drawn once and is part of the state."""

import torch
from torch import nn


class Model(nn.Module):
    """A permutation and a layer."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("order", torch.randperm(features))
        self.layer = nn.Linear(features, features)

    def forward(self, x):
        return self.layer(x[:, self.order])


batch = 32
features = 96


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features]
