# mypy: ignore-errors
# ruff: noqa: PLR0917
"""Normalisations of rows, and of groups and batches of channels: the sections that come after those of ``robust.py``.

What stands above the first of them is in no candidate: it shows readers and linters where the names come from.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from .robust import by_rows, contiguous, tile, tiling  # relative: a kernel names no program that judges it


# == columns: rows
def partial_sums(m, n):
    """How a backward kernel shares the rows: programs, tile; each program sums its rows for every column."""
    tile = tiling(m, n)
    return max(1, min(-(-m // tile["rows"]), 264)), tile


@triton.jit
def column_sums_kernel(parts, out, programs, n, kinds, rows: tl.constexpr, columns: tl.constexpr):
    """out[kind, column] = sum over programs of parts[program, kind, column]."""
    kind = tl.program_id(1)
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    total = tl.zeros((rows, columns), tl.float32)
    for first in range(0, programs, rows):
        row = first + tl.arange(0, rows)
        valid = (row < programs)[:, None] & (column < n)[None, :]
        total += tl.load(parts + (row[:, None] * kinds + kind) * n + column[None, :], valid, other=0.0)
    tl.store(out + kind * n + column, tl.sum(total, axis=0), column < n)


def column_sums(parts, dtype):
    """The sums over the first dim of (programs, kinds, n), one tensor a kind."""
    programs, kinds, n = parts.shape
    out = torch.empty((kinds, n), dtype=dtype, device=parts.device)
    if n:
        column_sums_kernel[(-(-n // 32), kinds)](parts, out, programs, n, kinds, rows=32, columns=32, num_warps=4)
    return out.unbind(0)


# == layer_norm: columns
@triton.jit
def centred(v, valid, n, eps):
    """Deviations of each row from its mean, and the reciprocal of its standard deviation."""
    mean = tl.sum(v, axis=1) / n
    d = tl.where(valid, v - mean[:, None], 0.0)
    return d, 1.0 / tl.sqrt_rn(tl.sum(d * d, axis=1) / n + eps)


@triton.jit
def layer_norm_kernel(x, w, b, y, m, n, eps, rows: tl.constexpr, columns: tl.constexpr):
    _, _, column, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    d, scale = centred(tl.load(x + at, valid, other=0.0).to(tl.float32), valid, n, eps)
    weight = tl.load(w + column, column < n, other=0.0).to(tl.float32)
    bias = tl.load(b + column, column < n, other=0.0).to(tl.float32)
    tl.store(y + at, d * scale[:, None] * weight[None, :] + bias[None, :], valid)


@triton.jit
def layer_norm_grad_kernel(g, x, w, dx, parts, m, n, eps, programs, rows: tl.constexpr, columns: tl.constexpr):
    weight_at = tl.arange(0, columns)
    weight = tl.load(w + weight_at, weight_at < n, other=0.0).to(tl.float32)
    dw = tl.zeros((columns,), tl.float32)
    db = tl.zeros((columns,), tl.float32)
    for first in range(tl.program_id(0) * rows, m, programs * rows):
        _, _, _, at, valid = tile(first, m, n, rows, columns)
        d, scale = centred(tl.load(x + at, valid, other=0.0).to(tl.float32), valid, n, eps)
        v = d * scale[:, None]
        up = tl.load(g + at, valid, other=0.0).to(tl.float32)
        dw += tl.sum(up * v, axis=0)
        db += tl.sum(up, axis=0)
        u = up * weight[None, :]
        a = tl.sum(u, axis=1) / n
        c = tl.sum(u * v, axis=1) / n
        tl.store(dx + at, scale[:, None] * (u - a[:, None] - v * c[:, None]), valid)
    base = parts + tl.program_id(0) * 2 * n + weight_at
    tl.store(base, dw, weight_at < n)
    tl.store(base + n, db, weight_at < n)


def layer_norm(x, weight, bias, eps):
    x, weight, bias = contiguous(x, weight, bias)
    y = torch.empty_like(x)
    by_rows(layer_norm_kernel, (x, weight, bias, y), *x.shape, eps)
    return y


def layer_norm_backward(g, x, weight, bias, eps):
    g, x, weight = contiguous(g, x, weight)
    m, n = x.shape
    dx = torch.empty_like(x)
    programs, tile = partial_sums(m, n)
    parts = torch.empty((programs, 2, n), dtype=torch.float32, device=x.device)
    layer_norm_grad_kernel[(programs,)](g, x, weight, dx, parts, m, n, eps, programs, **tile)
    return dx, *column_sums(parts, weight.dtype)


# == rms: columns
@triton.jit
def rms_scale(v, n, eps):
    """Reciprocal of each row's root mean square."""
    return 1.0 / tl.sqrt_rn(tl.sum(v * v, axis=1) / n + eps)


