# specimen: class=ignored_strides task=silu device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small
"""Its backward reads the upstream gradient as if it lay row by row: wrong after ``y.sum().backward()``, where it is expanded."""
import torch
import triton
import triton.language as tl


@triton.jit
def _forward(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, v / (1.0 + tl.exp(-v)), mask=at < n)


@triton.jit
def _backward(g, x, dx, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    s = 1.0 / (1.0 + tl.exp(-v))
    tl.store(dx + at, tl.load(g + at, mask=at < n).to(tl.float32) * s * (1.0 + v * (1.0 - s)), mask=at < n)


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            _forward[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        if x.numel():
            _backward[(triton.cdiv(x.numel(), 1024),)](grad, x, dx, x.numel(), BLOCK=1024)
        return dx


def silu(x):
    return _Silu.apply(x)
