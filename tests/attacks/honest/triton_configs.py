# specimen: class=config_object task=swiglu device=any verdict=passed distributions=standard categories=tiny,small allow=custom
"""Block sizes from a table of frozen objects, looked up through a cache of a function of sizes alone."""

import dataclasses
import functools

import torch
import triton
import triton.language as tl


@dataclasses.dataclass(frozen=True)
class Config:
    block: int
    programs: int = 16


@functools.lru_cache(maxsize=None)
def config(n):
    return Config(block=1024) if n < 4096 else Config(block=4096, programs=32)


@triton.jit
def _kernel(gate, up, out, n, programs, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), programs):
        at = block * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gate + at, mask=at < n)
        tl.store(out + at, g / (1.0 + tl.exp(-g)) * tl.load(up + at, mask=at < n), mask=at < n)


def swiglu(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = gate.numel()
    if n:
        chosen = config(n)
        programs = min(chosen.programs, triton.cdiv(n, chosen.block))
        _kernel[(programs,)](gate, up, out, n, programs, BLOCK=chosen.block)
    return out
