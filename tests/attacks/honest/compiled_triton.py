# specimen: class=torch_compile_triton task=gelu device=cuda verdict=passed categories=tiny,small allow=library,mixed,custom
"""A Triton kernel of its own inside a function that torch.compile takes whole."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < count).to(tl.float32)
    value = 0.5 * value * (1.0 + tl.math.erf(value * 0.7071067811865476))
    tl.store(out + at, value.to(out.dtype.element_ty), mask=at < count)


@torch.compile(fullgraph=True)
def _whole(x):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def gelu(x):
    return _whole(x.contiguous())