@triton.jit
def rms_grad(v, up, weight, n, eps):
    """Gradient of rows of a normalised sum, and each element's contribution to the weight's gradient."""
    scale = rms_scale(v, n, eps)[:, None]
    v = v * scale
    u = up * weight[None, :]
    c = tl.sum(u * v, axis=1) / n
    return scale * (u - v * c[:, None]), up * v


# == rms_norm: rms
@triton.jit
def rms_norm_kernel(x, w, y, m, n, eps, rows: tl.constexpr, columns: tl.constexpr):
    _, _, column, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=0.0).to(tl.float32)
    weight = tl.load(w + column, column < n, other=0.0).to(tl.float32)
    tl.store(y + at, v * rms_scale(v, n, eps)[:, None] * weight[None, :], valid)


@triton.jit
def rms_norm_grad_kernel(g, x, w, dx, parts, m, n, eps, programs, rows: tl.constexpr, columns: tl.constexpr):
    column = tl.arange(0, columns)
    weight = tl.load(w + column, column < n, other=0.0).to(tl.float32)
    dw = tl.zeros((columns,), tl.float32)
    for first in range(tl.program_id(0) * rows, m, programs * rows):
        _, _, _, at, valid = tile(first, m, n, rows, columns)
        v = tl.load(x + at, valid, other=0.0).to(tl.float32)
        d, contribution = rms_grad(v, tl.load(g + at, valid, other=0.0).to(tl.float32), weight, n, eps)
        dw += tl.sum(contribution, axis=0)
        tl.store(dx + at, d, valid)
    tl.store(parts + tl.program_id(0) * n + column, dw, column < n)


def rms_norm(x, weight, eps):
    x, weight = contiguous(x, weight)
    y = torch.empty_like(x)
    by_rows(rms_norm_kernel, (x, weight, y), *x.shape, eps)
    return y


def rms_norm_backward(g, x, weight, eps):
    g, x, weight = contiguous(g, x, weight)
    m, n = x.shape
    dx = torch.empty_like(x)
    programs, tile = partial_sums(m, n)
    parts = torch.empty((programs, 1, n), dtype=torch.float32, device=x.device)
    rms_norm_grad_kernel[(programs,)](g, x, weight, dx, parts, m, n, eps, programs, **tile)
    return dx, *column_sums(parts, weight.dtype)


# == add_rms_norm: rms
@triton.jit
def add_rms_norm_kernel(x, residual, w, y, total, m, n, eps, rows: tl.constexpr, columns: tl.constexpr):
    _, _, column, at, valid = tile(tl.program_id(0) * rows, m, n, rows, columns)
    v = tl.load(x + at, valid, other=0.0).to(tl.float32) + tl.load(residual + at, valid, other=0.0).to(tl.float32)
    v = v.to(total.dtype.element_ty)
    tl.store(total + at, v, valid)
    v = v.to(tl.float32)  # what is normalised is the sum as it is stored
    weight = tl.load(w + column, column < n, other=0.0).to(tl.float32)
    tl.store(y + at, v * rms_scale(v, n, eps)[:, None] * weight[None, :], valid)


@triton.jit
def add_rms_norm_grad_kernel(
    g, gtotal, x, residual, w, dx, dresidual, parts, m, n, eps, programs, rows: tl.constexpr, columns: tl.constexpr
):
    column = tl.arange(0, columns)
    weight = tl.load(w + column, column < n, other=0.0).to(tl.float32)
    dw = tl.zeros((columns,), tl.float32)
    for first in range(tl.program_id(0) * rows, m, programs * rows):
        _, _, _, at, valid = tile(first, m, n, rows, columns)
        v = tl.load(x + at, valid, other=0.0).to(tl.float32) + tl.load(residual + at, valid, other=0.0).to(tl.float32)
        v = v.to(dx.dtype.element_ty).to(tl.float32)
        d, contribution = rms_grad(v, tl.load(g + at, valid, other=0.0).to(tl.float32), weight, n, eps)
        d += tl.load(gtotal + at, valid, other=0.0).to(tl.float32)
        dw += tl.sum(contribution, axis=0)
        tl.store(dx + at, d, valid)
        tl.store(dresidual + at, d, valid)
    tl.store(parts + tl.program_id(0) * n + column, dw, column < n)


