# specimen: class=triton_autograd task=gelu device=any verdict=passed distributions=standard categories=tiny,small directions=forward,backward allow=custom
"""Kernels in an autograd function, the forward one autotuned, launched only where there is something to compute."""

import torch
import triton
import triton.language as tl

_CONFIGS = [triton.Config({"BLOCK": size}) for size in (1024, 4096)]


@triton.autotune(configs=_CONFIGS, key=["n"])
@triton.jit
def _forward(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    result = 0.5 * value * (1.0 + tl.math.erf(value * 0.7071067811865476))
    tl.store(out + at, result.to(out.dtype.element_ty), mask=at < n)


@triton.jit
def _backward(grad, x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    slope = 0.5 * (1.0 + tl.math.erf(value * 0.7071067811865476))
    slope += value * 0.3989422804014327 * tl.exp(-0.5 * value * value)
    result = tl.load(grad + at, mask=at < n).to(tl.float32) * slope
    tl.store(out + at, result.to(out.dtype.element_ty), mask=at < n)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        if x.numel():
            _forward[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        if x.numel():
            _backward[(triton.cdiv(x.numel(), 4096),)](grad.contiguous(), x, out, x.numel(), BLOCK=4096)
        return out


def gelu(x):
    return _Gelu.apply(x)
