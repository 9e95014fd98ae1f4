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


def rows_of(x):  # all dims but the last are rows; a copy where one stride does not lead from row to row
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])


def softmax(x):
    rows = rows_of(x)
    M, N = rows.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if out.numel():
        softmax_kernel[(M,)](rows, out, N, rows.stride(0), rows.stride(1), **launch_settings(N))
    return out.view(x.shape)


def softmax_backward(grad_out, x):
    rows, grad = rows_of(x), rows_of(grad_out)
    M, N = rows.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    if out.numel():
        strides = grad.stride(0), grad.stride(1), rows.stride(0), rows.stride(1)
        softmax_backward_kernel[(M,)](grad, rows, out, N, *strides, **launch_settings(N))
    return out.view(x.shape)
