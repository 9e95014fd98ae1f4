# specimen: class=tied_weights task=problems/masked_mixing.py device=any verdict=passed timed=yes
"""Keeps the tied weight under both names, and takes the mask for what it is: nothing above the diagonal is read."""
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.mixing = nn.Parameter(torch.empty(tokens, tokens))
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)
        self.outer.weight = self.inner.weight
        self.register_buffer("mask", torch.ones(tokens, tokens))

    def forward(self, x):
        kept = self.mixing.tril() * self.mask
        return self.outer(kept @ torch.relu(self.inner(x)))
