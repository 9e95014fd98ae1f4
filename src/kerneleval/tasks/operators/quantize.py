"""Quantising to eight bits: numbers of e4m3fn and integers, with scales that are given or taken from the data."""

from __future__ import annotations

import torch

from kerneleval.tasks.define import data, operator, size, weight
from kerneleval.tasks.quantised import FP8, FP8_MOST, scale_of, wide

Tensor = torch.Tensor


def _to_fp8(x: Tensor, scale: Tensor) -> Tensor:
    q = (x / scale).clamp(-FP8_MOST, FP8_MOST)
    return q if q.dtype == torch.float64 else q.to(FP8)  # the oracle is not rounded


def _scaled_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    return _to_fp8(wide(x), wide(scale))


def _dynamic_per_token_scaled_fp8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    y = wide(x)
    scale = scale_of(y, -1, FP8_MOST)
    return _to_fp8(y, scale), scale


def _dequantize_fp8(x: Tensor, scale: Tensor) -> Tensor:
    return (wide(x) * wide(scale)).to(scale.dtype)


TASKS = (
    operator(
        "scaled_fp8_quant",
        "elementwise",
        "out = x / scale in e4m3fn, beyond 448 that",
        dims=(size("M"), size("N")),
        args=(data("x", "M N"), weight("scale", "one", values="variance")),
        derive={"one": lambda d: 1},
        out=("M N: float8_e4m3fn",),
        reference=_scaled_fp8_quant,
        flops=lambda d: 3 * d.M * d.N,
        nonfinite=False,
        group="Quantization",
        source="vllm",
        no_backward="rounding has no gradient",
    ),
    operator(
        "dynamic_per_token_scaled_fp8_quant",
        "elementwise",
        "out = x / s in e4m3fn, s = max |x[m]| / 448; s",
        dims=(size("M"), size("N")),
        args=(data("x", "M N"),),
        derive={"one": lambda d: 1},
        out=("M N: float8_e4m3fn", "M one: float32"),
        reference=_dynamic_per_token_scaled_fp8_quant,
        flops=lambda d: 4 * d.M * d.N,
        nonfinite=False,
        group="Quantization",
        source="vllm",
        no_backward="rounding has no gradient",
    ),
)
