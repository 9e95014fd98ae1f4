# specimen: class=custom_operator task=silu device=any verdict=passed categories=tiny,small allow=custom
"""A kernel of its own behind a registered operator that compilers can see into."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def _silu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(out + at, (v / (1.0 + tl.exp(-v))).to(out.dtype.element_ty), mask=at < n)


@triton_op("kernels_of_mine::traceable_silu", mutates_args={})
def _operator(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        wrap_triton(_silu)[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def silu(x):
    return _operator(x)
