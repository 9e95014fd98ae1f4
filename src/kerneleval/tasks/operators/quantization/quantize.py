"""Quantising to eight bits: numbers of e4m3fn and integers, with scales that are given or taken from the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Relation, Task
from kerneleval.tasks.define import ROWS, data, operator, plain, size, weight
from kerneleval.tasks.quantised import FP8, FP8_MOST, INT8_MOST, bytewise, scale_of, wide
from kerneleval.tasks.relations import homogeneity, resampling

Tensor = torch.Tensor
_Norm = Callable[[Tensor, Tensor, float], Tensor]

_GROUP = 64


def _to_fp8(x: Tensor, scale: Tensor | float) -> Tensor:
    q = (x / scale).clamp(-FP8_MOST, FP8_MOST)
    return q if q.dtype == torch.float64 else q.to(FP8)  # the oracle is not rounded


def _to_int8(x: Tensor, scale: Tensor, zero: Tensor | float = 0.0) -> Tensor:
    return (torch.round(x / scale) + zero).clamp(-128, 127).to(torch.int8)


def _scaled_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    return _to_fp8(wide(x), wide(scale))


def _convert_fp8(x: Tensor, scale: float) -> Tensor:
    return _to_fp8(wide(x), scale)


def _dynamic_per_token_scaled_fp8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    y = wide(x)
    scale = scale_of(y, -1, FP8_MOST)
    return _to_fp8(y, scale), scale


def _scaled_int8_quant(x: Tensor, scale: Tensor) -> Tensor:
    return _to_int8(wide(x), wide(scale))


def _scaled_int8_quant_azp(x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return _to_int8(wide(x), wide(scale), torch.round(32 * wide(zero)))


def _dynamic_scaled_int8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    y = wide(x)
    scale = scale_of(y, -1)
    return _to_int8(y, scale), scale


def _dynamic_scaled_int8_quant_azp(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = wide(x)
    low, high = y.amin(-1, keepdim=True), y.amax(-1, keepdim=True)
    scale = torch.where(high > low, (high - low) / 255, 1.0)
    zero = torch.round(-128 - low / scale).clamp(-128, 127)
    return _to_int8(y, scale, zero), scale, zero.to(torch.int8)


def _normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(wide(x), (x.shape[-1],), wide(weight), eps)


def _normalised_in_type(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same, rounded to the type before and behind the weight, as vLLM's kernels have it."""
    return wide(_normalised(x, torch.ones_like(weight), eps).to(weight.dtype) * weight)


def _rms_norm_static_fp8_quant(
    x: Tensor, weight: Tensor, scale: Tensor, eps: float, normalised: _Norm = _normalised
) -> Tensor:
    return _to_fp8(normalised(x, weight, eps), wide(scale))


def _rms_norm_dynamic_per_token_quant(
    x: Tensor, weight: Tensor, eps: float, normalised: _Norm = _normalised
) -> tuple[Tensor, Tensor]:
    y = normalised(x, weight, eps)
    scale = scale_of(y, -1, FP8_MOST)
    return _to_fp8(y, scale), scale


def _rms_norm_dynamic_per_token_int8_quant(
    x: Tensor, weight: Tensor, eps: float, normalised: _Norm = _normalised
) -> tuple[Tensor, Tensor]:
    y = normalised(x, weight, eps)
    scale = scale_of(y, -1)
    return _to_int8(y, scale), scale


def _add_rms_norm_dynamic_per_token_quant(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, normalised: _Norm = _normalised
) -> tuple[Tensor, Tensor, Tensor]:
    total = wide(x) + wide(residual)
    return *_rms_norm_dynamic_per_token_quant(total, weight, eps, normalised), total.to(x.dtype)


def _in_groups(x: Tensor, most: float) -> tuple[Tensor, Tensor]:
    groups = x.unflatten(-1, (-1, _GROUP))
    scale = scale_of(groups, -1, most)
    q = _to_fp8(groups, scale) if most == FP8_MOST else _to_int8(groups, scale)
    return q.flatten(-2), scale.squeeze(-1)


def _rms_norm_per_block_quant(
    x: Tensor, weight: Tensor, eps: float, normalised: _Norm = _normalised
) -> tuple[Tensor, Tensor]:
    return _in_groups(normalised(x, weight, eps), FP8_MOST)


def _per_token_group_quant_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    return _in_groups(wide(x), FP8_MOST)


def _per_token_group_quant_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    return _in_groups(wide(x), INT8_MOST)


def _gated(x: Tensor) -> Tensor:
    gate, up = wide(x).chunk(2, -1)
    return F.silu(gate) * up


