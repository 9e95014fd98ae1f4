# mypy: ignore-errors
"""Textbook Triton kernels: one program a row or a block of 1024 elements, everything else left to the compiler."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# == elementwise
BLOCK = 1024


@triton.jit
def places(n, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    return at, at < n


def pointwise(kernel, inputs, count=1):
    inputs = [t.contiguous() for t in inputs]
    outputs = [torch.empty_like(inputs[0]) for _ in range(count)]
    n = inputs[0].numel()
    if n:
        kernel[(triton.cdiv(n, BLOCK),)](*inputs, *outputs, n, block=BLOCK)
    return outputs[0] if count == 1 else tuple(outputs)


@triton.jit
def sigmoid(v):
    return tl.sigmoid(v)


# == rows
@triton.jit
def row_load(x, n, fill, block: tl.constexpr):
    """This program's row as float32, its offsets, and which of them exist."""
    column = tl.arange(0, block)
    at = tl.program_id(0).to(tl.int64) * n + column
    return tl.load(x + at, column < n, other=fill).to(tl.float32), at, column < n


def by_rows(kernel, inputs, outputs, *rest):
    m, n = inputs[0].shape
    if m and n:
        kernel[(m,)](*inputs, *outputs, n, *rest, block=triton.next_power_of_2(n))


def row_kernel(kernel, x, *others):
    """One number for each row."""
    inputs = [t.contiguous() for t in (x, *others)]
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    by_rows(kernel, inputs, (y,))
    return y


def row_grad_kernel(kernel, x, *others):
    """A gradient of the shape of x."""
    inputs = [t.contiguous() for t in (x, *others)]
    dx = torch.empty_like(inputs[0])
    by_rows(kernel, inputs, (dx,))
    return dx


# == amax: rows
@triton.jit
def row_max(v):
    odd = tl.max((v != v).to(tl.int32), axis=0)
    return tl.where(odd > 0, float("nan"), tl.max(v, axis=0))


@triton.jit
def amax_kernel(x, y, n, block: tl.constexpr):
    v, _, _ = row_load(x, n, float("-inf"), block)
    tl.store(y + tl.program_id(0), row_max(v))


@triton.jit
def amax_grad_kernel(x, g, dx, n, block: tl.constexpr):
    v, at, valid = row_load(x, n, float("-inf"), block)
    hit = ((v == row_max(v)) & valid).to(tl.float32)
    tl.store(dx + at, hit * (tl.load(g + tl.program_id(0)).to(tl.float32) / tl.sum(hit, axis=0)), valid)


def amax(x):
    return row_kernel(amax_kernel, x)


def amax_backward(g, x):
    return row_grad_kernel(amax_grad_kernel, x, g)


# == argmax: rows
@triton.jit
def argmax_kernel(x, y, n, block: tl.constexpr):
    v, _, _ = row_load(x, n, float("-inf"), block)
    odd = (v != v).to(tl.int32)
    best = tl.where(tl.max(odd, axis=0) > 0, tl.argmax(odd, axis=0), tl.argmax(v, axis=0))  # NaN before infinity
    tl.store(y + tl.program_id(0), best.to(tl.int64))


def argmax(x):
    x = x.contiguous()
    y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    by_rows(argmax_kernel, (x,), (y,))
    return y


# == softmax: rows
@triton.jit
def exponentials(v, valid):
    top = tl.max(v, axis=0)
    top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    e = tl.where(valid, tl.exp(v - top), 0.0)
    return top, e, tl.sum(e, axis=0)


# == logsumexp: softmax
@triton.jit
def logsumexp_kernel(x, y, n, block: tl.constexpr):
    v, _, valid = row_load(x, n, float("-inf"), block)
    top, _, total = exponentials(v, valid)
    tl.store(y + tl.program_id(0), top + tl.log(total))


@triton.jit
def logsumexp_grad_kernel(x, g, dx, n, block: tl.constexpr):
    v, at, valid = row_load(x, n, float("-inf"), block)
    _, e, total = exponentials(v, valid)
    tl.store(dx + at, e * (tl.load(g + tl.program_id(0)).to(tl.float32) / total), valid)


def logsumexp(x):
    return row_kernel(logsumexp_kernel, x)


def logsumexp_backward(g, x):
    return row_grad_kernel(logsumexp_grad_kernel, x, g)


