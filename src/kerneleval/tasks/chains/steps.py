"""What may stand behind the base of a chain, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain
from kerneleval.tasks.chains.chain import Names, Step
from kerneleval.tasks.define import data, mask, plain, weight

LEAST = 4
"""Fewest elements of a normalised group, as in operators/normalization.py."""

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


def _times_mish(x: torch.Tensor) -> torch.Tensor:
    return x * F.mish(x)


def _times_hardswish(x: torch.Tensor) -> torch.Tensor:
    return x * F.hardswish(x)


def _shifted_swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x + 3) / 6


def _dropout(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    return torch.where(keep, x, 0) / (1 - p)


def _sum_times(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (x + other) * other


def _min_and_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x.amin(1, keepdim=True) + bias


def _group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return F.group_norm(x, groups, weight, bias, eps)


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


def _batch_norm_unshifted(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, None, True, 0.0, eps)


def _instance_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.instance_norm(x, eps=eps)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _layer_norm_plain(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def _layer_norm_items(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[1:], eps=eps)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


_Args = Callable[[Names], tuple[Arg | Plain, ...]]
_Shape = Callable[[Names], Names]


def _affine(name: str, *more: Plain) -> tuple[Arg | Plain, ...]:
    return (weight("weight", name, values="ones_normal"), weight("bias", name), *more, plain("eps", 1e-5))


def _groups(shape: Names) -> Plain:
    """Groups of a norm: so many that each has 8 elements at least, and 4 channels where these have positions."""
    channels = shape[1]
    more = (f"{channels} // 4",) if len(shape) > 2 else ()  # as many as channels leave each a mean of 0
    return plain("groups", 2, among=(1, f"2 + 2 * ({channels} >= 32)", *more))


def _weighted(name: str, eps: float) -> tuple[Arg | Plain, ...]:
    return (weight("weight", name, values="ones_normal"), plain("eps", eps))


def _channel(shape: Names) -> tuple[Arg | Plain, ...]:
    return (weight("bias", shape[1]),)


def _other(shape: Names) -> tuple[Arg | Plain, ...]:
    return (data("other", " ".join(shape)),)


def _numbers(**values: float) -> _Args:
    return lambda shape: tuple(plain(name, value) for name, value in values.items())


def _halved(shape: Names) -> Names:
    return (*shape[:2], *(f"{name}_half" for name in shape[2:]))


def _first_flat(shape: Names) -> Names:
    return (*shape[:2], "one", *shape[3:])


def _fewer_features(shape: Names) -> Names:
    return (shape[0], f"{shape[1]}_half")


def _of_channels(text: str, run: Any, each: int = 1, **more: Any) -> Step:
    return Step(text=text, run=run, each=each, shape=lambda s: (s[0], "one", *s[2:]), over=lambda s: s[1:2], **more)


def _of_last(text: str, run: Any, each: int = 1, **more: Any) -> Step:
    return Step(text=text, run=run, each=each, shape=lambda s: s[:-1], over=lambda s: s[-1:], **more)


def _softmax(text: str, run: Any, over: _Shape, **more: Any) -> Step:
    return Step(text=text, run=run, each=5, over=over, least=2, complexity=2, **more)


def _norm(text: str, run: Any, each: int, args: _Args, over: _Shape, **more: Any) -> Step:
    settings: dict[str, Any] = {"least": LEAST, "centres": True, **more}
    return Step(text=text, run=run, each=each, args=args, over=over, complexity=2, **settings)


STEPS: dict[str, Step] = {
    **{
        name: Step(text=f"{name}({{x}})", run=getattr(home, name), each=each)
        for home, name, each in (
            *((F, "relu", 1), (F, "gelu", 5), (F, "silu", 4), (F, "mish", 5), (F, "elu", 3), (F, "selu", 4)),
            *((F, "softplus", 3), (F, "hardswish", 5), (F, "hardsigmoid", 4), (F, "hardtanh", 2), (F, "hardshrink", 2)),
            *((torch, "tanh", 1), (torch, "sigmoid", 3), (torch, "exp", 1), (torch, "cos", 1)),
        )
    },
    "leaky_relu": Step(text="leaky_relu({x}, slope)", run=F.leaky_relu, each=2, args=_numbers(slope=0.2)),
    "gelu_tanh": Step(text="gelu_tanh({x})", run=partial(F.gelu, approximate="tanh"), each=8),
    "log": Step(text="log {x}", run=torch.log),
    "sqrt": Step(text="sqrt {x}", run=torch.sqrt),
    "rsqrt": Step(text="{x} ** -0.5", run=torch.rsqrt, each=2),
    "abs": Step(text="|{x}|", run=torch.abs),
    "softmax": _softmax("softmax({x}, dim=1)", partial(F.softmax, dim=1), lambda s: s[1:2]),
    "log_softmax": _softmax("log_softmax({x}, dim=1)", partial(F.log_softmax, dim=1), lambda s: s[1:2]),
    "softmax_last": _softmax("softmax({x})", partial(F.softmax, dim=-1), lambda s: s[-1:]),
    "log_softmax_last": _softmax("log_softmax({x})", partial(F.log_softmax, dim=-1), lambda s: s[-1:]),
    "log_softmax_first": _softmax("log_softmax({x})", partial(F.log_softmax, dim=0), lambda s: s[:1], mixes=True),
    "softmax_positions": _softmax("softmax over positions of {x}", _softmax_positions, lambda s: s[2:]),
    "scale": Step(text="{x} * factor", run=torch.mul, args=_numbers(factor=_HALF)),
    "amplify": Step(text="{x} * factor", run=torch.mul, args=_numbers(factor=6.5)),
    "divide": Step(text="{x} / divisor", run=torch.div, args=_numbers(divisor=1.4)),
    "add_scalar": Step(text="({x} + value)", run=torch.add, args=_numbers(value=0.3)),
    "sub_scalar": Step(text="({x} - value)", run=torch.sub, args=_numbers(value=0.45)),
    "clamp": Step(text="clamp({x}, low, high)", run=torch.clamp, each=2, args=_numbers(low=-0.9, high=0.7)),
    "clamp_min": Step(text="max({x}, low)", run=torch.clamp_min, args=_numbers(low=-0.4)),
    "clamp_max": Step(text="min({x}, high)", run=torch.clamp_max, args=_numbers(high=0.4)),
    "bias_add": Step(text="({x} + bias[c])", run=_bias_add, args=_channel),
    "bias_sub": Step(text="({x} - bias[c])", run=_bias_sub, args=_channel),
    "channel_scale": Step(
        text="{x} * scale[c]", run=_channel_scale, args=lambda s: (weight("scale", s[1], values="ones_normal"),)
    ),
    "add": Step(text="({x} + other)", run=torch.add, args=_other),
    "sub": Step(text="({x} - other)", run=torch.sub, args=_other),
    "mul": Step(text="({x} * other)", run=torch.mul, args=_other),
    "sum_times": Step(text="({x} + other) * other", run=_sum_times, each=2, args=_other),
    "double": Step(text="2 {x}", run=partial(torch.mul, other=2)),
    "times_mish": Step(text="y mish(y), y = {x}", run=_times_mish, each=6),
    "times_hardswish": Step(text="y hardswish(y), y = {x}", run=_times_hardswish, each=6),
    "shifted_swish": Step(text="y sigmoid(y + 3) / 6, y = {x}", run=_shifted_swish, each=6),
    "dropout": Step(
        text="({x} / (1 - p) where keep, else 0)",
        run=_dropout,
        each=2,
        args=lambda s: (mask("keep", " ".join(s)), plain("p", 0.3)),
    ),
    "residual": Step(text="({x} + the first result)", run=torch.add, again=True),
    "gate": Step(text="({x} * the first result)", run=torch.mul, again=True),
    "sum": _of_channels("sum_c {x}", partial(torch.sum, dim=1, keepdim=True)),
    "mean": _of_channels("mean_c {x}", partial(torch.mean, dim=1, keepdim=True)),
    "max": _of_channels("max_c {x}", partial(torch.amax, dim=1, keepdim=True), jumps=True),
    "min": _of_channels("min_c {x}", partial(torch.amin, dim=1, keepdim=True), jumps=True),
    "std": _of_channels(
        "std_c {x}", partial(torch.std, dim=1, keepdim=True), 4, least=LEAST, complexity=2, centres=True
    ),
    "logsumexp": _of_channels("logsumexp_c {x}", partial(torch.logsumexp, dim=1, keepdim=True), 4, complexity=2),
    "min_and_bias": Step(text="(min_c {x} + bias[c])", run=_min_and_bias, each=2, args=_channel, jumps=True),
    "min_first": Step(text="min_h {x}", run=partial(torch.amin, dim=2, keepdim=True), shape=_first_flat, jumps=True),
    "sum_first": Step(
        text="sum_h {x}", run=partial(torch.sum, dim=2, keepdim=True), shape=_first_flat, over=lambda s: s[2:3]
    ),
    "mean_first": Step(
        text="mean_h {x}", run=partial(torch.mean, dim=2, keepdim=True), shape=_first_flat, over=lambda s: s[2:3]
    ),
    "sum_items": Step(text="sum of all {x}", run=_sum_items, shape=lambda s: s[:1], over=lambda s: s[1:]),
    "mean_items": Step(text="mean of all {x}", run=_mean_items, shape=lambda s: s[:1], over=lambda s: s[1:]),
    "centre": Step(text="(y - mean over positions of y), y = {x}", run=_centred, each=2, over=lambda s: s[2:], least=2),
    "mean_last": _of_last("mean {x}", partial(torch.mean, dim=-1)),
    "min_last": _of_last("min {x}", partial(torch.amin, dim=-1), jumps=True),
    "std_last": _of_last("std {x}", partial(torch.std, dim=-1), 4, least=LEAST, complexity=2, centres=True),
    "avg_pool_features": Step(text="avg_pool({x}, 2)", run=_avg_pool_features, shape=_fewer_features),
    "max_pool_features": Step(text="max_pool({x}, 2)", run=_max_pool_features, shape=_fewer_features, jumps=True),
    "global_avg_pool": Step(
        text="mean over positions of {x}",
        run=_global_avg_pool,
        shape=lambda s: (*s[:2], *(["one"] * len(s[2:]))),
        over=lambda s: s[2:],
    ),
    "avg_pool": Step(text="avg_pool({x}, 2)", run=_avg_pool, shape=_halved, complexity=2),
    "adaptive_avg_pool": Step(
        text="adaptive_avg_pool({x}) to half the size", run=_adaptive_avg_pool, shape=_halved, complexity=2
    ),
    "max_pool": Step(text="max_pool({x}, 2)", run=_max_pool, shape=_halved, jumps=True, complexity=2),
    "group_norm": _norm(
        "group_norm({x}, groups)",
        _group_norm,
        8,
        lambda s: _affine(s[1], _groups(s)),
        lambda s: s[1:],
        least=2 * LEAST,
    ),
    "batch_norm": _norm(
        "batch_norm({x})", _batch_norm, 8, lambda s: _affine(s[1]), lambda s: (s[0], *s[2:]), mixes=True
    ),
    "batch_norm_unshifted": _norm(
        "batch_norm({x}) without a shift",
        _batch_norm_unshifted,
        7,
        lambda s: _weighted(s[1], 1e-5),
        lambda s: (s[0], *s[2:]),
        mixes=True,
    ),
    "instance_norm": _norm("instance_norm({x})", _instance_norm, 8, _numbers(eps=1e-5), lambda s: s[2:]),
    "layer_norm": _norm("layer_norm({x})", _layer_norm, 8, lambda s: _affine(s[-1]), lambda s: s[-1:]),
    "layer_norm_plain": _norm("layer_norm({x})", _layer_norm_plain, 6, _numbers(eps=1e-5), lambda s: s[-1:]),
    "layer_norm_items": _norm(
        "layer_norm({x}) over all but the batch", _layer_norm_items, 6, _numbers(eps=1e-5), lambda s: s[1:]
    ),
    "rms_norm": _norm("rms_norm({x})", _rms_norm, 4, lambda s: _weighted(s[-1], 1e-6), lambda s: s[-1:], centres=False),
}
