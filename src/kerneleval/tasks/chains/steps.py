"""What may stand behind the base of a chain, by name."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain
from kerneleval.tasks.chains.chain import Names, Step
from kerneleval.tasks.chains.norms import LEAST, NORMS
from kerneleval.tasks.define import data, mask, plain, weight

_HALF = 0.6
"""Plain factors are no powers of two, so that leaving one out, or merging two, shows."""


def _spread(of: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One number a channel, along the dims behind the channels."""
    return of.view(-1, *([1] * (x.ndim - 2)))


def _bias_add(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x + _spread(bias, x)


def _bias_sub(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x - _spread(bias, x)


def _channel_scale(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * _spread(scale, x)


def _sum_channels(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1, keepdim=True)


def _mean_channels(x: torch.Tensor) -> torch.Tensor:
    return x.mean(1, keepdim=True)


def _max_channels(x: torch.Tensor) -> torch.Tensor:
    return x.amax(1, keepdim=True)


def _min_channels(x: torch.Tensor) -> torch.Tensor:
    return x.amin(1, keepdim=True)


def _logsumexp_channels(x: torch.Tensor) -> torch.Tensor:
    return x.logsumexp(1, keepdim=True)


def _std_channels(x: torch.Tensor) -> torch.Tensor:
    return x.std(1, keepdim=True)


def _min_first(x: torch.Tensor) -> torch.Tensor:
    return x.amin(2, keepdim=True)


def _sum_first(x: torch.Tensor) -> torch.Tensor:
    return x.sum(2, keepdim=True)


def _mean_first(x: torch.Tensor) -> torch.Tensor:
    return x.mean(2, keepdim=True)


def _sum_items(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1).sum(1)


def _mean_items(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1).mean(1)


def _centred(x: torch.Tensor) -> torch.Tensor:
    return x - _global_avg_pool(x)


def _avg_pool_features(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(x.unsqueeze(1), 2).squeeze(1)


def _max_pool_features(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool1d(x.unsqueeze(1), 2).squeeze(1)


def _mean_all(x: torch.Tensor) -> torch.Tensor:
    return x.mean(-1)


def _amin_last(x: torch.Tensor) -> torch.Tensor:
    return x.amin(-1)


def _std_last(x: torch.Tensor) -> torch.Tensor:
    return x.std(-1)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, dim=1)


def _log_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, dim=1)


def _softmax_last(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, dim=-1)


def _log_softmax_last(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, dim=-1)


def _log_softmax_first(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, dim=0)


def _softmax_positions(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.flatten(2), dim=2).view_as(x)


def _global_avg_pool(x: torch.Tensor) -> torch.Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def _avg_pool(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool3d(x, 2) if x.ndim == 5 else F.avg_pool2d(x, 2) if x.ndim == 4 else F.avg_pool1d(x, 2)


def _adaptive_avg_pool(x: torch.Tensor) -> torch.Tensor:
    return F.adaptive_avg_pool2d(x, (x.shape[2] // 2, x.shape[3] // 2))


def _max_pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool3d(x, 2) if x.ndim == 5 else F.max_pool2d(x, 2) if x.ndim == 4 else F.max_pool1d(x, 2)


def _div(x: torch.Tensor, by: float) -> torch.Tensor:
    return x / by


def _leaky_relu(x: torch.Tensor, slope: float) -> torch.Tensor:
    return F.leaky_relu(x, slope)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _double(x: torch.Tensor) -> torch.Tensor:
    return x + x


def _times_mish(x: torch.Tensor) -> torch.Tensor:
    return x * F.mish(x)


def _times_hardswish(x: torch.Tensor) -> torch.Tensor:
    return x * F.hardswish(x)


def _shifted_swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x + 3) / 6


def _dropout(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    return torch.where(keep, x, 0) / (1 - p)


def _residual(x: torch.Tensor, origin: torch.Tensor) -> torch.Tensor:
    return x + origin


def _gated(x: torch.Tensor, origin: torch.Tensor) -> torch.Tensor:
    return x * origin


def _elementwise(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x + other


def _product(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x * other


def _less(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x - other


def _sum_times(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (x + other) * other


def _min_and_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x.amin(1, keepdim=True) + bias


def _channel(shape: Names) -> tuple[Arg | Plain, ...]:
    return (weight("bias", shape[1]),)


def _scales(shape: Names) -> tuple[Arg | Plain, ...]:
    return (weight("scale", shape[1], values="ones_normal"),)


def _other(shape: Names) -> tuple[Arg | Plain, ...]:
    return (data("other", " ".join(shape)),)


def _kept(shape: Names) -> tuple[Arg | Plain, ...]:
    return (mask("keep", " ".join(shape)), plain("p", 0.3))


def _flat(shape: Names) -> Names:
    return (shape[0], "one", *shape[2:])


def _halved(shape: Names) -> Names:
    return (*shape[:2], *(f"{name}_half" for name in shape[2:]))


def _pointed(shape: Names) -> Names:
    return (*shape[:2], *(["one"] * len(shape[2:])))


def _numbers(**values: float) -> Any:
    return lambda shape: tuple(plain(name, value) for name, value in values.items())


def _first_flat(shape: Names) -> Names:
    return (*shape[:2], "one", *shape[3:])


def _fewer_features(shape: Names) -> Names:
    return (shape[0], f"{shape[1]}_half")


def _second(shape: Names) -> Names:
    return (shape[1],)


def _behind_batch(shape: Names) -> Names:
    return shape[1:]


def _channel_step(text: str, run: Any, each: int = 1, **more: Any) -> Step:
    return Step(text=text, run=run, each=each, shape=_flat, over=_second, **more)


STEPS: dict[str, Step] = {
    "relu": Step(text="relu({x})", run=F.relu),
    "leaky_relu": Step(text="leaky_relu({x}, slope)", run=_leaky_relu, each=2, args=_numbers(slope=0.2)),
    "gelu": Step(text="gelu({x})", run=F.gelu, each=5),
    "gelu_tanh": Step(text="gelu_tanh({x})", run=_gelu_tanh, each=8),
    "silu": Step(text="silu({x})", run=F.silu, each=4),
    "mish": Step(text="mish({x})", run=F.mish, each=5),
    "tanh": Step(text="tanh({x})", run=torch.tanh),
    "sigmoid": Step(text="sigmoid({x})", run=torch.sigmoid, each=3),
    "elu": Step(text="elu({x})", run=F.elu, each=3),
    "selu": Step(text="selu({x})", run=F.selu, each=4),
    "softplus": Step(text="softplus({x})", run=F.softplus, each=3),
    "hardswish": Step(text="hardswish({x})", run=F.hardswish, each=5),
    "hardsigmoid": Step(text="hardsigmoid({x})", run=F.hardsigmoid, each=4),
    "hardtanh": Step(text="hardtanh({x})", run=F.hardtanh, each=2),
    "hardshrink": Step(text="hardshrink({x})", run=F.hardshrink, each=2),
    "exp": Step(text="exp({x})", run=torch.exp),
    "log": Step(text="log {x}", run=torch.log),
    "sqrt": Step(text="sqrt {x}", run=torch.sqrt),
    "rsqrt": Step(text="{x} ** -0.5", run=torch.rsqrt, each=2),
    "cos": Step(text="cos({x})", run=torch.cos),
    "abs": Step(text="|{x}|", run=torch.abs),
    "softmax": Step(text="softmax({x}, dim=1)", run=_softmax, each=5, over=_second, least=2, complexity=2),
    "log_softmax": Step(text="log_softmax({x}, dim=1)", run=_log_softmax, each=5, over=_second, least=2, complexity=2),
    "softmax_last": Step(text="softmax({x})", run=_softmax_last, each=5, over=lambda s: s[-1:], least=2, complexity=2),
    "log_softmax_last": Step(
        text="log_softmax({x})", run=_log_softmax_last, each=5, over=lambda s: s[-1:], least=2, complexity=2
    ),
    "log_softmax_first": Step(
        text="log_softmax({x})", run=_log_softmax_first, each=5, over=lambda s: s[:1], least=2, mixes=True, complexity=2
    ),
    "softmax_positions": Step(
        text="softmax over positions of {x}",
        run=_softmax_positions,
        each=5,
        over=lambda s: s[2:],
        least=2,
        complexity=2,
    ),
    "scale": Step(text="{x} * factor", run=torch.mul, args=_numbers(factor=_HALF)),
    "amplify": Step(text="{x} * factor", run=torch.mul, args=_numbers(factor=6.5)),
    "divide": Step(text="{x} / divisor", run=_div, args=_numbers(divisor=1.4)),
    "add_scalar": Step(text="({x} + value)", run=torch.add, args=_numbers(value=0.3)),
    "sub_scalar": Step(text="({x} - value)", run=torch.sub, args=_numbers(value=0.45)),
    "clamp": Step(text="clamp({x}, low, high)", run=torch.clamp, each=2, args=_numbers(low=-0.9, high=0.7)),
    "clamp_min": Step(text="max({x}, low)", run=torch.clamp_min, args=_numbers(low=-0.4)),
    "clamp_max": Step(text="min({x}, high)", run=torch.clamp_max, args=_numbers(high=0.4)),
    "bias_add": Step(text="({x} + bias[c])", run=_bias_add, args=_channel),
    "bias_sub": Step(text="({x} - bias[c])", run=_bias_sub, args=_channel),
    "channel_scale": Step(text="{x} * scale[c]", run=_channel_scale, args=_scales),
    "add": Step(text="({x} + other)", run=_elementwise, args=_other),
    "sub": Step(text="({x} - other)", run=_less, args=_other),
    "mul": Step(text="({x} * other)", run=_product, args=_other),
    "sum_times": Step(text="({x} + other) * other", run=_sum_times, each=2, args=_other),
    "double": Step(text="2 {x}", run=_double),
    "times_mish": Step(text="y mish(y), y = {x}", run=_times_mish, each=6),
    "times_hardswish": Step(text="y hardswish(y), y = {x}", run=_times_hardswish, each=6),
    "shifted_swish": Step(text="y sigmoid(y + 3) / 6, y = {x}", run=_shifted_swish, each=6),
    "dropout": Step(text="({x} / (1 - p) where keep, else 0)", run=_dropout, each=2, args=_kept),
    "residual": Step(text="({x} + the first result)", run=_residual, again=True),
    "gate": Step(text="({x} * the first result)", run=_gated, again=True),
    "sum": _channel_step("sum_c {x}", _sum_channels),
    "mean": _channel_step("mean_c {x}", _mean_channels),
    "max": _channel_step("max_c {x}", _max_channels, jumps=True),
    "min": _channel_step("min_c {x}", _min_channels, jumps=True),
    "std": _channel_step("std_c {x}", _std_channels, 4, least=LEAST, complexity=2),
    "logsumexp": _channel_step("logsumexp_c {x}", _logsumexp_channels, 4, complexity=2),
    "min_and_bias": Step(text="(min_c {x} + bias[c])", run=_min_and_bias, each=2, args=_channel, jumps=True),
    "min_first": Step(text="min_h {x}", run=_min_first, shape=_first_flat, jumps=True),
    "sum_first": Step(text="sum_h {x}", run=_sum_first, shape=_first_flat, over=lambda s: s[2:3]),
    "mean_first": Step(text="mean_h {x}", run=_mean_first, shape=_first_flat, over=lambda s: s[2:3]),
    "sum_items": Step(text="sum of all {x}", run=_sum_items, shape=lambda s: s[:1], over=_behind_batch),
    "mean_items": Step(text="mean of all {x}", run=_mean_items, shape=lambda s: s[:1], over=_behind_batch),
    "centre": Step(text="(y - mean over positions of y), y = {x}", run=_centred, each=2, over=lambda s: s[2:], least=2),
    "mean_last": Step(text="mean {x}", run=_mean_all, shape=lambda s: s[:-1], over=lambda s: s[-1:]),
    "min_last": Step(text="min {x}", run=_amin_last, shape=lambda s: s[:-1], over=lambda s: s[-1:], jumps=True),
    "std_last": Step(
        text="std {x}", run=_std_last, each=4, shape=lambda s: s[:-1], over=lambda s: s[-1:], least=LEAST, complexity=2
    ),
    "avg_pool_features": Step(text="avg_pool({x}, 2)", run=_avg_pool_features, shape=_fewer_features),
    "max_pool_features": Step(text="max_pool({x}, 2)", run=_max_pool_features, shape=_fewer_features, jumps=True),
    "global_avg_pool": Step(
        text="mean over positions of {x}", run=_global_avg_pool, shape=_pointed, over=lambda s: s[2:]
    ),
    "avg_pool": Step(text="avg_pool({x}, 2)", run=_avg_pool, shape=_halved, complexity=2),
    "adaptive_avg_pool": Step(
        text="adaptive_avg_pool({x}) to half the size", run=_adaptive_avg_pool, shape=_halved, complexity=2
    ),
    "max_pool": Step(text="max_pool({x}, 2)", run=_max_pool, shape=_halved, jumps=True, complexity=2),
}
STEPS |= NORMS
