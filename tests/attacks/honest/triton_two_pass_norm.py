# specimen: class=two_pass task=layer_norm device=any verdict=passed categories=tiny allow=custom
"""The mean first, then the variance about it, then the output; a row stays in registers."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, weight, bias, out, pitch, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + row * pitch + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, value - tl.sum(value, axis=0) / n, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    result = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * n + at, result.to(out.dtype.element_ty), mask=inside)


def layer_norm(x, weight, bias, eps):
    if x.stride(-1) != 1:
        x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        n = x.shape[1]
        _kernel[(x.shape[0],)](x, weight, bias, out, x.stride(0), n, eps, BLOCK=triton.next_power_of_2(n))
    return out
