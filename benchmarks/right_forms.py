"""Right answers by other algebra: for each built-in operator the formulas that good kernels use instead of PyTorch's.

A form takes the arguments of its task in the type in which it computes, and gives the outputs in it. Whether it gets
half types as they are (``step``: every intermediate is rounded, as eager model code does it) or widened to fp32, with
one rounding at the end, is said by the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

__all__ = ["FORMS", "STEPS"]

Tensor = torch.Tensor
Form = Callable[..., Any]

_SPLIT = 64
"""Terms summed in one go, as by a block of threads."""


# -- sums, products ---------------------------------------------------------------------------------------------------


def _split_sum(x: Tensor) -> Tensor:
    """Blocks first, then the blocks' sums, one after another."""
    parts = [part.sum(-1) for part in x.split(_SPLIT, -1)]
    return sum(parts[1:], parts[0]) if parts else x.sum(-1)


def _split_k(a: Tensor, b: Tensor) -> Tensor:
    """Partial products over parts of the contraction, added up in order."""
    total = a.new_zeros(()).expand(*a.shape[:-1], b.shape[-1])
    for start in range(0, a.shape[-1], _SPLIT):
        total = total + a[..., start : start + _SPLIT] @ b[..., start : start + _SPLIT, :]
    return total


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _split_k(x, weight.t()) + bias


# -- convolutions -----------------------------------------------------------------------------------------------------


