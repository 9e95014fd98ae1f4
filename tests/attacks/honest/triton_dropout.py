# specimen: class=own_generator task=dropout device=any verdict=passed distributions=standard categories=tiny,small
"""tl.rand, a number for each element, by the seed as it lies in memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def _dropout(x, seed, out, n, p, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n, other=0.0).to(tl.float32)
    unit = tl.rand(tl.load(seed), place)
    tl.store(out + place, tl.where(unit >= p, value / (1 - p), 0.0), mask=place < n)


def run(x, seed, p):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _dropout[(triton.cdiv(x.numel(), 4096),)](x, seed, out, x.numel(), p, BLOCK=4096)
    return out
