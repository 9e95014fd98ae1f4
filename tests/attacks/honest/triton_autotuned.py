# specimen: class=autotuned task=silu device=any verdict=passed distributions=standard categories=tiny,small
"""Tries block sizes on its first call."""

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (256, 1024)], key=["n"])
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


def silu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        silu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