# == softmax_cross_entropy: softmax
@triton.jit
def cross_entropy_kernel(x, target, y, n, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    v, _, valid = row_load(x, n, float("-inf"), block)
    top, _, total = exponentials(v, valid)
    chosen = tl.load(x + row * n + tl.load(target + row)).to(tl.float32)
    tl.store(y + row, tl.log(total) + (top - chosen))


@triton.jit
def cross_entropy_grad_kernel(x, g, target, dx, n, block: tl.constexpr):
    row = tl.program_id(0)
    v, at, valid = row_load(x, n, float("-inf"), block)
    _, e, total = exponentials(v, valid)
    hit = (tl.arange(0, block) == tl.load(target + row)).to(tl.float32)
    tl.store(dx + at, tl.load(g + row).to(tl.float32) * (e / total - hit), valid)


def softmax_cross_entropy(x, target):
    return row_kernel(cross_entropy_kernel, x, target)


def softmax_cross_entropy_backward(g, x, target):
    return row_grad_kernel(cross_entropy_grad_kernel, x, g, target)


# == layer_norm: rows
@triton.jit
def centred(v, valid, n, eps):
    mean = tl.sum(v, axis=0) / n
    d = tl.where(valid, v - mean, 0.0)
    return mean, d, 1.0 / tl.sqrt_rn(tl.sum(d * d, axis=0) / n + eps)


@triton.jit
def layer_norm_kernel(x, w, b, y, n, eps, block: tl.constexpr):
    v, at, valid = row_load(x, n, 0.0, block)
    _, d, scale = centred(v, valid, n, eps)
    column = tl.arange(0, block)
    weight = tl.load(w + column, valid, other=0.0).to(tl.float32)
    tl.store(y + at, d * scale * weight + tl.load(b + column, valid, other=0.0).to(tl.float32), valid)


@triton.jit
def layer_norm_grad_kernel(x, g, w, dx, moments, n, eps, block: tl.constexpr):
    v, at, valid = row_load(x, n, 0.0, block)
    mean, d, scale = centred(v, valid, n, eps)
    up, _, _ = row_load(g, n, 0.0, block)
    u = up * tl.load(w + tl.arange(0, block), valid, other=0.0).to(tl.float32)
    v = d * scale
    tl.store(dx + at, scale * (u - tl.sum(u, axis=0) / n - v * (tl.sum(u * v, axis=0) / n)), valid)
    tl.store(moments + 2 * tl.program_id(0), mean)
    tl.store(moments + 2 * tl.program_id(0) + 1, scale)


@triton.jit
def layer_norm_columns_kernel(x, g, moments, dw, db, m, n, rows: tl.constexpr, columns: tl.constexpr):
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    sums = tl.zeros((columns,), tl.float32)
    plain = tl.zeros((columns,), tl.float32)
    for first in range(0, m, rows):
        row = first + tl.arange(0, rows)
        valid = (row < m)[:, None] & (column < n)[None, :]
        at = row.to(tl.int64)[:, None] * n + column[None, :]
        mean = tl.load(moments + 2 * row, row < m, other=0.0)
        scale = tl.load(moments + 2 * row + 1, row < m, other=0.0)
        up = tl.load(g + at, valid, other=0.0).to(tl.float32)
        v = (tl.load(x + at, valid, other=0.0).to(tl.float32) - mean[:, None]) * scale[:, None]
        sums += tl.sum(up * v, axis=0)
        plain += tl.sum(up, axis=0)
    tl.store(dw + column, sums, column < n)
    tl.store(db + column, plain, column < n)


def layer_norm(x, weight, bias, eps):
    inputs = [t.contiguous() for t in (x, weight, bias)]
    y = torch.empty_like(inputs[0])
    by_rows(layer_norm_kernel, inputs, (y,), eps)
    return y


def layer_norm_backward(g, x, weight, bias, eps):
    x, g, weight = (t.contiguous() for t in (x, g, weight))
    m, n = x.shape
    dx, dw, db = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    moments = torch.empty((m, 2), dtype=torch.float32, device=x.device)
    by_rows(layer_norm_grad_kernel, (x, g, weight), (dx, moments), eps)
    layer_norm_columns_kernel[(triton.cdiv(n, 32),)](x, g, moments, dw, db, m, n, rows=32, columns=32)
    return dx, dw, db


# == rms: rows
@triton.jit
def rms_scale(v, n, eps):
    return 1.0 / tl.sqrt_rn(tl.sum(v * v, axis=0) / n + eps)


@triton.jit
def rms_norm_kernel(x, w, y, n, eps, block: tl.constexpr):
    v, at, valid = row_load(x, n, 0.0, block)
    weight = tl.load(w + tl.arange(0, block), valid, other=0.0).to(tl.float32)
    tl.store(y + at, v * rms_scale(v, n, eps) * weight, valid)


@triton.jit
def rms_norm_grad_kernel(x, g, w, dx, scales, n, eps, block: tl.constexpr):
    v, at, valid = row_load(x, n, 0.0, block)
    scale = rms_scale(v, n, eps)
    up, _, _ = row_load(g, n, 0.0, block)
    u = up * tl.load(w + tl.arange(0, block), valid, other=0.0).to(tl.float32)
    v = v * scale
    tl.store(dx + at, scale * (u - v * (tl.sum(u * v, axis=0) / n)), valid)
    tl.store(scales + tl.program_id(0), scale)


@triton.jit
def rms_norm_columns_kernel(x, g, scales, dw, m, n, rows: tl.constexpr, columns: tl.constexpr):
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    sums = tl.zeros((columns,), tl.float32)
    for first in range(0, m, rows):
        row = first + tl.arange(0, rows)
        valid = (row < m)[:, None] & (column < n)[None, :]
        at = row.to(tl.int64)[:, None] * n + column[None, :]
        v = tl.load(x + at, valid, other=0.0).to(tl.float32) * tl.load(scales + row, row < m, other=0.0)[:, None]
        sums += tl.sum(tl.load(g + at, valid, other=0.0).to(tl.float32) * v, axis=0)
    tl.store(dw + column, sums, column < n)


def rms_norm_(x, weight, eps):
    inputs = [t.contiguous() for t in (x, weight)]
    y = torch.empty_like(inputs[0])
    by_rows(rms_norm_kernel, inputs, (y,), eps)
    return y


def rms_norm_backward_(g, x, weight, eps):
    x, g, weight = (t.contiguous() for t in (x, g, weight))
    m, n = x.shape
    dx, dw = torch.empty_like(x), torch.empty_like(weight)
    scales = torch.empty(m, dtype=torch.float32, device=x.device)
    by_rows(rms_norm_grad_kernel, (x, g, weight), (dx, scales), eps)
    rms_norm_columns_kernel[(triton.cdiv(n, 32),)](x, g, scales, dw, m, n, rows=32, columns=32)
    return dx, dw


# == rms_norm: rms
rms_norm = rms_norm_
rms_norm_backward = rms_norm_backward_


# == add_rms_norm: elementwise rms
@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    at, valid = places(n, block)
    tl.store(out + at, tl.load(x + at, valid).to(tl.float32) + tl.load(y + at, valid).to(tl.float32), valid)


def add_rms_norm(x, residual, weight, eps):
    total = pointwise(add_kernel, [x, residual])
    return rms_norm_(total, weight, eps), total


def add_rms_norm_backward(g, gtotal, x, residual, weight, eps):
    dx, dw = rms_norm_backward_(g, pointwise(add_kernel, [x, residual]), weight, eps)
    dx = pointwise(add_kernel, [dx, gtotal])
    return dx, dx.clone(), dw


# == group_norm: rows
@triton.jit
def group_norm_kernel(x, w, b, y, n, inner, per_group, groups, eps, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for first in range(0, n, block):
        total += tl.load(x + row * n + first + lanes, first + lanes < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros((block,), tl.float32)
    for first in range(0, n, block):
        v = tl.load(x + row * n + first + lanes, first + lanes < n, other=0.0).to(tl.float32)
        d = tl.where(first + lanes < n, v - mean, 0.0)
        total += d * d
    scale = 1.0 / tl.sqrt_rn(tl.sum(total, axis=0) / n + eps)
    for first in range(0, n, block):
        i = first + lanes
        channel = (row % groups) * per_group + i // inner
        v = (tl.load(x + row * n + i, i < n, other=0.0).to(tl.float32) - mean) * scale
        weight = tl.load(w + channel, i < n, other=0.0).to(tl.float32)
        tl.store(y + row * n + i, v * weight + tl.load(b + channel, i < n, other=0.0).to(tl.float32), i < n)


def group_norm(x, weight, bias, groups, eps):
    x, weight, bias = (t.contiguous() for t in (x, weight, bias))
    samples, channels, inner = x.shape
    y = torch.empty_like(x)
    n = channels // groups * inner
    group_norm_kernel[(samples * groups,)](x, weight, bias, y, n, inner, channels // groups, groups, eps, block=1024)
    return y


# == batch_norm: rows
@triton.jit
def batch_norm_kernel(x, w, b, y, samples, channels, inner, eps, block: tl.constexpr):
    c = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for s in range(samples):
        for first in range(0, inner, block):
            at = (s * channels + c) * inner + first + lanes
            total += tl.load(x + at, first + lanes < inner, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / (samples * inner)
    total = tl.zeros((block,), tl.float32)
    for s in range(samples):
        for first in range(0, inner, block):
            at = (s * channels + c) * inner + first + lanes
            v = tl.load(x + at, first + lanes < inner, other=0.0).to(tl.float32)
            d = tl.where(first + lanes < inner, v - mean, 0.0)
            total += d * d
    scale = tl.load(w + c).to(tl.float32) / tl.sqrt_rn(tl.sum(total, axis=0) / (samples * inner) + eps)
    bias = tl.load(b + c).to(tl.float32)
    for s in range(samples):
        for first in range(0, inner, block):
            at = (s * channels + c) * inner + first + lanes
            v = tl.load(x + at, first + lanes < inner, other=0.0).to(tl.float32)
            tl.store(y + at, (v - mean) * scale + bias, first + lanes < inner)


def batch_norm(x, weight, bias, eps):
    x, weight, bias = (t.contiguous() for t in (x, weight, bias))
    samples, channels, inner = x.shape
    y = torch.empty_like(x)
    batch_norm_kernel[(channels,)](x, weight, bias, y, samples, channels, inner, eps, block=1024)
    return y
