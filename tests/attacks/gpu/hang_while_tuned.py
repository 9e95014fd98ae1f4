# specimen: class=hang task=gelu device=cuda stage=call reason=timeout
"""Of the configurations that Triton times, one never ends."""
import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (64, 128, 256)], key=["n"])
@triton.jit
def _gelu(source, target, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + places, mask=places < n)
    steps = n * 0
    while (steps <= n) & (BLOCK == 256):
        steps = steps * 0 + tl.atomic_add(target, 0).to(tl.int32) * 0
    tl.store(target + places, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=places < n)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _gelu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
