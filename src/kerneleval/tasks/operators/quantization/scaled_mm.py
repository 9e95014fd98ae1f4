"""Products of matrices that are quantised already, with the scales given: integers and numbers of eight bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kerneleval.records import Arg, Task
from kerneleval.tasks.define import bias, data, fixed, operator, size, weight, whole
from kerneleval.tasks.quantised import FP8, FP8_MOST, bytewise, product, wide
from kerneleval.tasks.relations import permutation, resampling

Tensor = torch.Tensor

_BLOCK = 64


def _like(x: Tensor, scale: Tensor) -> Tensor:
    """In fp32, or in fp64 for the oracle, of which the scale tells."""
    return x.to(torch.promote_types(scale.dtype, torch.float32))


def _scaled_mm(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    y = product(_like(a, a_scale), _like(b, b_scale))
    return (y * _like(a_scale, a_scale) * _like(b_scale, b_scale)).to(a_scale.dtype)


def _cutlass_scaled_mm(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Tensor) -> Tensor:
    y = product(_like(a, a_scale), _like(b, b_scale))
    return (y * _like(a_scale, a_scale) * _like(b_scale, b_scale) + _like(bias, bias)).to(a_scale.dtype)


def _cutlass_scaled_mm_azp(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, adjust: Tensor, zero: Tensor, bias: Tensor
) -> Tensor:
    y = product(_like(a, a_scale), _like(b, b_scale)) - _like(zero, a_scale) * _like(adjust, a_scale)
    return (y * _like(a_scale, a_scale) * _like(b_scale, b_scale) + _like(bias, bias)).to(a_scale.dtype)


def _scaled_mm_fp8(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    y = _like(a, a_scale) @ _like(b, b_scale)
    return (y * _like(a_scale, a_scale) * _like(b_scale, b_scale)).to(a_scale.dtype)


def _scaled_mm_fp8_bias(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Tensor) -> Tensor:
    y = _like(a, a_scale) @ _like(b, b_scale)
    return (y * _like(a_scale, a_scale) * _like(b_scale, b_scale) + _like(bias, bias)).to(a_scale.dtype)


def _scaled_mm_fp8_blockwise(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    left = _like(a, a_scale) * _like(a_scale, a_scale).repeat_interleave(_BLOCK, 1)
    blocks = _like(b_scale, b_scale).repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)
    return (left @ (_like(b, b_scale) * blocks)).to(a_scale.dtype)


def _pack_scale_fp8(scales: Tensor) -> Tensor:
    eight = torch.arange(-8, 0, device=scales.device)
    packed = (wide(scales)[..., None] * eight).clamp(-FP8_MOST, FP8_MOST)
    return packed if packed.dtype == torch.float64 else packed.to(FP8)


def _multiplied(name: str, summary: str, reference: Callable[..., Any], args: tuple[Arg, ...], **more: Any) -> Task:
    """A task of the family; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {
        "dims": (size("M", high=4096), size("K", low=16, high=4096), size("N", high=4096)),
        "out": ("M N",),
        "relations": (resampling("row_resampling", {0: 0, 2: 0}, {0: 0}),),
        **more,
    }
    return operator(
        name,
        "gemm",
        summary,
        args=args,
        reference=reference,
        reduction="K",
        flops="2 * M * N * K + 2 * M * N",
        nonfinite=False,
        group="Quantization",
        source="vllm",
        complexity=3,
        no_backward="numbers that are quantised have no gradient",
        **{
            **settings,
            "derive": {"one": 1, "steps": "73 ** 2", **settings.get("derive", {})},
            "relations": tuple(bytewise(relation) for relation in settings["relations"]),
        },
    )


def _fp8(name: str, shape: str) -> Arg:
    return replace(data(name, shape), dtype="float8_e4m3fn")


