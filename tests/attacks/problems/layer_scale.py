"""A residual branch that layer scale makes small in a module that has learned nothing."""

import torch, torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """The pointwise half of a ConvNeXt block with layer scale."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(1e-6 * torch.ones(dim))

    def forward(self, x):
        return x + self.gamma * self.down(F.gelu(self.up(self.norm(x))))


batch = 4
tokens = 196
dim = 192


def get_inputs():
    return [torch.randn(batch, tokens, dim)]


def get_init_inputs():
    return [dim]