def add_rms_norm(x, residual, weight, eps):
    x, residual, weight = contiguous(x, residual, weight)
    y, total = torch.empty_like(x), torch.empty_like(x)
    by_rows(add_rms_norm_kernel, (x, residual, weight, y, total), *x.shape, eps)
    return y, total


def add_rms_norm_backward(g, gtotal, x, residual, weight, eps):
    g, gtotal, x, residual, weight = contiguous(g, gtotal, x, residual, weight)
    m, n = x.shape
    dx, dresidual = torch.empty_like(x), torch.empty_like(x)
    programs, tile = partial_sums(m, n)
    parts = torch.empty((programs, 1, n), dtype=torch.float32, device=x.device)
    add_rms_norm_grad_kernel[(programs,)](
        g, gtotal, x, residual, weight, dx, dresidual, parts, m, n, eps, programs, **tile
    )
    return dx, dresidual, *column_sums(parts, weight.dtype)


# == channels: columns
# Group and batch normalisation see x as (outer, channels, inner) and normalise slabs of `height` rows of `inner`
# elements, `step` apart: group_norm one (sample, group), whose rows are its channels; batch_norm one channel, whose
# rows are the samples. Programs walk a slab in tiles of rows x columns.
@functools.lru_cache(maxsize=4096)
def slab_tile(height, inner):
    """Rows and columns of a tile of about 4096 elements, and warps."""
    columns = min(triton.next_power_of_2(max(inner, 1)), 2048)
    rows = max(1, min(triton.next_power_of_2(max(height, 1)), 4096 // columns))
    return {"rows": rows, "columns": columns, "num_warps": max(1, min(8, rows * columns // 512))}


@triton.jit
def slab_load(x, first, height, at, inner, step, rows: tl.constexpr, columns: tl.constexpr):
    """A tile of the slab at x as float32, its offsets, which elements exist, and its row numbers."""
    row = first + tl.arange(0, rows)
    column = at + tl.arange(0, columns)
    valid = (row < height)[:, None] & (column < inner)[None, :]
    offsets = row.to(tl.int64)[:, None] * step + column[None, :]
    return tl.load(x + offsets, valid, other=0.0).to(tl.float32), offsets, valid, row


@triton.jit
def slab_moments(x, height, inner, step, eps, rows: tl.constexpr, columns: tl.constexpr):
    """Mean of a slab and reciprocal of its standard deviation, in one pass.

    Deviations are taken from the first tile's mean, so that little cancels when their square is taken off.
    """
    v, _, valid, _ = slab_load(x, 0, height, 0, inner, step, rows, columns)
    shift = tl.sum(tl.sum(v, axis=1), axis=0) / tl.sum(tl.sum(valid.to(tl.float32), axis=1), axis=0)
    total = tl.zeros((rows, columns), tl.float32)
    squares = tl.zeros((rows, columns), tl.float32)
    for first in range(0, height, rows):
        for at in range(0, inner, columns):
            v, _, valid, _ = slab_load(x, first, height, at, inner, step, rows, columns)
            d = tl.where(valid, v - shift, 0.0)
            total += d
            squares += d * d
    mean = tl.sum(tl.sum(total, axis=1), axis=0) / (height * inner)
    variance = tl.sum(tl.sum(squares, axis=1), axis=0) / (height * inner) - mean * mean
    return shift + mean, 1.0 / tl.sqrt_rn(tl.maximum(variance, 0.0) + eps)


@triton.jit
def slab_norm_kernel(
    x, w, b, y, groups, height, inner, step, eps, batch: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):
    s = tl.program_id(0).to(tl.int64)
    base = s * inner if batch else s * height * inner
    mean, scale = slab_moments(x + base, height, inner, step, eps, rows, columns)
    for first in range(0, height, rows):
        row = first + tl.arange(0, rows)
        channel = row * 0 + s if batch else (s % groups) * height + row
        weight = tl.load(w + channel, row < height, other=0.0).to(tl.float32) * scale
        bias = tl.load(b + channel, row < height, other=0.0).to(tl.float32)
        for at in range(0, inner, columns):
            v, offsets, valid, _ = slab_load(x + base, first, height, at, inner, step, rows, columns)
            tl.store(y + base + offsets, (v - mean) * weight[:, None] + bias[:, None], valid)


@triton.jit
def slab_grad_kernel(
    g, x, w, dx, dw, db, parts, groups, height, inner, step, eps,
    batch: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    """dx; and for batch_norm dw and db, for group_norm the slab's part in them."""
    s = tl.program_id(0).to(tl.int64)
    base = s * inner if batch else s * height * inner
    mean, scale = slab_moments(x + base, height, inner, step, eps, rows, columns)
    with_v = tl.zeros((rows,), tl.float32)
    alone = tl.zeros((rows,), tl.float32)
    a = 0.0
    c = 0.0
    for first in range(0, height, rows):
        row = first + tl.arange(0, rows)
        tile_with_v = tl.zeros((rows, columns), tl.float32)
        tile_alone = tl.zeros((rows, columns), tl.float32)
        for at in range(0, inner, columns):
            v, _, _, _ = slab_load(x + base, first, height, at, inner, step, rows, columns)
            up, _, _, _ = slab_load(g + base, first, height, at, inner, step, rows, columns)
            tile_with_v += up * (v - mean)
            tile_alone += up
        row_with_v = tl.sum(tile_with_v, axis=1) * scale
        row_alone = tl.sum(tile_alone, axis=1)
        if batch:
            with_v += row_with_v
            alone += row_alone
        else:
            weight = tl.load(w + (s % groups) * height + row, row < height, other=0.0).to(tl.float32)
            a += tl.sum(weight * row_alone, axis=0)
            c += tl.sum(weight * row_with_v, axis=0)
            place = parts + (s // groups) * 2 * groups * height + (s % groups) * height + row
            tl.store(place, row_with_v, row < height)
            tl.store(place + groups * height, row_alone, row < height)
    if batch:
        weight_of_all = tl.load(w + s).to(tl.float32)
        c = tl.sum(with_v, axis=0)
        a = tl.sum(alone, axis=0)
        tl.store(dw + s, c)
        tl.store(db + s, a)
        a *= weight_of_all
        c *= weight_of_all
    a /= height * inner
    c /= height * inner
    for first in range(0, height, rows):
        row = first + tl.arange(0, rows)
        channel = row * 0 + s if batch else (s % groups) * height + row
        weight = tl.load(w + channel, row < height, other=0.0).to(tl.float32)
        for at in range(0, inner, columns):
            v, offsets, valid, _ = slab_load(x + base, first, height, at, inner, step, rows, columns)
            up, _, _, _ = slab_load(g + base, first, height, at, inner, step, rows, columns)
            d = scale * (up * weight[:, None] - a - (v - mean) * scale * c)
            tl.store(dx + base + offsets, d, valid)


def slabs(x, groups):
    """Number of slabs, rows of each, distance between rows; ``groups`` = 0: one slab a channel."""
    outer, channels, inner = x.shape
    if groups:
        return outer * groups, channels // groups, inner
    return channels, outer, channels * inner


def slab_norm(x, weight, bias, eps, groups):
    x, weight, bias = contiguous(x, weight, bias)
    y = torch.empty_like(x)
    inner = x.shape[2]
    count, height, step = slabs(x, groups)
    if x.numel():
        tile = slab_tile(height, inner)
        slab_norm_kernel[(count,)](x, weight, bias, y, groups, height, inner, step, eps, batch=not groups, **tile)
    return y


def slab_norm_backward(g, x, weight, eps, groups):
    g, x, weight = contiguous(g, x, weight)
    outer, channels, inner = x.shape
    count, height, step = slabs(x, groups)
    dx, dw, db = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    parts = torch.empty((outer, 2, channels), dtype=torch.float32, device=x.device) if groups else dw
    slab_grad_kernel[(count,)](
        g, x, weight, dx, dw, db, parts, groups, height, inner, step, eps, batch=not groups, **slab_tile(height, inner)
    )
    if groups:
        dw, db = column_sums(parts, weight.dtype)
    return dx, dw, db


# == group_norm: channels
def group_norm(x, weight, bias, groups, eps):
    return slab_norm(x, weight, bias, eps, groups)


def group_norm_backward(g, x, weight, bias, groups, eps):
    return slab_norm_backward(g, x, weight, eps, groups)


# == batch_norm: channels
def batch_norm(x, weight, bias, eps):
    return slab_norm(x, weight, bias, eps, 0)


def batch_norm_backward(g, x, weight, bias, eps):
    return slab_norm_backward(g, x, weight, eps, 0)
