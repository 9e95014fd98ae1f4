# specimen: class=wide_offsets task=gelu device=cuda verdict=passed tier=standard dtypes=float16 categories=tiny,small
"""Offsets of elements in 64 bits."""

import torch
import triton
import triton.language as tl


@triton.jit
def apply(x, out, n, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    value = tl.load(x + at, at < n, other=0.0).to(tl.float32)
    tl.store(out + at, (0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))).to(tl.float16), at < n)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        apply[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), block=1024)
    return out
