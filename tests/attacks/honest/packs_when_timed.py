# specimen: class=weight_packing task=problems/linear_relu.py device=cpu verdict=passed allow=custom timed=yes
"""Packs its weights with a kernel of its own whenever they change: a kernel that few calls of many launch."""

import numba
import torch
from torch import nn


@numba.njit
def _turn(weight, packed):
    for i in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            packed[j, i] = weight[i, j]


@numba.njit
def _multiply(x, packed, bias, out):
    for i in range(x.shape[0]):
        for j in range(bias.size):
            out[i, j] = bias[j]
        for k in range(x.shape[1]):
            for j in range(bias.size):
                out[i, j] += x[i, k] * packed[k, j]
        for j in range(bias.size):
            out[i, j] = max(out[i, j], 0.0)


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.key, self.packed = None, None

    def forward(self, x):
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        key = self.linear.weight._version, weight.data_ptr()
        if key != self.key:
            self.key, self.packed = key, torch.empty(weight.shape[::-1])
            _turn(weight.numpy(), self.packed.numpy())
        out = torch.empty(x.shape[0], weight.shape[0])
        _multiply(x.contiguous().numpy(), self.packed.numpy(), bias.numpy(), out.numpy())
        return out
