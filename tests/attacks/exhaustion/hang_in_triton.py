# specimen: class=hang task=gelu device=any stage=call reason=timeout
"""An endless loop in a Triton kernel: compiled on a GPU, interpreted on the CPU."""
import torch
import triton
import triton.language as tl


@triton.jit
def _never(source, target, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    steps = n * 0
    while steps <= n:
        tl.store(target + places, tl.load(source + places, mask=places < n), mask=places < n)
        steps = steps * 0 + tl.atomic_add(target + n, 0).to(tl.int32) * 0


def gelu(x):
    out = torch.empty(x.numel() + 1, device=x.device, dtype=x.dtype)
    _never[(1,)](x, out, x.numel(), BLOCK=128)
    return out[:-1].view_as(x)
