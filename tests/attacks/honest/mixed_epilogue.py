# specimen: class=mixed task=linear_bias_gelu device=any verdict=passed categories=tiny,small allow=mixed
"""The library's product, and a kernel of its own for bias and activation."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, bias, out, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) + tl.load(bias + at % columns, mask=at < n)
    tl.store(out + at, 0.5 * value * (1.0 + tl.math.erf(value * 0.7071067811865476)), mask=at < n)


def linear_bias_gelu(x, weight, bias):
    product = torch.mm(x, weight.t())
    out = torch.empty_like(product)
    if out.numel():
        _kernel[(triton.cdiv(out.numel(), 1024),)](product, bias, out, out.numel(), out.shape[1], BLOCK=1024)
    return out
