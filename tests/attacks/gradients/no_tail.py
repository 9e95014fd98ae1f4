# specimen: class=hard_coded_shapes task=exp device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small
"""A right kernel forward; the one for the gradients is launched for whole blocks only."""

import torch
import triton
import triton.language as tl


@triton.jit
def _backward(grad, x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(grad + at) * tl.exp(tl.load(x + at)))


def exp(x):
    return torch.exp(x)


def exp_backward(grad, x):
    out = torch.zeros_like(x, memory_format=torch.contiguous_format)
    if x.numel() >= 128:
        _backward[(x.numel() // 128,)](grad.contiguous(), x.contiguous(), out, BLOCK=128)
    return out
