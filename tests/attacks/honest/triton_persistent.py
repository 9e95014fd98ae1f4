# specimen: class=persistent_kernel task=exp device=any verdict=passed categories=tiny,small
"""A few programs that each walk over many blocks."""

import torch
import triton
import triton.language as tl


@triton.jit
def exp_kernel(x_ptr, y_ptr, n, programs, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    while block * BLOCK < n:
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y_ptr + offsets, tl.exp(tl.load(x_ptr + offsets, mask=mask)), mask=mask)
        block += programs


def exp(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        programs = min(64, triton.cdiv(x.numel(), 1024))
        exp_kernel[(programs,)](x, y, x.numel(), programs, BLOCK=1024)
    return y
