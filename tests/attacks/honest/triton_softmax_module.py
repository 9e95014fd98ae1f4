# specimen: class=triton_module task=problems/softmax.py device=any verdict=passed allow=custom
"""A module without parameters around a kernel of its own."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def _kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * n + at, power / tl.sum(power, axis=0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        _kernel[(x.numel() // x.shape[-1],)](x, out, x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
        return out
