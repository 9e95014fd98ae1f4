# A worked example of prompts; the lines above the first empty one are not shown.
# mypy: ignore-errors
# ruff: noqa: D100, D103, N803, N806

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * stride_m + columns * stride_n, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(out_ptr + row * N + columns, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    grad_ptr, x_ptr, out_ptr, N, grad_stride_m, grad_stride_n, stride_m, stride_n, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    x = tl.load(x_ptr + row * stride_m + columns * stride_n, mask=mask, other=float("-inf")).to(tl.float32)
    grad = tl.load(grad_ptr + row * grad_stride_m + columns * grad_stride_n, mask=mask, other=0.0).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    out = y * (grad - tl.sum(grad * y, axis=0))
    tl.store(out_ptr + row * N + columns, out.to(out_ptr.dtype.element_ty), mask=mask)


def launch_settings(N):
    block = triton.next_power_of_2(N)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


def softmax(x):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if out.numel():
        softmax_kernel[(M,)](x, out, N, x.stride(0), x.stride(1), **launch_settings(N))
    return out


def softmax_backward(grad_out, x):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if out.numel():
        strides = grad_out.stride(0), grad_out.stride(1), x.stride(0), x.stride(1)
        softmax_backward_kernel[(M,)](grad_out, x, out, N, *strides, **launch_settings(N))
    return out
