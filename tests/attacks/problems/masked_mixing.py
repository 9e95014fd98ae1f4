"""Tokens mixed causally by learned weights; the mask is a buffer of floats, and one weight has two names."""
import torch
from torch import nn

TOKENS, WIDTH, BATCH = 24, 40, 4


class Model(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.mixing = nn.Parameter(torch.randn(tokens, tokens) / tokens**0.5)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)
        self.outer.weight = self.inner.weight
        self.register_buffer("mask", torch.ones(tokens, tokens).tril())

    def forward(self, x):
        return self.outer((self.mixing * self.mask) @ torch.relu(self.inner(x)))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return [TOKENS, WIDTH]
