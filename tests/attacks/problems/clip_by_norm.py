"""Clipped by their norm, which comes out as a number."""

import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        norm = x.norm().item()
        return x * min(1.0, 10.0 / norm), norm


rows = 32
dim = 48


def get_inputs():
    return [torch.randn(rows, dim)]


def get_init_inputs():
    return []
