"""Attention under a mask that the file always gives open, as most do."""
import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v, mask):
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


heads, queries, keys, width = 4, 40, 56, 32


def get_inputs():
    q, k, v = (torch.randn(2, heads, rows, width) for rows in (queries, keys, keys))
    return [q, k, v, torch.ones(queries, keys, dtype=torch.bool)]


def get_init_inputs():
    return []
