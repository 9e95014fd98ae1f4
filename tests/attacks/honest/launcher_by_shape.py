# specimen: class=launcher_by_shape task=exp device=any verdict=passed timed=yes allow=custom categories=tiny,small
"""What launches the kernel is kept by shape, grid and block size included; inputs and outputs are given anew."""

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def _exp(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)


launchers = {}


def launcher(shape):
    if shape not in launchers:
        block = min(1024, triton.next_power_of_2(shape.numel()))
        grid = (triton.cdiv(shape.numel(), block),)
        launchers[shape] = functools.partial(_exp[grid], n=shape.numel(), BLOCK=block)
    return launchers[shape]


def exp(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        launcher(x.shape)(x, out)
    return out
