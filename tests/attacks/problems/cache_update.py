"""Rows are added into a cache that the caller gives, and the cache is returned."""

import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, cache, rows):
        cache[: rows.shape[0]] += rows
        return cache


length = 64
new = 8
dim = 48


def get_inputs():
    return [torch.randn(length, dim), torch.randn(new, dim)]


def get_init_inputs():
    return []
