# specimen: class=several_kernels task=logsumexp device=any verdict=passed categories=tiny allow=custom
"""Partial maxima, partial sums and their combination: three launches a call, and memory between them."""

import torch
import triton
import triton.language as tl


@triton.jit
def _maxima(x, top, n, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    lost = tl.sum((value != value).to(tl.int32), axis=0) > 0
    tl.store(top + row * parts + part, tl.where(lost, float("nan"), tl.max(value, axis=0)))


@triton.jit
def _sums(x, top, sums, n, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    tl.store(sums + row * parts + part, tl.sum(tl.exp(value - tl.load(top + row * parts + part)), axis=0))


@triton.jit
def _combine(top, sums, out, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tops = tl.load(top + row * parts + at, mask=at < parts, other=float("-inf"))
    lost = tl.sum((tops != tops).to(tl.int32), axis=0) > 0
    high = tl.max(tops, axis=0)
    total = tl.sum(tl.exp(tops - high) * tl.load(sums + row * parts + at, mask=at < parts, other=0.0), axis=0)
    tl.store(out + row, tl.where(lost, float("nan"), high + tl.log(total)))


def logsumexp(x):
    x = x.contiguous()
    rows, n = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    if rows:
        parts = triton.cdiv(n, 64)
        top, sums = (torch.empty(rows, parts, dtype=x.dtype, device=x.device) for _ in range(2))
        _maxima[(rows, parts)](x, top, n, parts, BLOCK=64)
        _sums[(rows, parts)](x, top, sums, n, parts, BLOCK=64)
        _combine[(rows,)](top, sums, out, parts, BLOCK=triton.next_power_of_2(parts))
    return out
