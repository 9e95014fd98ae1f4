# mypy: ignore-errors
# ruff: noqa: PLR0917
"""Triton kernels that take one good path for every shape: tiles of whole rows, as many rows as fill a program."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl


def contiguous(*tensors):
    """The tensors, copied where they are not contiguous."""
    return [t if t.is_contiguous() else t.contiguous() for t in tensors]


# == elementwise
BLOCK = 2048


def pointwise(kernel, inputs, count=1):
    """``count`` outputs like the first input, each element from the inputs' elements at its place."""
    inputs = contiguous(*inputs)
    outputs = [torch.empty_like(inputs[0]) for _ in range(count)]
    n = inputs[0].numel()
    if n:
        kernel[(-(-n // BLOCK),)](*inputs, *outputs, n, block=BLOCK, num_warps=8)
    return outputs[0] if count == 1 else tuple(outputs)


@triton.jit
def places(n, block: tl.constexpr):
    """Offsets of this program's elements and which of them exist."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    return at, at < n


@triton.jit
def sigmoid(v):
    """1 / (1 + e^-v), from e^-|v|, so that neither tail overflows."""
    e = tl.exp(-tl.abs(v))
    return tl.where(v < 0, e, 1.0) / (1.0 + e)


# == rows
@functools.lru_cache(maxsize=4096)
def tiling(m, n):
    """Rows and columns of a tile (powers of two) and warps: whole rows, about 2048 elements or one row."""
    columns = triton.next_power_of_2(max(n, 1))
    rows = max(1, min(2048 // columns, triton.next_power_of_2(triton.cdiv(max(m, 1), 264))))
    return {"rows": rows, "columns": columns, "num_warps": 8 if columns > 4096 else 4}


def by_rows(kernel, tensors, m, n, *rest):
    """Launches the kernel over tiles of rows."""
    if m and n:
        tile = tiling(m, n)
        kernel[(-(-m // tile["rows"]),)](*tensors, m, n, *rest, **tile)


@triton.jit
def tile(first, m, n, rows: tl.constexpr, columns: tl.constexpr):
    """Row numbers, which rows exist, column numbers, offsets of the tile's elements and which of them exist."""
    row = first + tl.arange(0, rows)
    column = tl.arange(0, columns)
    at = row.to(tl.int64)[:, None] * n + column[None, :]
    return row, row < m, column, at, (row < m)[:, None] & (column < n)[None, :]


# == maxima: rows
@triton.jit
def row_max(v):
    """Largest element of each row; NaN where there is one."""
    odd = tl.max((v != v).to(tl.int32), axis=1)
    return tl.where(odd > 0, float("nan"), tl.max(v, axis=1))


# == amax: maxima
@triton.jit
def amax_kernel(x, y, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, _, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    tl.store(y + row, row_max(v), row_valid)


@triton.jit
def amax_grad_kernel(g, x, dx, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, _, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    hit = ((v == row_max(v)[:, None]) & valid).to(tl.float32)
    share = tl.load(g + row, row_valid, other=0.0).to(tl.float32) / tl.sum(hit, axis=1)
    tl.store(dx + at, hit * share[:, None], valid)


def amax(x):
    (x,) = contiguous(x)
    y = x.new_empty(x.shape[0])
    by_rows(amax_kernel, (x, y), *x.shape)
    return y


def amax_backward(g, x):
    g, x = contiguous(g, x)
    dx = torch.empty_like(x)
    by_rows(amax_grad_kernel, (g, x, dx), *x.shape)
    return dx


# == argmax: rows
@triton.jit
def argmax_kernel(x, y, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, _, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    odd = v != v
    if tl.max(tl.max(odd.to(tl.int32), axis=1), axis=0) > 0:  # the first NaN wins
        v = tl.where(tl.max(odd.to(tl.int32), axis=1)[:, None] > 0, odd.to(tl.float32), v)
    tl.store(y + row, tl.argmax(v, axis=1).to(tl.int64), row_valid)


def argmax(x):
    (x,) = contiguous(x)
    y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    by_rows(argmax_kernel, (x, y), *x.shape)
    return y


# == softmax: rows
@triton.jit
def exponentials(v, valid):
    """Each row's maximum (0 where it is infinite), e^(v - maximum), and their sum."""
    top = tl.max(v, axis=1)
    top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    e = tl.where(valid, tl.exp(v - top[:, None]), 0.0)
    return top, e, tl.sum(e, axis=1)


# == logsumexp: softmax
@triton.jit
def logsumexp_kernel(x, y, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, _, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    top, _, total = exponentials(v, valid)
    tl.store(y + row, top + tl.log(total), row_valid)


@triton.jit
def logsumexp_grad_kernel(g, x, dx, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, _, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    _, e, total = exponentials(v, valid)
    factor = tl.load(g + row, row_valid, other=0.0).to(tl.float32) / total
    tl.store(dx + at, e * factor[:, None], valid)


def logsumexp(x):
    (x,) = contiguous(x)
    y = x.new_empty(x.shape[0])
    by_rows(logsumexp_kernel, (x, y), *x.shape)
    return y


def logsumexp_backward(g, x):
    g, x = contiguous(g, x)
    dx = torch.empty_like(x)
    by_rows(logsumexp_grad_kernel, (g, x, dx), *x.shape)
    return dx


# == softmax_cross_entropy: softmax
@triton.jit
def cross_entropy_kernel(x, target, y, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, _, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    top, _, total = exponentials(v, valid)
    chosen = tl.load(x + row.to(tl.int64) * n + tl.load(target + row, row_valid, other=0), row_valid).to(tl.float32)
    tl.store(y + row, tl.log(total) + (top - chosen), row_valid)


@triton.jit
def cross_entropy_grad_kernel(g, x, target, dx, m, n, rows: tl.constexpr, columns: tl.constexpr):
    row, row_valid, column, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=float("-inf")).to(tl.float32)
    _, e, total = exponentials(v, valid)
    hit = column[None, :] == tl.load(target + row, row_valid, other=0)[:, None]
    up = tl.load(g + row, row_valid, other=0.0).to(tl.float32)
    tl.store(dx + at, up[:, None] * (e / total[:, None] - hit.to(tl.float32)), valid)


def softmax_cross_entropy(x, target):
    x, target = contiguous(x, target)
    y = x.new_empty(x.shape[0])
    by_rows(cross_entropy_kernel, (x, target, y), *x.shape)
    return y


def softmax_cross_entropy_backward(g, x, target):
    g, x, target = contiguous(g, x, target)
    dx = torch.empty_like(x)
    by_rows(cross_entropy_grad_kernel, (g, x, target, dx), *x.shape)
    return dx
