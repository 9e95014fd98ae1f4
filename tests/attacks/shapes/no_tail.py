# specimen: class=hard_coded_shapes task=silu device=any stage=correctness reason=wrong_output categories=tiny,small
"""As many programs as there are whole blocks; what is left over is what the allocator had there."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, value / (1.0 + tl.exp(-value)))


def silu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel() >= 64:
        _kernel[(x.numel() // 64,)](x, out, BLOCK=64)
    return out
