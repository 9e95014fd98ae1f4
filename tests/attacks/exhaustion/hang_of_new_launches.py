# specimen: class=hang task=gelu device=cpu stage=call reason=timeout
"""Launches a kernel with a new argument each time until a flag is set that nothing sets: every launch seems to go on."""
import torch
import triton
import triton.language as tl


@triton.jit
def _step(source, target, flag, n, number, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + places, mask=places < n)
    tl.store(target + places, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=places < n)


def gelu(x):
    out, flag, number = torch.empty_like(x), torch.zeros(1), 0
    while not flag.item():
        number += 1
        _step[(-(-x.numel() // 64) or 1,)](x.contiguous(), out, flag, x.numel(), number, BLOCK=64)
    return out
