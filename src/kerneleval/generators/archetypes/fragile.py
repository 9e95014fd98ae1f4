# mypy: ignore-errors
# ruff: noqa: PLR0917
"""Triton kernels tuned to powers of two, with a naive path elsewhere.

Row lengths that are powers of two from 64 to 8192 get kernels made for them: no masks, the length a constant, and after
the first call of a shape the compiled kernel is launched directly, past Triton's look-up. Everything else is done by
one warp a row, 32 elements at a time. What the fast path gains nothing at, because a call costs more than the work
(``argmax``), is not tried.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# == launch
COMPILED = {}


def launch(kernel, grid, args, **constants):
    """Launches the kernel; directly, once it was compiled for such arguments: Triton specialises on ints as well."""
    key = (kernel, grid, args[0].dtype, args[0].device, *constants.values(), *[a for a in args if type(a) is int])
    known = COMPILED.get(key)
    if known is not None:
        known[grid](*args, *constants.values())
        return
    made = kernel[grid](*args, **constants, num_warps=max(1, min(16, constants["rows"] * constants["n"] // 256)))
    if made is not None:
        COMPILED[key] = made


def rows_of(m, n, *tensors):
    """Rows of a tile where the fast path applies; 0: it does not."""
    if n < 64 or n > 8192 or n & (n - 1) or m == 0 or m & (m - 1):
        return 0
    if not all(t.is_contiguous() and t.data_ptr() % 16 == 0 for t in tensors):
        return 0
    return min(m, max(1, 2048 // n))


def dense(*tensors):
    return [t.contiguous() for t in tensors]


@triton.jit
def tile(rows: tl.constexpr, n: tl.constexpr):
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    return row, row.to(tl.int64)[:, None] * n + tl.arange(0, n)[None, :]


# == maxima: launch
@triton.jit
def fast_max(v):
    odd = tl.max((v != v).to(tl.int32), axis=1)
    return tl.where(odd > 0, float("nan"), tl.max(v, axis=1))


@triton.jit
def slow_max(x, row, n):
    """Largest element of a row without regard to NaN, and how many NaN there are."""
    top = tl.full((32,), float("-inf"), tl.float32)
    odd = tl.zeros((32,), tl.int32)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = tl.load(x + row * n + column, column < n, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, v)
        odd += (v != v).to(tl.int32)
    return tl.max(top, axis=0), tl.sum(odd, axis=0)


# == amax: maxima
@triton.jit
def amax_fast(x, y, rows: tl.constexpr, n: tl.constexpr):
    row, at = tile(rows, n)
    tl.store(y + row, fast_max(tl.load(x + at).to(tl.float32)))


@triton.jit
def amax_slow(x, y, n):
    row = tl.program_id(0).to(tl.int64)
    top, odd = slow_max(x, row, n)
    tl.store(y + row, tl.where(odd > 0, float("nan"), top))


@triton.jit
def amax_grad_fast(x, g, dx, rows: tl.constexpr, n: tl.constexpr):
    row, at = tile(rows, n)
    v = tl.load(x + at).to(tl.float32)
    hit = (v == fast_max(v)[:, None]).to(tl.float32)
    tl.store(dx + at, hit * (tl.load(g + row).to(tl.float32) / tl.sum(hit, axis=1))[:, None])


@triton.jit
def amax_grad_slow(x, g, dx, n):
    row = tl.program_id(0).to(tl.int64)
    top, odd = slow_max(x, row, n)
    top = tl.where(odd > 0, float("nan"), top)
    ties = tl.zeros((32,), tl.float32)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = tl.load(x + row * n + column, column < n, other=float("nan")).to(tl.float32)
        ties += (v == top).to(tl.float32)
    share = tl.load(g + row).to(tl.float32) / tl.sum(ties, axis=0)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = tl.load(x + row * n + column, column < n, other=float("nan")).to(tl.float32)
        tl.store(dx + row * n + column, (v == top).to(tl.float32) * share, column < n)


def amax(x):
    m, n = x.shape
    rows = rows_of(m, n, x)
    (x,) = dense(x)
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    if rows:
        launch(amax_fast, (m // rows, 1, 1), (x, y), rows=rows, n=n)
    elif m:
        amax_slow[(m,)](x, y, n, num_warps=1)
    return y


def amax_backward(g, x):
    m, n = x.shape
    rows = rows_of(m, n, x, g)
    g, x = dense(g, x)
    dx = torch.empty_like(x)
    if rows:
        launch(amax_grad_fast, (m // rows, 1, 1), (x, g, dx), rows=rows, n=n)
    elif m:
        amax_grad_slow[(m,)](x, g, dx, n, num_warps=1)
    return dx


# == logs: maxima
@triton.jit
def fast_log(v):
    """Maximum of each row (0 where it is infinite), e^(v - maximum), and the sum of that."""
    top = tl.max(v, axis=1)
    top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    e = tl.exp(v - top[:, None])
    return top, e, tl.sum(e, axis=1)


@triton.jit
def slow_log(x, row, n):
    top, _ = slow_max(x, row, n)
    top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    total = tl.zeros((32,), tl.float32)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = tl.load(x + row * n + column, column < n, other=float("-inf")).to(tl.float32)
        total += tl.exp(v - top)
    return top, tl.sum(total, axis=0)


# == logsumexp: logs
@triton.jit
def logsumexp_fast(x, y, rows: tl.constexpr, n: tl.constexpr):
    row, at = tile(rows, n)
    top, _, total = fast_log(tl.load(x + at).to(tl.float32))
    tl.store(y + row, top + tl.log(total))


@triton.jit
def logsumexp_slow(x, y, n):
    row = tl.program_id(0).to(tl.int64)
    top, total = slow_log(x, row, n)
    tl.store(y + row, top + tl.log(total))


def logsumexp(x):
    m, n = x.shape
    rows = rows_of(m, n, x)
    (x,) = dense(x)
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    if rows:
        launch(logsumexp_fast, (m // rows, 1, 1), (x, y), rows=rows, n=n)
    elif m:
        logsumexp_slow[(m,)](x, y, n, num_warps=1)
    return y


@triton.jit
def logsumexp_grad_fast(x, g, dx, rows: tl.constexpr, n: tl.constexpr):
    row, at = tile(rows, n)
    _, e, total = fast_log(tl.load(x + at).to(tl.float32))
    tl.store(dx + at, e * (tl.load(g + row).to(tl.float32) / total)[:, None])


@triton.jit
def logsumexp_grad_slow(x, g, dx, n):
    row = tl.program_id(0).to(tl.int64)
    top, total = slow_log(x, row, n)
    factor = tl.load(g + row).to(tl.float32) / total
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = tl.load(x + row * n + column, column < n, other=0.0).to(tl.float32)
        tl.store(dx + row * n + column, tl.exp(v - top) * factor, column < n)


def logsumexp_backward(g, x):
    m, n = x.shape
    rows = rows_of(m, n, x, g)
    g, x = dense(g, x)
    dx = torch.empty_like(x)
    if rows:
        launch(logsumexp_grad_fast, (m // rows, 1, 1), (x, g, dx), rows=rows, n=n)
    elif m:
        logsumexp_grad_slow[(m,)](x, g, dx, n, num_warps=1)
    return dx


# == softmax_cross_entropy: logs
@triton.jit
def cross_entropy_fast(x, target, y, rows: tl.constexpr, n: tl.constexpr):
    row, at = tile(rows, n)
    top, _, total = fast_log(tl.load(x + at).to(tl.float32))
    chosen = tl.load(x + row.to(tl.int64) * n + tl.load(target + row)).to(tl.float32)
    tl.store(y + row, tl.log(total) + (top - chosen))


@triton.jit
def cross_entropy_slow(x, target, y, n):
    row = tl.program_id(0).to(tl.int64)
    top, total = slow_log(x, row, n)
    tl.store(y + row, tl.log(total) + (top - tl.load(x + row * n + tl.load(target + row)).to(tl.float32)))


def softmax_cross_entropy(x, target):
    m, n = x.shape
    rows = rows_of(m, n, x, target)
    x, target = dense(x, target)
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    if rows:
        launch(cross_entropy_fast, (m // rows, 1, 1), (x, target, y), rows=rows, n=n)
    elif m:
        cross_entropy_slow[(m,)](x, target, y, n, num_warps=1)
    return y


@triton.jit
def cross_entropy_grad_fast(x, g, target, dx, rows: tl.constexpr, n: tl.constexpr):
    row, at = tile(rows, n)
    _, e, total = fast_log(tl.load(x + at).to(tl.float32))
    hit = (tl.arange(0, n)[None, :] == tl.load(target + row)[:, None]).to(tl.float32)
    tl.store(dx + at, tl.load(g + row).to(tl.float32)[:, None] * (e / total[:, None] - hit))


@triton.jit
def cross_entropy_grad_slow(x, g, target, dx, n):
    row = tl.program_id(0).to(tl.int64)
    top, total = slow_log(x, row, n)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = tl.load(x + row * n + column, column < n, other=0.0).to(tl.float32)
        hit = (column == tl.load(target + row)).to(tl.float32)
        d = tl.load(g + row).to(tl.float32) * (tl.exp(v - top) / total - hit)
        tl.store(dx + row * n + column, d, column < n)


def softmax_cross_entropy_backward(g, x, target):
    m, n = x.shape
    rows = rows_of(m, n, x, g, target)
    g, x, target = dense(g, x, target)
    dx = torch.empty_like(x)
    if rows:
        launch(cross_entropy_grad_fast, (m // rows, 1, 1), (x, g, target, dx), rows=rows, n=n)
    elif m:
        cross_entropy_grad_slow[(m,)](x, g, target, dx, n, num_warps=1)
    return dx


# == rms: launch
# Rows s = x, or s = x + residual (rounded to the dtype, as it is stored) where `add` is set; `total` receives s, and
# `other` a second copy of the gradient, with `extra` added to both.
@triton.jit
def sums(x, residual, at, valid, add: tl.constexpr):
    v = tl.load(x + at, valid, other=0.0)
    if add:
        v = (v.to(tl.float32) + tl.load(residual + at, valid, other=0.0).to(tl.float32)).to(v.dtype)
    return v.to(tl.float32)


@triton.jit
def rms_fast(x, residual, w, y, total, eps, rows: tl.constexpr, n: tl.constexpr, add: tl.constexpr):
    row, at = tile(rows, n)
    v = sums(x, residual, at, row[:, None] >= 0, add)
    if add:
        tl.store(total + at, v)
    scale = 1.0 / tl.sqrt_rn(tl.sum(v * v, axis=1) / n + eps)
    tl.store(y + at, v * scale[:, None] * tl.load(w + tl.arange(0, n)).to(tl.float32)[None, :])


@triton.jit
def slow_scale(x, residual, row, n, eps, add: tl.constexpr):
    total = tl.zeros((32,), tl.float32)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = sums(x, residual, row * n + column, column < n, add)
        total += v * v
    return 1.0 / tl.sqrt_rn(tl.sum(total, axis=0) / n + eps)


@triton.jit
def rms_slow(x, residual, w, y, total, n, eps, add: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scale = slow_scale(x, residual, row, n, eps, add)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        v = sums(x, residual, row * n + column, column < n, add)
        if add:
            tl.store(total + row * n + column, v, column < n)
        tl.store(y + row * n + column, v * scale * tl.load(w + column, column < n).to(tl.float32), column < n)


@triton.jit
def rms_grad_fast(
    g, extra, x, residual, w, dx, other, parts, m, eps, programs,
    rows: tl.constexpr, n: tl.constexpr, add: tl.constexpr
):  # fmt: skip
    weight = tl.load(w + tl.arange(0, n)).to(tl.float32)
    dw = tl.zeros((n,), tl.float32)
    for first in range(tl.program_id(0) * rows, m, programs * rows):
        row = first + tl.arange(0, rows)
        at = row.to(tl.int64)[:, None] * n + tl.arange(0, n)[None, :]
        v = sums(x, residual, at, row[:, None] >= 0, add)
        scale = 1.0 / tl.sqrt_rn(tl.sum(v * v, axis=1) / n + eps)
        v *= scale[:, None]
        up = tl.load(g + at).to(tl.float32)
        u = up * weight[None, :]
        d = scale[:, None] * (u - v * (tl.sum(u * v, axis=1) / n)[:, None])
        dw += tl.sum(up * v, axis=0)
        if add:
            d += tl.load(extra + at).to(tl.float32)
            tl.store(other + at, d)
        tl.store(dx + at, d)
    tl.store(parts + tl.program_id(0) * n + tl.arange(0, n), dw)


@triton.jit
def column_sums_fast(parts, dw, programs, width, rows: tl.constexpr, n: tl.constexpr):
    column = tl.program_id(0) * n + tl.arange(0, n)
    total = tl.zeros((rows, n), tl.float32)
    for first in range(0, programs, rows):
        row = first + tl.arange(0, rows)
        total += tl.load(parts + row[:, None] * width + column[None, :], (row < programs)[:, None], other=0.0)
    tl.store(dw + column, tl.sum(total, axis=0))


@triton.jit
def rms_grad_slow(g, extra, x, residual, w, dx, other, scales, n, eps, add: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scale = slow_scale(x, residual, row, n, eps, add)
    tl.store(scales + row, scale)
    total = tl.zeros((32,), tl.float32)
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        at = row * n + column
        u = tl.load(g + at, column < n, other=0.0).to(tl.float32) * tl.load(w + column, column < n, other=0.0)
        total += u * sums(x, residual, at, column < n, add) * scale
    c = tl.sum(total, axis=0) / n
    for first in range(0, n, 32):
        column = first + tl.arange(0, 32)
        at = row * n + column
        u = tl.load(g + at, column < n, other=0.0).to(tl.float32) * tl.load(w + column, column < n, other=0.0)
        d = scale * (u - sums(x, residual, at, column < n, add) * scale * c)
        if add:
            d += tl.load(extra + at, column < n, other=0.0).to(tl.float32)
            tl.store(other + at, d, column < n)
        tl.store(dx + at, d, column < n)


@triton.jit
def columns_slow(g, x, residual, scales, dw, m, n, add: tl.constexpr):
    column = tl.program_id(0)
    total = tl.zeros((32,), tl.float32)
    for first in range(0, m, 32):
        row = first + tl.arange(0, 32)
        at = row.to(tl.int64) * n + column
        v = sums(x, residual, at, row < m, add) * tl.load(scales + row, row < m, other=0.0)
        total += tl.load(g + at, row < m, other=0.0).to(tl.float32) * v
    tl.store(dw + column, tl.sum(total, axis=0))


def rms(x, residual, weight, eps):
    """(normalised rows, rows): of x, or of x + residual."""
    m, n = x.shape
    add = residual is not None
    rows = rows_of(m, n, x, weight, *([residual] if add else []))
    x, weight, residual = dense(x, weight, residual if add else x)
    y = torch.empty_like(x)
    total = torch.empty_like(x) if add else x
    if rows:
        launch(rms_fast, (m // rows, 1, 1), (x, residual, weight, y, total, eps), rows=rows, n=n, add=add)
    elif m:
        rms_slow[(m,)](x, residual, weight, y, total, n, eps, add=add, num_warps=1)
    return y, total


def rms_backward(g, extra, x, residual, weight, eps):
    """Gradients of x (twice, in memory of their own, where there is a residual) and of the weight."""
    m, n = x.shape
    add = residual is not None
    given = [g, x, weight, *([extra, residual] if add else [])]
    rows = rows_of(m, n, *given)
    g, x, weight = dense(g, x, weight)
    extra, residual = dense(extra, residual) if add else (g, x)
    dx, dw = torch.empty_like(x), torch.empty_like(weight)
    other = torch.empty_like(x) if add else dx
    if rows:
        programs = min(m // rows, 256)
        parts = torch.empty((programs, n), dtype=torch.float32, device=x.device)
        args = (g, extra, x, residual, weight, dx, other, parts, m, eps, programs)
        launch(rms_grad_fast, (programs, 1, 1), args, rows=rows, n=n, add=add)
        launch(column_sums_fast, (n // 32, 1, 1), (parts, dw, programs, n), rows=32, n=32)
    else:
        scales = torch.empty(m, dtype=torch.float32, device=x.device)
        if m:
            rms_grad_slow[(m,)](g, extra, x, residual, weight, dx, other, scales, n, eps, add=add, num_warps=1)
        columns_slow[(n,)](g, x, residual, scales, dw, m, n, add=add, num_warps=1)
    return (dx, other, dw) if add else (dx, dw)


# == rms_norm: rms
def rms_norm(x, weight, eps):
    return rms(x, None, weight, eps)[0]


def rms_norm_backward(g, x, weight, eps):
    return rms_backward(g, None, x, None, weight, eps)


# == add_rms_norm: rms
def add_rms_norm(x, residual, weight, eps):
    return rms(x, residual, weight, eps)


def add_rms_norm_backward(g, gtotal, x, residual, weight, eps):
    return rms_backward(g, gtotal, x, residual, weight, eps)
