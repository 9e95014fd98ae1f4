"""Normalisations as models have them: with residuals, gates, other weights, adapted to a condition; and gradients.

Every normalised group has at least four elements, as in ``normalization``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Task
from kerneleval.tasks.define import ROWS, bias, data, fixed, gain, operator, plain, size, weight
from kerneleval.tasks.relations import permutation, resampling

Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def _wide(x: Tensor) -> Tensor:
    """The numbers in fp32, wider ones as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _gemma_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], 1 + weight, eps)


def _add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = x + residual
    return F.layer_norm(total, total.shape[-1:], weight, bias, eps), total


def _deep_norm(x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, alpha: float, eps: float) -> Tensor:
    return F.layer_norm(alpha * x + branch, x.shape[-1:], weight, bias, eps)


def _rms_norm_gated(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x * F.silu(gate), x.shape[-1:], weight, eps)


def _rms_norm_then_gate(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps) * F.silu(gate)


def _qk_norm(q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return F.rms_norm(q, q.shape[-1:], q_weight, eps), F.rms_norm(k, k.shape[-1:], k_weight, eps)


def _adaptive_layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=eps) * (1 + scale[:, None]) + shift[:, None]


def _adaptive_instance_norm(x: Tensor, style: Tensor, eps: float) -> Tensor:
    var, mean = torch.var_mean(style, (2, 3), keepdim=True, correction=0)
    return F.instance_norm(x, eps=eps) * torch.sqrt(var + eps) + mean


def _group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    return F.silu(F.group_norm(x, groups, weight, bias, eps))


def _layer_norm_channels(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    found = F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], weight, bias, eps)
    return found.permute(0, 3, 1, 2).contiguous()


def _global_response_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Any:
    norm = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
    return weight * (x * norm / (norm.mean(-1, keepdim=True) + eps)) + bias + x