def _unfolded2d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, *rest: int) -> Tensor:
    """Patches as columns, then one product for each group of channels."""
    groups = rest[1] if rest else 1
    batch, out, kernel = x.shape[0], weight.shape[0], weight.shape[-1]
    rows, columns = ((n + 2 * padding - kernel) // stride + 1 for n in x.shape[2:])
    patches = F.unfold(x, kernel, padding=padding, stride=stride).view(batch, groups, -1, rows * columns)
    made = weight.view(groups, out // groups, -1) @ patches
    return made.reshape(batch, out, rows, columns) + bias[:, None, None]


def _shifted1d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """One product for each place of the kernel."""
    kernel = weight.shape[-1]
    padded = F.pad(x, (padding, padding))
    length = (padded.shape[-1] - kernel) // stride + 1
    places = [padded[..., k : k + (length - 1) * stride + 1 : stride] for k in range(kernel)]
    terms = [weight[..., k] @ place for k, place in enumerate(places)]
    return sum(terms[1:], terms[0]) + bias[:, None]


def _shifted2d(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, *rest: int) -> Tensor:
    """Depthwise: one multiplication for each place of the kernel."""
    kernel = weight.shape[-1]
    padded = F.pad(x, (padding,) * 4)
    rows, columns = ((n - kernel) // stride + 1 for n in padded.shape[2:])
    total = bias[:, None, None]
    for i in range(kernel):
        for j in range(kernel):
            seen = padded[:, :, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
            total = total + seen * weight[:, 0, i, j, None, None]
    return total


def _folded(x: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int) -> Tensor:
    """Transposed: one product, whose columns are added where they land."""
    (channels, out, kernel), (rows, columns) = weight.shape[:3], x.shape[2:]
    made = weight.reshape(channels, -1).t() @ x.flatten(2)
    sizes = [(n - 1) * stride - 2 * padding + kernel for n in (rows, columns)]
    folded = F.fold(made, sizes, kernel, padding=padding, stride=stride)
    return folded.view(x.shape[0], out, *sizes) + bias[:, None, None]


# -- normalisations ---------------------------------------------------------------------------------------------------


def _normalised(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """Two passes: the mean, then the mean square of what is left."""
    left = x - x.mean(dims, keepdim=True)
    return left * torch.rsqrt(left.square().mean(dims, keepdim=True) + eps)


def _one_pass(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """Mean square less squared mean, as kernels have it that read their input once."""
    mean = x.mean(dims, keepdim=True)
    variance = (x.square().mean(dims, keepdim=True) - mean.square()).clamp_min(0)
    return (x - mean) / torch.sqrt(variance + eps)


def _group(normalised: Callable[..., Tensor]) -> Form:
    def group(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        made = normalised(x.reshape(x.shape[0], groups, -1), (2,), eps).view(x.shape)
        return made * weight[:, None] + bias[:, None]

    return group


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(_split_sum(x * x)[:, None] / x.shape[-1] + eps) * weight


def _add_rms(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = x + residual
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight, total


# -- exponentials -----------------------------------------------------------------------------------------------------


def _exp(x: Tensor) -> Tensor:
    """As GPUs have it: a power of two."""
    return torch.exp2(x * math.log2(math.e))


def _top(x: Tensor) -> Tensor:
    """Each row's maximum; 0 of a row that is minus infinity: what lies before or between it is no number else."""
    top = x.detach().amax(-1, keepdim=True)
    return top.masked_fill(top.isneginf(), 0.0)


def _logsumexp(x: Tensor) -> Tensor:
    top = _top(x)
    return torch.log(_split_sum(_exp(x - top))) + top[..., 0]


def _online_logsumexp(x: Tensor) -> Tensor:
    """One pass over the row: sums are scaled anew where the maximum grows."""
    top = x.new_full(x.shape[:-1], -math.inf)
    total = torch.zeros_like(top)
    for part in x.split(_SPLIT, -1):
        higher = torch.maximum(top, part.detach().amax(-1))
        least = higher.masked_fill(higher.isneginf(), 0.0)  # nothing but minus infinity so far
        total = total * torch.exp(top - least) + torch.exp(part - least[..., None]).sum(-1)
        top = higher
    return torch.log(total) + top


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return _online_logsumexp(logits) - logits.gather(-1, targets[:, None])[:, 0]


# -- attention --------------------------------------------------------------------------------------------------------


def _seen(name: str, q: Tensor, k: Tensor, rest: tuple[Any, ...]) -> tuple[Tensor | None, float]:
    """(which keys are seen, scale)."""
    if name == "causal_attention":
        return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(), rest[0]
    if name == "masked_attention":
        return rest[0][:, None], rest[1]
    return None, rest[0]


def _online_attention(name: str) -> Form:
    """FlashAttention's order: blocks of keys, sums and outputs scaled anew where a row's maximum grows."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        seen, scale = _seen(name, q, k, rest)
        groups = k.shape[1]
        queries = (q * (scale * math.log2(math.e))).unflatten(1, (groups, q.shape[1] // groups))
        top = q.new_full((*queries.shape[:-1], 1), float("-inf"))
        total, out = torch.zeros_like(top), q.new_zeros(*queries.shape[:-1], v.shape[-1])
        for start in range(0, k.shape[-2], _SPLIT):
            part = slice(start, start + _SPLIT)
            scores = queries @ k[:, :, None, part].transpose(-1, -2)
            if seen is not None:
                here = seen[..., part] if seen.ndim == 2 else seen[..., part][:, :, None]
                scores = scores.masked_fill(~here, float("-inf"))
            higher = torch.maximum(top, scores.detach().amax(-1, keepdim=True))
            finite = higher.masked_fill(higher == float("-inf"), 0.0)
            weights, old = torch.exp2(scores - finite), torch.exp2(top - finite)
            total = total * old + weights.sum(-1, keepdim=True)
            out, top = out * old + weights @ v[:, :, None, part], higher
        return (out / total).flatten(1, 2)

    return attention


def _plain_attention(name: str) -> Form:
    """Scores, softmax, product: three kernels."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        seen, scale = _seen(name, q, k, rest)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = (q * scale) @ k.transpose(-1, -2)
        if seen is not None:
            scores = scores.masked_fill(~seen, float("-inf"))
        return torch.softmax(scores, -1) @ v

    return attention


def _late_attention(name: str) -> Form:
    """Normalised after the second product; the exponentials in fp32, what is multiplied in the type."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        seen, scale = _seen(name, q, k, rest)
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2)).float() * scale
        if seen is not None:
            scores = scores.masked_fill(~seen, float("-inf"))
        weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
        return ((weights.to(q.dtype) @ v).float() / weights.sum(-1, keepdim=True)).to(q.dtype)

    return attention


_ATTENTIONS = ("attention", "causal_attention", "grouped_query_attention", "masked_attention")

FORMS: dict[str, tuple[Form, ...]] = {
    "add": (lambda x, y: x - -y,),
    "gelu": (
        lambda x: x * 0.5 * torch.erfc(x * -math.sqrt(0.5)),
        lambda x: x * torch.special.ndtr(x),
    ),
    "silu": (lambda x: x * torch.sigmoid(x), lambda x: 0.5 * x * (1 + torch.tanh(0.5 * x))),
    "exp": (_exp,),
    "sum": (_split_sum, lambda x: x.cumsum(-1)[:, -1] if x.shape[-1] else x.sum(-1)),
    "amax": (lambda x: -torch.amin(-x, -1),),
    "logsumexp": (_logsumexp, _online_logsumexp),
    "argmax": (lambda x: x.max(-1).indices,),
    "matmul": (_split_k, lambda a, b: (b.t() @ a.t()).t()),
    "batched_matmul": (_split_k,),
    "linear": (_linear,),
    "matvec": (lambda a, x: _split_sum(a * x),),
    "conv1d": (_shifted1d,),
    "conv2d": (_unfolded2d,),
    "depthwise_conv2d": (_unfolded2d, _shifted2d),
    "conv_transpose2d": (_folded,),
    "layer_norm": (
        lambda x, w, b, eps: _normalised(x, (1,), eps) * w + b,
        lambda x, w, b, eps: _one_pass(x, (1,), eps) * w + b,
    ),
    "rms_norm": (_rms,),
    "group_norm": (_group(_normalised), _group(_one_pass)),
    "batch_norm": (
        lambda x, w, b, eps: _normalised(x, (0, 2), eps) * w[:, None] + b[:, None],
        lambda x, w, b, eps: _one_pass(x, (0, 2), eps) * w[:, None] + b[:, None],
    ),
    **{name: (_online_attention(name), _plain_attention(name)) for name in _ATTENTIONS},
    "linear_bias_gelu": (lambda x, w, b: F.gelu(_linear(x, w, b)),),
    "add_rms_norm": (_add_rms,),
    "swiglu": (lambda g, u: g * torch.sigmoid(g) * u,),
    "softmax_cross_entropy": (_cross_entropy,),
}
"""By task: forms that compute in fp32 (in half types: widened, rounded once)."""

STEPS: dict[str, tuple[Form, ...]] = {
    "gelu": (lambda x: x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5))),),
    "silu": (lambda x: x * torch.sigmoid(x),),
    "swiglu": (lambda g, u: g * torch.sigmoid(g) * u,),
    "rms_norm": (lambda x, w, eps: _rms(x.float(), w.new_ones((), dtype=torch.float32), eps).to(x.dtype) * w,),
    "linear": (lambda x, w, b: x @ w.t() + b,),
    "linear_bias_gelu": (lambda x, w, b: F.gelu(x @ w.t() + b),),
    "softmax_cross_entropy": (lambda x, t: -torch.log_softmax(x, -1).gather(-1, t[:, None])[:, 0],),
    **{name: (_plain_attention(name), _late_attention(name)) for name in _ATTENTIONS},
}
"""By task: forms that keep intermediates in the half type, as model code does without fused kernels."""
