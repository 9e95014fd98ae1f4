# mypy: ignore-errors
"""Activations: the sections that ``baseline.py`` and ``robust.py`` share. Each has its own ``elementwise`` section.

What stands above the first of them is in no candidate: it tells readers and linters where the names come from.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .robust import places, pointwise, sigmoid  # relative: a kernel names no program that judges it


# == gelu: elementwise
@triton.jit
def gelu_kernel(x, y, n, block: tl.constexpr):
    at, valid = places(n, block)
    v = tl.load(x + at, valid).to(tl.float32)
    tl.store(y + at, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), valid)


@triton.jit
def gelu_grad_kernel(g, x, dx, n, block: tl.constexpr):
    at, valid = places(n, block)
    v = tl.load(x + at, valid).to(tl.float32)
    up = tl.load(g + at, valid).to(tl.float32)
    cdf = 0.5 * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(dx + at, up * (cdf + v * tl.exp(-0.5 * v * v) * 0.3989422804014327), valid)


def gelu(x):
    return pointwise(gelu_kernel, [x])


def gelu_backward(g, x):
    return pointwise(gelu_grad_kernel, [g, x])


# == silu: elementwise
@triton.jit
def silu_kernel(x, y, n, block: tl.constexpr):
    at, valid = places(n, block)
    v = tl.load(x + at, valid).to(tl.float32)
    tl.store(y + at, v * sigmoid(v), valid)


@triton.jit
def silu_grad_kernel(g, x, dx, n, block: tl.constexpr):
    at, valid = places(n, block)
    v = tl.load(x + at, valid).to(tl.float32)
    up = tl.load(g + at, valid).to(tl.float32)
    s = sigmoid(v)
    tl.store(dx + at, up * s * (1.0 + v * (1.0 - s)), valid)


def silu(x):
    return pointwise(silu_kernel, [x])


def silu_backward(g, x):
    return pointwise(silu_grad_kernel, [g, x])


# == swiglu: elementwise
@triton.jit
def swiglu_kernel(gate, up, y, n, block: tl.constexpr):
    at, valid = places(n, block)
    v = tl.load(gate + at, valid).to(tl.float32)
    tl.store(y + at, v * sigmoid(v) * tl.load(up + at, valid).to(tl.float32), valid)


@triton.jit
def swiglu_grad_kernel(g, gate, up, dgate, dup, n, block: tl.constexpr):
    at, valid = places(n, block)
    upstream = tl.load(g + at, valid).to(tl.float32)
    v = tl.load(gate + at, valid).to(tl.float32)
    s = sigmoid(v)
    tl.store(dgate + at, upstream * tl.load(up + at, valid).to(tl.float32) * s * (1.0 + v * (1.0 - s)), valid)
    tl.store(dup + at, upstream * v * s, valid)


def swiglu(gate, up):
    return pointwise(swiglu_kernel, [gate, up])


def swiglu_backward(g, gate, up):
    return pointwise(swiglu_grad_kernel, [g, gate, up], count=2)