def _dynamic_tanh(x: Tensor, alpha: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.tanh(alpha * x) * weight + bias


def _batch_norm_running(
    x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor, bias: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, var = running_mean.clone(), running_var.clone()
    return F.batch_norm(x, mean, var, weight, bias, True, momentum, eps), mean, var


def _layer_norm_backward(grad: Tensor, x: Tensor, weight: Tensor, eps: float) -> Any:
    shape = x.shape[-1:]
    _, mean, rstd = torch.native_layer_norm(x, shape, weight, None, eps)
    found = _aten.native_layer_norm_backward(grad, x, shape, mean, rstd, weight, weight, (True, True, True))
    return tuple(found)


def _rms_norm_backward(grad: Tensor, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    wide = _wide(x)
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    unit, scaled = wide * rstd, _wide(grad) * weight
    to_x = rstd * (scaled - unit * (scaled * unit).mean(-1, keepdim=True))
    return to_x.to(x.dtype), (_wide(grad) * unit).sum(0).to(x.dtype)


_LEAST, _LARGE = 4, 1024.0
_X = data("x", "M N", large_half=_LARGE)
_WEIGHT = gain("weight", "N")
_SUMMED: Any = {"backward_dtypes": ("float32",)}  # on CPUs PyTorch sums gradients of weights in half types
_EPS, _SMALL_EPS = plain("eps", 1e-5), plain("eps", 1e-6)


def _row_relations(args: tuple[Any, ...], outputs: int) -> tuple[Any, ...]:
    """Rows and features may change places, in all that has them."""
    found: list[Any] = []
    for name, kind in (("row", "M"), ("feature", "N")):
        along = {i: a.shape.split().index(kind) for i, a in enumerate(args) if isinstance(a, Arg) and kind in a.shape}
        outs = dict.fromkeys(range(outputs), int(kind == "N"))
        found.append(permutation(f"{name}_permutation", along, outs))
        if kind == "M":
            found.append(resampling("row_resampling", along, outs))
    return tuple(found)


def _rows(name: str, summary: str, reference: Any, each: int, *args: Any, **more: Any) -> Task:
    """A task over (M, N) that normalises the last dim; ``args`` and ``more`` as ``define.operator`` takes them."""
    settings: dict[str, Any] = {
        "out": ("M N",),
        "level": 2,
        "source": "model",
        "reduction": "N",
        "where": f"N >= {_LEAST}",
        "empty": True,
        "folded": "M",
        **more,
    }
    return operator(
        name,
        "normalization",
        summary,
        dims=ROWS,
        args=args,
        reference=reference,
        flops=f"{each} * M * N",
        **{"relations": _row_relations(args, len(settings["out"])), **settings},
    )


_BATCH = fixed("B", high=8)
_PIXELS: Any = {
    "dims": (_BATCH, size("C", low=_LEAST, high=1024), size("H", low=2, high=512), size("W", low=2, high=512)),
    "level": 2,
    "source": "model",
}
_CHANNELS = (gain("weight", "C"), bias("C"))
_RUNNING = (
    Arg(name="running_mean", shape="C", role="weight"),
    Arg(name="running_var", shape="C", role="weight", values="variance"),
)


def _of_batch(*along: int) -> tuple[Any, ...]:
    return (resampling("batch_resampling", dict.fromkeys(along, 0), {0: 0}),)


TASKS = (
    _rows(
        "gemma_rms_norm",
        "out[m] = x[m] / sqrt(mean(x[m] ** 2) + eps) * (1 + weight)",
        _gemma_rms_norm,
        5,
        _X,
        weight("weight", "N"),
        _SMALL_EPS,
    ),
    _rows(
        "add_layer_norm",
        "s = x + residual; out = (layer_norm(s) * weight + bias, s), over the last dim",
        _add_layer_norm,
        9,
        replace(_X, along="N"),
        replace(_X, name="residual", along="N", far=16.0),
        _WEIGHT,
        bias("N"),
        _EPS,
        out=("M N", "M N"),
        without=("constant",),
        rows=("far_mean",),
        **_SUMMED,
    ),
    _rows(
        "deep_norm",
        "out = layer_norm(alpha * x + branch) * weight + bias, over the last dim",
        _deep_norm,
        10,
        replace(_X, along="N"),
        replace(_X, name="branch", along="N", far=16.0),
        _WEIGHT,
        bias("N"),
        plain("alpha", 1.5),
        _EPS,
        without=("constant",),
        rows=("far_mean",),
        **_SUMMED,
    ),
    _rows(
        "rms_norm_gated",
        "out = rms_norm(x * silu(gate)) * weight, over the last dim",
        _rms_norm_gated,
        9,
        data("x", "M N"),
        data("gate", "M N"),
        _WEIGHT,
        _SMALL_EPS,
    ),
    _rows(
        "rms_norm_then_gate",
        "out = rms_norm(x) * weight * silu(gate), over the last dim",
        _rms_norm_then_gate,
        9,
        _X,
        data("gate", "M N"),
        _WEIGHT,
        _SMALL_EPS,
    ),
    _rows(
        "dynamic_tanh",
        "out = tanh(alpha * x) * weight + bias, one alpha for all",
        _dynamic_tanh,
        4,
        data("x", "M N"),
        Arg(name="alpha", shape="one", role="weight", values="variance", differentiable=True),
        _WEIGHT,
        bias("N"),
        derive={"one": 1},
        gathered="M * N",
        backward_dtypes=("float32",),  # that of alpha cancels
        reduction="1",
        complexity=1,
        relations=(resampling("row_resampling", {0: 0}, {0: 0}),),
    ),
    _rows(
        "layer_norm_backward",
        "out = the gradients of x, weight and bias of layer_norm, from that of its output",
        _layer_norm_backward,
        16,
        data("grad", "M N"),
        replace(_X, along="N"),
        _WEIGHT,
        _EPS,
        out=("M N", "N", "N"),
        rows=("far_mean",),
        level=1,
        source="aten",
        reduction="max(M, N)",
        relations=(permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),),
        without=("constant",),
        no_backward="it is a gradient itself",
    ),
    _rows(
        "rms_norm_backward",
        "out = the gradients of x and weight of rms_norm, from that of its output",
        _rms_norm_backward,
        12,
        data("grad", "M N"),
        _X,
        _WEIGHT,
        _SMALL_EPS,
        out=("M N", "N"),
        folded="",
        level=1,
        source="aten",
        reduction="max(M, N)",
        relations=(permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),),
        no_backward="it is a gradient itself",
    ),
    operator(
        "qk_norm",
        "normalization",
        "out = (rms_norm(q) * q_weight, rms_norm(k) * k_weight), over the last dim of each head",
        dims=(_BATCH, fixed("H", high=16), fixed("G", high=4), size("L", high=4096), size("D", low=_LEAST, high=256)),
        args=(
            data("q", "B H L D", large_half=_LARGE),
            data("k", "B G L D", large_half=_LARGE),
            gain("q_weight", "D"),
            gain("k_weight", "D"),
            _SMALL_EPS,
        ),
        out=("B H L D", "B G L D"),
        reference=_qk_norm,
        flops="4 * B * (H + G) * L * D",
        reduction="D",
        gathered="B * max(H, G) * L",
        level=2,
        source="model",
        relations=(resampling("batch_resampling", {0: 0, 1: 0}, {0: 0, 1: 0}),),
    ),
    operator(
        "adaptive_layer_norm",
        "normalization",
        "out[b, l] = layer_norm(x[b, l]) * (1 + scale[b]) + shift[b], over the last dim: a diffusion transformer's",
        dims=(_BATCH, size("L", high=4096), size("D", low=_LEAST, high=4096)),
        args=(data("x", "B L D", large_half=_LARGE), data("scale", "B D"), data("shift", "B D"), _SMALL_EPS),
        out=("B L D",),
        reference=_adaptive_layer_norm,
        flops="9 * B * L * D",
        reduction="D",
        gathered="L",
        without=("constant",),
        rows=("far_mean",),
        level=2,
        source="model",
        relations=(*_of_batch(0, 1, 2), permutation("position_permutation", {0: 1}, {0: 1})),
    ),
    operator(
        "adaptive_instance_norm",
        "normalization",
        "out[b, c] = instance_norm(x[b, c]) * sqrt(var(style[b, c]) + eps) + mean(style[b, c]), biased variance",
        args=(data("x", "B C H W", along="H W"), data("style", "B C H W", along="H W"), _EPS),
        rows=("far_mean",),
        out=("B C H W",),
        reference=_adaptive_instance_norm,
        flops="13 * B * C * H * W",
        reduction="H * W",
        without=("constant",),
        relations=_of_batch(0, 1),
        **_PIXELS,
    ),
    operator(
        "layer_norm_channels",
        "normalization",
        "out[b, :, h, w] = layer_norm(x[b, :, h, w]) * weight + bias, over channels",
        args=(data("x", "B C H W", large_half=_LARGE, along="C"), *_CHANNELS, _SMALL_EPS),
        rows=("far_mean",),
        out=("B C H W",),
        reference=_layer_norm_channels,
        flops="8 * B * C * H * W",
        reduction="C",
        gathered="B * H * W",
        without=("constant",),
        **_SUMMED,
        relations=(*_of_batch(0), permutation("channel_permutation", {0: 1, 1: 0, 2: 0}, {0: 1})),
        **_PIXELS,
    ),
    operator(
        "global_response_norm",
        "normalization",
        "out[b, h, w, c] = weight[c] * x * g[b, c] / (mean(g[b]) + eps) + bias[c] + x for g[b, c] = "
        "sqrt(sum_{h, w} x ** 2)",
        args=(data("x", "B H W C"), *_CHANNELS, _SMALL_EPS),
        out=("B H W C",),
        reference=_global_response_norm,
        flops="8 * B * C * H * W",
        reduction="H * W * C",
        gathered="B * H * W",
        without=("zeros",),
        relations=(*_of_batch(0), permutation("channel_permutation", {0: 3, 1: 0, 2: 0}, {0: 3})),
        **_PIXELS,
    ),
    operator(
        "group_norm_silu",
        "normalization",
        "out = silu(group_norm(x) * weight[c] + bias[c]), mean and biased variance over each group of channels",
        derive={"channels": "G * C"},
        args=(
            data("x", "B channels L", large_half=_LARGE, along="channels L"),
            gain("weight", "channels"),
            bias("channels"),
            plain("groups", formula="G"),
            _EPS,
        ),
        out=("B channels L",),
        reference=_group_norm_silu,
        flops="12 * B * G * C * L",
        reduction="C * L",
        gathered="B * L",
        without=("constant",),
        rows=("far_mean",),
        relations=_of_batch(0),
        # Not of images: on CPUs PyTorch's backward crashes if they lie channels last and x needs no gradient.
        **{**_PIXELS, "dims": (_BATCH, fixed("G", high=32), size("C", low=_LEAST, high=1024), size("L", high=8192))},
    ),
    operator(
        "batch_norm_running",
        "normalization",
        "out = (batch_norm(x) * weight[c] + bias[c], new running mean, new running variance); new = (1 - momentum) * "
        "old + momentum * that of this batch, unbiased variance",
        rows=("far_mean",),
        args=(
            data("x", "B C H W", large_half=_LARGE, along="B H W"),
            *_RUNNING,
            *_CHANNELS,
            plain("momentum", 0.125),
            _EPS,
        ),
        out=("B C H W", "C", "C"),
        reference=_batch_norm_running,
        flops="8 * B * C * H * W",
        reduction="B * H * W",
        without=("constant",),
        no_backward="its gradient is that of batch_norm2d",
        relations=(
            permutation("batch_permutation", {0: 0}, {0: 0}),
            permutation("channel_permutation", {0: 1} | dict.fromkeys(range(1, 5), 0), {0: 1, 1: 0, 2: 0}),
        ),
        **{**_PIXELS, "level": 1, "source": "aten"},
    ),
)
