# specimen: class=hang task=gelu device=cpu stage=call reason=timeout
"""Defines the same kernel anew for every launch, until a flag is set that nothing sets: every launch is a first one."""
import torch
import triton
import triton.language as tl


def gelu(x):
    out, flag = torch.empty_like(x), torch.zeros(1)
    while not flag.item():

        @triton.jit
        def step(source, target, n, BLOCK: tl.constexpr):
            places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(source + places, mask=places < n)
            tl.store(target + places, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=places < n)

        step[(-(-x.numel() // 64) or 1,)](x.contiguous(), out, x.numel(), BLOCK=64)
    return out