_INTEGERS = (whole("a", "M K", -127, 128, dtype="int8"), whole("b", "K N", -127, 128, dtype="int8"))
_NUMBERS = (_fp8("a", "M K"), _fp8("b", "K N"))
_A_ROWS, _B_COLUMNS = (
    weight("a_scale", "M one", values="variance", fan_in="steps"),
    weight("b_scale", "one N", values="variance", fan_in="K steps"),
)
_A_ONE, _B_ONE = (
    weight("a_scale", "one one", values="variance", fan_in="steps"),
    weight("b_scale", "one one", values="variance", fan_in="K steps"),
)
_OF_ONE = {"relations": (permutation("row_permutation", {0: 0}, {0: 0}), permutation("columns", {1: 1}, {0: 1}))}
_OF_FP8: Any = {"derive": {"steps": 1}}

TASKS = (
    _multiplied(
        "cutlass_scaled_mm",
        "out = (a @ b) * a_scale * b_scale + bias, a and b in int8, scales of rows of a and columns of b",
        _cutlass_scaled_mm,
        (*_INTEGERS, _A_ROWS, _B_COLUMNS, bias("N")),
    ),
    _multiplied(
        "cutlass_scaled_mm_per_tensor",
        "out = (a @ b) * a_scale * b_scale, a and b in int8, one scale each",
        _scaled_mm,
        (*_INTEGERS, _A_ONE, _B_ONE),
        **_OF_ONE,
    ),
    _multiplied(
        "cutlass_scaled_mm_azp",
        "out = (a @ b - zero[m] * adjust[n]) * a_scale * b_scale + bias, a and b in int8, adjust: sums of b's columns",
        _cutlass_scaled_mm_azp,
        (
            *_INTEGERS,
            _A_ROWS,
            _B_COLUMNS,
            whole("adjust", "N", "-60 * K", "60 * K", dtype="int32"),
            whole("zero", "M one", -128, 128, dtype="int32"),
            bias("N"),
        ),
        relations=(
            resampling("row_resampling", {0: 0, 2: 0, 5: 0}, {0: 0}),
            permutation("columns", {1: 1, 3: 1, 4: 0, 6: 0}, {0: 1}),
        ),
    ),
    _multiplied(
        "cutlass_scaled_mm_fp8",
        "out = (a @ b) * a_scale * b_scale + bias, a and b in e4m3fn, scales of rows of a and columns of b",
        _scaled_mm_fp8_bias,
        (*_NUMBERS, _A_ROWS, _B_COLUMNS, bias("N")),
        **_OF_FP8,
    ),
    _multiplied(
        "cutlass_scaled_mm_fp8_per_tensor",
        "out = (a @ b) * a_scale * b_scale, a and b in e4m3fn, one scale each",
        _scaled_mm_fp8,
        (*_NUMBERS, _A_ONE, _B_ONE),
        **{**_OF_FP8, **_OF_ONE},
    ),
    _multiplied(
        "cutlass_scaled_mm_fp8_blockwise",
        f"out = (a * a_scale) @ (b * b_scale) in e4m3fn, scales of {_BLOCK} of a row of a, {_BLOCK} x {_BLOCK} of b",
        _scaled_mm_fp8_blockwise,
        (
            *_NUMBERS,
            weight("a_scale", "M parts", values="variance", fan_in="steps"),
            weight("b_scale", "parts blocks", values="variance", fan_in="K steps"),
        ),
        dims=(
            size("M", high=4096),
            size("K", low=_BLOCK, high=4096, multiple_of=_BLOCK),
            size("N", low=_BLOCK, high=4096, multiple_of=_BLOCK),
        ),
        derive={"steps": 1, "parts": f"K // {_BLOCK}", "blocks": f"N // {_BLOCK}"},
    ),
    operator(
        "cutlass_pack_scale_fp8",
        "elementwise",
        "out[g, n] = scales[g, n] * (-8, -7 ... -1) in e4m3fn, beyond 448 that: products with weights of four bits",
        dims=(fixed("G", high=64), size("N")),
        args=(_fp8("scales", "G N"),),
        out=("G N eight: float8_e4m3fn",),
        derive={"eight": 8},
        reference=_pack_scale_fp8,
        flops="8 * G * N",
        dtypes=("float32",),
        nonfinite=False,
        group="Quantization",
        source="vllm",
        no_backward="rounding has no gradient",
    ),
)
