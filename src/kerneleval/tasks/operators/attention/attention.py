"""Scaled dot-product attention: softmax(q k^T * scale) v over the last two dims.

L queries, S keys, head width D. At least four keys: over one key, or over equal keys, the gradients of q and k are zero
by cancellation, and what a kernel returns is rounding noise. For the same reason constant inputs are left out, and
there is more than one batch element or head for the expanded layout to repeat. Inputs of large scale are left out
because the softmax then selects one key by differences below the rounding of the scores, those of small scale because
float16 gradients of q and k are then subnormal. Outliers are given forward only: where one key has all the weight,
gradients of q and k are differences of equal terms. Scores that are large alike (``common``) overflow where no maximum
is taken off, and leave the weights of the keys apart, backward too. NaN is left out because PyTorch's own fused kernels
lose it: on CPUs they give zeros for a query whose scores are NaN, in half types; and a hidden key's weight of 0 times
NaN is NaN only where its block is not skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import LAYOUTS, Dim
from kerneleval.tasks.define import data, fixed, mask, operator, plain, size
from kerneleval.tasks.relations import homogeneity, permutation, resampling

_LEAST = 4
_LOG2_E = math.log2(math.e)
_SCORES = 2**28
"""Most scores of one case: the fp64 oracle holds all of them (2 GiB)."""
_SCALE = plain("scale", formula="D ** (-0.5)")
_WITHOUT = ("constant", "large_scale", "small_scale")


SCORES_NEAR = "sqrt(128 / sqrt(D))"
"""Queries and keys about this number have scores about 128, where exp overflows in fp32, which differ by a few; of
queries about its negative, all scores are far below zero."""
SINKS_BELOW = -128.0
"""Sinks about this number are as large as those far below zero: a maximum that begins at 0 leaves nothing of them."""
OF_QUERIES: Any = {"common": SCORES_NEAR, "common_signs": True}
"""How queries are drawn under ``common``, as arguments of ``data``."""


def _width() -> Dim:
    return fixed("D", low=16, high=128, multiple_of=16)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


def _grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)


def _masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=scale)


def _scores(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(scores, those of keys that are not seen at minus infinity; the values, once for each query head)."""
    repeats = q.shape[1] // k.shape[1] if k.shape[1] else 1
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = q @ k.transpose(-2, -1) * scale
    return scores if seen is None else scores.masked_fill(~seen, float("-inf")), v


def _eager(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen: torch.Tensor | None = None
) -> torch.Tensor:
    """As without fused kernels: queries and keys scaled, each by the root, scores and weights in the type, the softmax
    between in fp32.
    """
    scores, v = _scores(q * scale**0.5, k * scale**0.5, v, 1.0, seen)
    return torch.softmax(scores, -1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype) @ v


def _late(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen: torch.Tensor | None = None
) -> torch.Tensor:
    """Weights that are rounded to the type before they are normalised, after the second product: the sum has a gradient
    of its own, which takes the weights' off only as far as both are rounded.
    """
    scores, v = _scores(q, k, v, scale, seen)
    wide = scores.to(torch.promote_types(q.dtype, torch.float32))
    weights = torch.exp(wide - wide.detach().amax(-1, keepdim=True))
    return (weights.to(q.dtype) @ v / weights.sum(-1, keepdim=True)).to(q.dtype)


class _Recompute(torch.autograd.Function):
    """Weights made again from the logarithm of each row's sum, as fused kernels do that keep no scores: it is as large
    as the scores and rounded as they are, and the scores of the backward, where keys are scaled before the product,
    are rounded otherwise than those of the forward (Dao, FlashAttention-2, 2023, algorithm 2).
    """

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen: torch.Tensor | None
    ) -> torch.Tensor:
        scores = _at_once(q, k, scale * _LOG2_E, seen)
        top = scores.amax(-1, keepdim=True)
        weights = torch.exp2(scores - top)
        total = weights.sum(-1, keepdim=True)
        out = (weights.to(q.dtype) @ v / total).to(q.dtype)
        ctx.save_for_backward(q, k, v, out, top + total.log2(), seen)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, logs, seen = ctx.saved_tensors
        kind = q.dtype
        weights = torch.exp2(_at_once(q, (k * (ctx.scale * _LOG2_E)).to(kind), 1.0, seen) - logs)
        own = (grad * out).sum(-1, keepdim=True, dtype=logs.dtype)
        scores = (weights * ((grad @ v.transpose(-2, -1)).to(logs.dtype) - own)).to(kind)
        dq, dk = scores @ k * ctx.scale, scores.transpose(-2, -1) @ q * ctx.scale
        return dq, dk, weights.to(kind).transpose(-2, -1) @ grad, None, None


