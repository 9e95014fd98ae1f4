# specimen: class=own_tuner task=problems/linear_relu.py device=cpu verdict=passed allow=custom timed=yes
"""Times two kernels in the first calls for each shape and weight, then keeps the faster."""

import time

import numba
import torch
from torch import nn


@numba.njit
def _rows(x, w, b, out):
    for i in range(x.shape[0]):
        for j in range(b.size):
            s = b[j]
            for k in range(x.shape[1]):
                s += x[i, k] * w[j, k]
            out[i, j] = max(s, 0.0)
@numba.njit
def _columns(x, w, b, out):
    for j in range(b.size):
        for i in range(x.shape[0]):
            s = b[j]
            for k in range(x.shape[1]):
                s += x[i, k] * w[j, k]
            out[i, j] = max(s, 0.0)
class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.tuned = {}
    def forward(self, x):
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        key = tuple(x.shape), weight._version
        took = self.tuned.setdefault(key, {})
        out = torch.empty(x.shape[0], weight.shape[0])
        forms = [_rows, _rows, _columns, _columns]
        n = len(took)
        form = forms[n] if n < 4 else forms[min(took, key=took.get)]
        began = time.perf_counter()
        form(x.contiguous().numpy(), weight.numpy(), bias.numpy(), out.numpy())
        if n < 4:
            took[n] = time.perf_counter() - began
        return out
