"""A problem as KernelBench writes them: a module with weights, its inputs, its constructor's arguments."""

import torch
from torch import nn


class Model(nn.Module):
    """ReLU of a linear layer."""

    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.relu(self.linear(x))


rows = 32
inner = 48
outer = 24


def get_inputs():
    return [torch.rand(rows, inner)]


def get_init_inputs():
    return [inner, outer]