def _at_once(q: torch.Tensor, k: torch.Tensor, scale: float, seen: torch.Tensor | None) -> torch.Tensor:
    """Scores in fp32 at least."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).transpose(-2, -1) * scale
    return scores if seen is None else scores.masked_fill(~seen, float("-inf"))


def _recomputed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen: torch.Tensor | None = None
) -> torch.Tensor:
    """See :class:`_Recompute`."""
    repeats = q.shape[1] // k.shape[1] if k.shape[1] else 1
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    out: torch.Tensor = _Recompute.apply(q, k, v, scale, seen)  # type: ignore[no-untyped-call]
    return out


_UNFUSED = (_recomputed, _late, _eager)


def _causally(attention: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        return attention(q, k, v, scale, seen)

    return causal


def _under_mask(attention: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda q, k, v, mask, scale: attention(q, k, v, scale, mask[:, None])


def _flops(heads: Any) -> Any:
    """Two products of 2 L S D each, and five operations a score: scale, maximum, difference, exponential, sum."""
    return f"B * ({heads}) * L * S * (4 * D + 5)"


_BATCHES = (
    permutation("batch_permutation", {0: 0, 1: 0, 2: 0}, {0: 0}),
    permutation("head_permutation", {0: 1, 1: 1, 2: 1}, {0: 1}),
    resampling("batch_resampling", {0: 0, 1: 0, 2: 0}, {0: 0}),
    homogeneity({2: -2.0}, {0: -2.0}),
)
# PyTorch's fused kernels on CUDA want rows that are aligned to 16 bytes: they refuse ("no kernel found") or fault
# ("misaligned address") on slices with an odd pitch and on odd offsets. A task must pass with its own reference.
_ALIGNED = tuple(layout for layout in LAYOUTS if layout not in ("sliced", "offset"))

_QUERIES = permutation("query_permutation", {0: 2}, {0: 2})
_KEYS = permutation("key_order", {1: 2, 2: 2}, {})

TASKS = (
    operator(
        "attention",
        "attention",
        "out = softmax(q k^T * scale) v",
        dims=(fixed("B", high=4), fixed("H", low=2, high=16), size("L"), size("S", low=_LEAST), _width()),
        args=(
            data("q", "B H L D", **OF_QUERIES),
            data("k", "B H S D", common=SCORES_NEAR, apart="S"),
            data("v", "B H S D"),
            _SCALE,
        ),
        out=("B H L D",),
        reference=_attention,
        unfused=_UNFUSED,
        flops=_flops("H"),
        reduction="S + D",
        where=f"S >= {_LEAST} and B * H * L * D > 0 and (B * H * L * S <= {_SCORES})",
        without=_WITHOUT,
        forward_only=("outlier",),
        nonfinite=False,
        layouts=_ALIGNED,
        relations=(*_BATCHES, _QUERIES, _KEYS),
    ),
    operator(
        # D follows the shape category here, so that one sequence length still leaves square and rectangular cases.
        "causal_attention",
        "attention",
        "out = softmax(q k^T * scale + mask) v, where query i sees keys j <= i",
        dims=(fixed("B", high=4), fixed("H", low=2, high=16), size("L", low=_LEAST), size("D", high=128)),
        derive={"S": "L"},
        args=(
            data("q", "B H L D", **OF_QUERIES),
            data("k", "B H L D", common=SCORES_NEAR, apart="L"),
            data("v", "B H L D"),
            _SCALE,
        ),
        out=("B H L D",),
        reference=_causal,
        unfused=tuple(map(_causally, _UNFUSED)),
        # The L (L + 1) / 2 visible scores alone: a causal kernel need not touch the others.
        flops="B * H * (L * (L + 1) // 2) * (4 * D + 5)",
        reduction="L + D",
        where=f"L >= {_LEAST} and B * H * D > 0 and (B * H * L * L <= {_SCORES})",
        without=_WITHOUT,
        forward_only=("outlier",),
        nonfinite=False,
        layouts=_ALIGNED,
        relations=_BATCHES,
    ),
    operator(
        "grouped_query_attention",
        "attention",
        "out = softmax(q k^T * scale) v, where R query heads in a row share each of the G heads of k and v",
        dims=(
            fixed("B", high=4),
            fixed("G", high=8),
            fixed("R", low=2, high=8),
            size("L"),
            size("S", low=_LEAST),
            _width(),
        ),
        derive={"heads": "G * R"},
        args=(
            data("q", "B heads L D", **OF_QUERIES),
            data("k", "B G S D", common=SCORES_NEAR, apart="S"),
            data("v", "B G S D"),
            _SCALE,
        ),
        out=("B heads L D",),
        reference=_grouped,
        unfused=_UNFUSED,
        flops=_flops("heads"),
        reduction="S + D",
        gathered="R * L",
        where=f"S >= {_LEAST} and B * heads * L * D > 0 and (B * heads * L * S <= {_SCORES})",
        without=_WITHOUT,
        forward_only=("outlier",),
        nonfinite=False,
        layouts=tuple(layout for layout in _ALIGNED if layout != "expanded"),  # one group of one batch is usual here
        relations=(_BATCHES[0], *_BATCHES[2:], _QUERIES, _KEYS),
    ),
    operator(
        "masked_attention",
        "attention",
        "out = softmax(q k^T * scale) v over the keys that mask[b, l] allows; every query sees at least one key",
        dims=(fixed("B", high=4), fixed("H", low=2, high=16), size("L"), size("S", low=_LEAST), _width()),
        args=(
            data("q", "B H L D", **OF_QUERIES),
            data("k", "B H S D", common=SCORES_NEAR, apart="S"),
            data("v", "B H S D"),
            mask("mask", "B L S"),
            _SCALE,
        ),
        out=("B H L D",),
        reference=_masked,
        unfused=tuple(map(_under_mask, _UNFUSED)),
        flops=_flops("H"),
        reduction="S + D",
        where=f"S >= {_LEAST} and B * H * L * D > 0 and (B * H * L * S <= {_SCORES})",
        without=_WITHOUT,
        forward_only=("outlier",),
        nonfinite=False,
        layouts=_ALIGNED,
        relations=(
            permutation("batch_permutation", {0: 0, 1: 0, 2: 0, 3: 0}, {0: 0}),
            resampling("batch_resampling", {0: 0, 1: 0, 2: 0, 3: 0}, {0: 0}),
            *_BATCHES[1::2],
            permutation("query_permutation", {0: 2, 3: 1}, {0: 2}),
            permutation("key_order", {1: 2, 2: 2, 3: 2}, {}),
        ),
    ),
)
