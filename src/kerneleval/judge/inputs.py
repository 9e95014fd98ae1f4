"""Secret inputs, drawn on the device: values, distributions, layouts, upstream gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.records import Case, Scalar, TensorSpec

__all__ = ["draw", "strided", "upstream"]

_MIX = 0x9E3779B97F4A7C15


def _generator(seed: int, stream: int, device: str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed((seed + stream * _MIX) % (1 << 63))


def draw(specs: Sequence[Any], case: Case, seed: int, device: str) -> list[Any]:
    out = []
    for stream, spec in enumerate(specs):
        if isinstance(spec, Scalar):
            out.append(spec.value)
        else:
            out.append(_tensor(spec, case, _generator(seed, stream, device), device))
    return out


def _tensor(spec: TensorSpec, case: Case, g: torch.Generator, device: str) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if spec.values == "integers":
        return torch.randint(spec.low, max(spec.high, spec.low + 1), spec.shape, generator=g, device=device, dtype=dtype)
    if spec.values == "bool":
        t = torch.rand(spec.shape, generator=g, device=device) < 0.7
        if t.ndim and t.shape[-1]:
            t[..., 0] = True
        return t.to(dtype)
    t = torch.randn(spec.shape, generator=g, device=device)
    if spec.values == "positive":
        t = t.abs_().add_(0.1)
    elif spec.values == "uniform":
        t = torch.rand(spec.shape, generator=g, device=device)
    elif spec.values == "variance":
        t = torch.rand(spec.shape, generator=g, device=device).add_(0.5)
    elif spec.values == "ones_normal":
        t = t.mul_(0.1).add_(1)
    if spec.role == "data":
        t = _distribute(t, spec, case, g, device)
    return (t * spec.scale).to(dtype)


def _distribute(t: torch.Tensor, spec: TensorSpec, case: Case, g: torch.Generator, device: str) -> torch.Tensor:
    kind = case.distribution
    if kind == "standard" and spec.values == "normal" and t.ndim >= 2:
        rows = (*t.shape[:-1], 1)
        scale = torch.rand(rows, generator=g, device=device).mul_(1.5).add_(0.5)
        shift = torch.rand(rows, generator=g, device=device).mul_(2).sub_(1)
        return t * scale + shift
    if kind == "outlier" and t.numel():
        hit = torch.rand(t.shape, generator=g, device=device) < 0.001
        hit.view(-1)[torch.randint(t.numel(), (1,), generator=g, device=device)] = True
        return torch.where(hit, t * 50, t)
    if kind == "large_scale":
        return t * (64.0 if spec.dtype == "float16" else 1e3)
    if kind == "small_scale":
        return t * 1e-3
    if kind == "constant":
        return torch.full_like(t, 1.0) * (torch.rand((), generator=g, device=device) + 0.5)
    if kind == "zeros":
        return torch.zeros_like(t)
    if kind == "nonfinite" and t.numel():
        positions = torch.randint(t.numel(), (3,), generator=g, device=device)
        t.view(-1)[positions] = torch.tensor([float("nan"), float("inf"), float("-inf")], device=device)
    return t


def strided(layout: str, spec: TensorSpec) -> tuple[int, tuple[int, ...], int]:
    """(elements of storage, strides, offset)."""
    shape = spec.shape

    def row_major(sizes: Sequence[int]) -> list[int]:
        s = [1]
        for n in reversed(sizes[1:]):
            s.append(s[-1] * max(n, 1))
        return list(reversed(s)) if sizes else []

    strides, offset = row_major(shape), 0
    if layout == "transposed" and len(shape) >= 2:
        swapped = [*shape[:-2], shape[-1], shape[-2]]
        s = row_major(swapped)
        strides = [*s[:-2], s[-1], s[-2]]
    elif layout == "sliced" and shape or layout == "transposed" and len(shape) == 1:
        wide = [*shape[:-1], shape[-1] * 2 + 3]
        strides = row_major(wide)
        strides[-1] = 2 if len(shape) == 1 else 1
    elif layout == "offset":
        offset = 1
    extent = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if spec.numel else 0
    return extent, tuple(strides), offset


def upstream(outputs: Sequence[tuple[tuple[int, ...], str]], seed: int, device: str) -> list[torch.Tensor]:
    return [
        torch.randn(shape, generator=_generator(seed, 1000 + i, device), device=device).to(getattr(torch, dtype))
        for i, (shape, dtype) in enumerate(outputs)
    ]