def _silu_and_mul_quant(x: Tensor, scale: Tensor) -> Tensor:
    return _to_fp8(_gated(x), wide(scale))


def _silu_and_mul_per_token_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    y = _gated(x)
    scale = scale_of(y, -1, FP8_MOST)
    return _to_fp8(y, scale), scale


def _quantise(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    *args: Any,
    relations: tuple[Relation, ...] = (),
    **more: Any,
) -> Task:
    """A task of the family, whose rows may be drawn anew; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {"dims": ROWS, "out": _FP8, "flops": "3 * M * N", **more}
    rows = {i: 0 for i, arg in enumerate(args) if isinstance(arg, Arg) and arg.shape.startswith("M ")}
    row_resampling = resampling("row_resampling", rows, dict.fromkeys(range(len(settings["out"])), 0))
    return operator(
        name,
        "elementwise",
        summary,
        args=args,
        reference=reference,
        nonfinite=False,
        group="Quantization",
        source="vllm",
        no_backward="rounding has no gradient",
        relations=(bytewise(row_resampling), *relations),
        **{**settings, "derive": {**_NAMES, **settings.get("derive", {})}},
    )


_NAMES: Any = {"one": 1, "groups": f"N // {_GROUP}", "both": "2 * N"}
_FP8, _INT8 = ("M N: float8_e4m3fn",), ("M N: int8",)
_WITH_SCALE, _INT8_SCALE = (*_FP8, "M one: float32"), (*_INT8, "M one: float32")
_GROUPS: Any = {"dims": (size("M"), size("N", low=_GROUP, multiple_of=_GROUP))}
_X = data("x", "M N")
_OF_FP8: Any = {"derive": {"steps": "112 ** 2"}, "without": ("large_scale", "small_scale")}
_OF_INT8: Any = {"derive": {"steps": "32 ** 2"}, "without": ("large_scale", "small_scale")}
"""A scale with which most of standard numbers are within the range, and use it."""
_BOTH_SCALED: Any = {"relations": (homogeneity({0: 4.0, 1: 4.0}, {}),)}
_FLOOR: Any = {"epsilon": 1e-10}
"""Small data comes down to rows of that size: some kernels hold scales at a floor of 1e-10 or more."""
_SCALE_FOLLOWS: Any = {"relations": (homogeneity({0: 4.0}, {1: 4.0}),), **_FLOOR}
_TIED = data("x", "M N", ties="scale")
_SCALE = weight("scale", "one", values="variance", fan_in="steps")
_NORM: Any = {
    "flops": "9 * M * N",
    "reduction": "N",
    "where": "N > 0",
    "in_type": False,
    "complexity": 2,
    "level": 2,
}
_NORMED = (_X, weight("weight", "N"), plain("eps", 1e-6))

TASKS = (
    _quantise(
        "scaled_fp8_quant",
        "out = x / scale in e4m3fn, beyond 448 that",
        _scaled_fp8_quant,
        _TIED,
        _SCALE,
        **_OF_FP8,
        **_BOTH_SCALED,
    ),
    _quantise(
        "convert_fp8",
        "out = x / scale in e4m3fn, ties to even, beyond 448 that, NaN of NaN; scale a plain number",
        _convert_fp8,
        data("x", "M N", ties="scale", nonfinite="nan"),
        plain("scale", 2.0**-6),  # a power of two: quotients are exact, and half way between two where x is
        without=("large_scale", "small_scale"),
    ),
    _quantise(
        "dynamic_per_token_scaled_fp8_quant",
        "out = x / s in e4m3fn, s = max |x[m]| / 448, 1 where that is 0; s",
        _dynamic_per_token_scaled_fp8_quant,
        _X,
        out=_WITH_SCALE,
        **_SCALE_FOLLOWS,
    ),
    _quantise(
        "per_token_group_quant_fp8",
        f"out = x / s in e4m3fn, s = max |x| / 448 of each {_GROUP} of a row, 1 where that is 0; s",
        _per_token_group_quant_fp8,
        _X,
        out=(*_FP8, "M groups: float32"),
        **_GROUPS,
        **_SCALE_FOLLOWS,
    ),
    _quantise(
        "scaled_int8_quant",
        "out = round(x / scale), ties to even, within [-128, 127]",
        _scaled_int8_quant,
        _TIED,
        _SCALE,
        out=_INT8,
        **_OF_INT8,
        **_BOTH_SCALED,
    ),
    _quantise(
        "scaled_int8_quant_azp",
        "out = round(x / scale) + round(32 zero), ties to even, within [-128, 127]",
        _scaled_int8_quant_azp,
        _TIED,
        _SCALE,
        weight("zero", "one"),
        out=_INT8,
        **_OF_INT8,
        **_BOTH_SCALED,
    ),
    _quantise(
        "dynamic_scaled_int8_quant",
        "out = round(x / s), ties to even, s = max |x[m]| / 127, 1 where that is 0; s",
        _dynamic_scaled_int8_quant,
        _X,
        out=_INT8_SCALE,
        **_SCALE_FOLLOWS,
    ),
    _quantise(
        "dynamic_scaled_int8_quant_azp",
        "out = round(x / s) + z, s = (max - min of x[m]) / 255, 1 where that is 0, z = round(-128 - min / s), both "
        "within [-128, 127]; s, z",
        _dynamic_scaled_int8_quant_azp,
        data("x", "M N", one_sided=True),
        dims=(size("M"), size("N", low=128)),
        where="N >= 128",  # so that other rows have numbers of both signs, and their zeros are within int8
        without=("constant",),
        out=(*_INT8_SCALE, "M one: int8"),
        dtypes=("float32",),  # of half types the zero of one row in fifty lies half way between two
        flops="5 * M * N",
        **_SCALE_FOLLOWS,
    ),
    _quantise(
        "per_token_group_quant_int8",
        f"out = round(x / s), ties to even, s = max |x| / 127 of each {_GROUP} of a row, 1 where that is 0; s",
        _per_token_group_quant_int8,
        _X,
        out=(*_INT8, "M groups: float32"),
        **_GROUPS,
        **_SCALE_FOLLOWS,
    ),
    _quantise(
        "rms_norm_static_fp8_quant",
        "out = y / scale in e4m3fn, y = rms_norm(x) * weight, beyond 448 that",
        _rms_norm_static_fp8_quant,
        *_NORMED[:2],
        _SCALE,
        _NORMED[2],
        unfused=(partial(_rms_norm_static_fp8_quant, normalised=_normalised_in_type),),
        **{**_NORM, **_OF_FP8, "without": ()},
    ),
    _quantise(
        "rms_norm_dynamic_per_token_quant",
        "out = y / s in e4m3fn, y = rms_norm(x) * weight, s = max |y[m]| / 448, 1 where that is 0; s",
        _rms_norm_dynamic_per_token_quant,
        *_NORMED,
        out=_WITH_SCALE,
        unfused=(partial(_rms_norm_dynamic_per_token_quant, normalised=_normalised_in_type),),
        **_NORM,
    ),
    _quantise(
        "rms_norm_dynamic_per_token_int8_quant",
        "out = round(y / s), y = rms_norm(x) * weight, s = max |y[m]| / 127, 1 where that is 0; s",
        _rms_norm_dynamic_per_token_int8_quant,
        *_NORMED,
        out=_INT8_SCALE,
        unfused=(partial(_rms_norm_dynamic_per_token_int8_quant, normalised=_normalised_in_type),),
        **_NORM,
    ),
    _quantise(
        "add_rms_norm_dynamic_per_token_quant",
        "out = y / s in e4m3fn, y = rms_norm(x + residual) * weight, s = max |y[m]| / 448, 1 where that is 0; s; "
        "x + residual",
        _add_rms_norm_dynamic_per_token_quant,
        _X,
        data("residual", "M N"),
        *_NORMED[1:],
        out=(*_WITH_SCALE, "M N"),
        unfused=(partial(_add_rms_norm_dynamic_per_token_quant, normalised=_normalised_in_type),),
        **_NORM,
    ),
    _quantise(
        "rms_norm_per_block_quant",
        f"out = y / s in e4m3fn, y = rms_norm(x) * weight, s = max |y| / 448 of each {_GROUP} of a row, 1 where "
        "that is 0; s",
        _rms_norm_per_block_quant,
        *_NORMED,
        out=(*_FP8, "M groups: float32"),
        unfused=(partial(_rms_norm_per_block_quant, normalised=_normalised_in_type),),
        **{**_NORM, **_GROUPS},
    ),
    _quantise(
        "silu_and_mul_quant",
        "out = silu(x[m, n]) * x[m, N + n] / scale in e4m3fn, beyond 448 that",
        _silu_and_mul_quant,
        data("x", "M both"),
        _SCALE,
        flops="7 * M * N",
        level=2,
        **_OF_FP8,
    ),
    _quantise(
        "silu_and_mul_per_token_quant",
        "out = y / s in e4m3fn, y = silu(x[m, n]) * x[m, N + n], s = max |y[m]| / 448, 1 where that is 0; s",
        _silu_and_mul_per_token_quant,
        data("x", "M both"),
        out=_WITH_SCALE,
        flops="8 * M * N",
        level=2,
        **_FLOOR,
    ),
)
