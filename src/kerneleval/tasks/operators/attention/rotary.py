"""Rotary position embeddings: pairs of features turned by an angle that the position gives.

Tables have the cosines of a position's angles and then its sines. Pairs are (i, i + half) unless stated.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain, Relation, Task
from kerneleval.tasks.define import data, fixed, gain, index, operator, plain, size
from kerneleval.tasks.relations import homogeneity, permutation, resampling

__all__ = ["TASKS", "turned"]

Tensor = torch.Tensor


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (i, i + half) of the last dim of x; cosines and sines are broadcast against half of it."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _turned_neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same of the pairs (2 i, 2 i + 1)."""
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)


def _angles(positions: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    """(T, 1, half) each: the same for all heads."""
    cos, sin = cos_sin[positions][:, None].chunk(2, -1)
    return cos, sin


def _rotary_embedding(positions: Tensor, query: Tensor, key: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = _angles(positions, cos_sin)
    return turned(query, cos, sin), turned(key, cos, sin)


def _rotary_embedding_interleaved(
    positions: Tensor, query: Tensor, key: Tensor, cos_sin: Tensor
) -> tuple[Tensor, Tensor]:
    cos, sin = _angles(positions, cos_sin)
    return _turned_neighbours(query, cos, sin), _turned_neighbours(key, cos, sin)


def _rotary_embedding_partial(positions: Tensor, query: Tensor, key: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = _angles(positions, cos_sin)
    width = cos_sin.shape[-1]
    q, k = (torch.cat((turned(x[..., :width], cos, sin), x[..., width:]), -1) for x in (query, key))
    return q, k


def _batched_rotary_embedding(positions: Tensor, offsets: Tensor, query: Tensor, cos_sin: Tensor) -> Tensor:
    return turned(query, *_angles(positions + offsets, cos_sin))


def _rotary_embedding_sections(positions: Tensor, query: Tensor, cos_sin: Tensor, sections: int) -> Tensor:
    pairs = cos_sin.shape[-1] // 2
    which = torch.arange(pairs, device=query.device) * sections // pairs  # the position by which a pair is turned
    rows = positions[which].t()[:, None]
    columns = torch.arange(pairs, device=query.device)
    return turned(query, cos_sin[rows, columns], cos_sin[rows, columns + pairs])


def _rotary_embedding_2d(x: Tensor, rows: Tensor, columns: Tensor, cos_sin: Tensor) -> Tensor:
    upper, lower = x.chunk(2, -1)
    return torch.cat((turned(upper, *_angles(rows, cos_sin)), turned(lower, *_angles(columns, cos_sin))), -1)


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _rotary_mul(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + _rotate_half(x) * sin


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return turned(x, cos[:, None], sin[:, None])


def _rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return _turned_neighbours(x, cos[:, None], sin[:, None])


def _fused_qk_norm_rope(
    positions: Tensor, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos_sin: Tensor, heads: int, eps: float
) -> Tensor:
    q, k, v = _parts(qkv, heads, q_weight.shape[0])
    cos, sin = _angles(positions, cos_sin)
    q = turned(F.rms_norm(q, q.shape[-1:], q_weight, eps), cos, sin)
    k = turned(F.rms_norm(k, k.shape[-1:], k_weight, eps), cos, sin)
    return torch.cat((q, k, v), 1).flatten(1)


def _fused_qkv_rope(
    positions: Tensor, qkv: Tensor, cos_sin: Tensor, heads: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = _parts(qkv, heads, width)
    cos, sin = _angles(positions, cos_sin)
    return turned(q, cos, sin), turned(k, cos, sin), v.clone(memory_format=torch.contiguous_format)


def _parts(qkv: Tensor, heads: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of (T, heads, width); there are as many keys as values."""
    every = qkv.unflatten(-1, (qkv.shape[-1] // width, width))
    shared = (every.shape[1] - heads) // 2
    q, k, v = every.split((heads, shared, shared), 1)
    return q, k, v


_HEADS = (size("T", high=4096), fixed("H", low=2), fixed("G", high=4), fixed("P2", low=4, high=64))
_POSITIONS = (size("P", low=8, high=4096),)
_WIDTHS: Any = {"D": "2 * P2"}
_PLACE = index("positions", "T", "P")
_QUERY, _KEY = data("query", "T H D"), data("key", "T G D")
_TABLE = data("cos_sin", "P D", differentiable=False)
_PACKED: Any = {
    "derive": {**_WIDTHS, "packed": "(H + 2 * G) * D"},
    "level": 2,
    "source": "vllm",
}


def _found(args: tuple[Arg, ...], outs: tuple[str, ...], scaling: bool) -> tuple[Relation, ...]:
    """Tokens, batch elements and heads may change places; the outputs are linear in what is turned."""
    found: list[Relation] = []
    for letter, name in (("T", "token"), ("B", "batch"), ("H", "head")):
        along = {i: a.shape.split().index(letter) for i, a in enumerate(args) if letter in a.shape.split()}
        outputs = {i: out.split().index(letter) for i, out in enumerate(outs) if letter in out.split()}
        if along:
            found.append(permutation(f"{name}_permutation", along, outputs))
            found.append(resampling(f"{name}_resampling", along, outputs))
    linear = {i: -2.0 for i, a in enumerate(args) if a.name in ("x", "query", "key", "qkv")}
    return (*found, homogeneity(linear, dict.fromkeys(range(len(outs)), -2.0))) if scaling else tuple(found)


def _rotary(
    name: str,
    summary: str,
    reference: Any,
    args: tuple[Arg, ...],
    *outs: str,
    plains: tuple[Plain, ...] = (),
    scaling: bool = True,
    category: str = "elementwise",
    **more: Any,
) -> Task:
    """A task that turns pairs of features; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {"dims": (*_HEADS, *_POSITIONS), "derive": _WIDTHS, "reduction": "2", **more}
    return operator(
        name,
        category,
        summary,
        args=(*args, *plains),
        out=outs,
        reference=reference,
        **{
            "flops": "3 * T * (H + G) * D",
            "empty": True,
            "where": "P * P2 * H * G > 0",
            "group": "Fusion",
            "level": 2,
            "source": "vllm",
            "relations": _found(args, outs, scaling),
            **settings,
        },
    )


_ONE: Any = {
    "dims": (_HEADS[0], _HEADS[1], _HEADS[3], *_POSITIONS),
    "flops": "3 * T * H * D",
    "where": "P * P2 * H > 0",
}
_SEQUENCES: Any = {
    "dims": (fixed("B", high=4), size("L", high=4096), fixed("H", low=2, high=16), fixed("P2", low=4, high=64)),
    "flops": "3 * B * L * H * D",
    "where": "P2 > 0",
    "gathered": "B * H",
    "source": "model",
}

TASKS = (
    _rotary(
        "rotary_embedding",
        "q1' = q1 cos - q2 sin, q2' = q2 cos + q1 sin for the halves of each head of query, and so of key; "
        "cos and sin are the halves of cos_sin[positions[t]]",
        _rotary_embedding,
        (_PLACE, _QUERY, _KEY, _TABLE),
        "T H D",
        "T G D",
    ),
    _rotary(
        "rotary_embedding_interleaved",
        "q1' = q1 cos - q2 sin, q2' = q2 cos + q1 sin for neighbours (2 i, 2 i + 1) of each head of query, and so of "
        "key; cos and sin are the halves of cos_sin[positions[t]]",
        _rotary_embedding_interleaved,
        (_PLACE, _QUERY, _KEY, _TABLE),
        "T H D",
        "T G D",
    ),
    _rotary(
        "rotary_embedding_partial",
        "out = query, key turned as in rotary_embedding in the first features of each head, as many as cos_sin is wide",
        _rotary_embedding_partial,
        (_PLACE, data("query", "T H whole"), data("key", "T G whole"), _TABLE),
        "T H whole",
        "T G whole",
        dims=(*_HEADS, fixed("E", high=64), *_POSITIONS),
        derive={**_WIDTHS, "whole": "D + E"},
    ),
    _rotary(
        "batched_rotary_embedding",
        "as rotary_embedding of one tensor: out = query turned by row positions[t] + offsets[t] of cos_sin, which has "
        "a part for each scaling of the angles",
        _batched_rotary_embedding,
        (_PLACE, index("offsets", "T", "P"), _QUERY, data("cos_sin", "twice D", differentiable=False)),
        "T H D",
        derive={**_WIDTHS, "twice": "2 * P"},
        **_ONE,
    ),
    _rotary(
        "rotary_embedding_sections",
        "out = query turned as in rotary_embedding, pair i of half by the angle of positions[i * sections // half, t]: "
        "time, height and width in videos",
        _rotary_embedding_sections,
        (index("positions", "S T", "P"), _QUERY, _TABLE),
        "T H D",
        plains=(plain("sections", formula="S"),),
        **{**_ONE, "dims": (*_ONE["dims"], fixed("S", low=2, high=4)), "where": "P * P2 * H * S > 0"},
    ),
    _rotary(
        "rotary_embedding_2d",
        "out = x, the first half of each head turned by row rows[t] of cos_sin and the other half by row columns[t]: "
        "patches of images",
        _rotary_embedding_2d,
        (data("x", "T H whole"), index("rows", "T", "P"), index("columns", "T", "P"), _TABLE),
        "T H whole",
        **{
            **_ONE,
            "derive": {**_WIDTHS, "whole": "2 * D"},
            "flops": "6 * T * H * D",
            "source": "model",
        },
    ),
    _rotary(
        "rope",
        "out1 = x1 cos[l] - x2 sin[l], out2 = x2 cos[l] + x1 sin[l] for the halves of each head",
        _rope,
        (data("x", "B L H D"), data("cos", "L P2"), data("sin", "L P2")),
        "B L H D",
        **_SEQUENCES,
    ),
    _rotary(
        "rope_interleaved",
        "out1 = x1 cos[l] - x2 sin[l], out2 = x2 cos[l] + x1 sin[l] for neighbours (2 i, 2 i + 1) of each head",
        _rope_interleaved,
        (data("x", "B L H D"), data("cos", "L P2"), data("sin", "L P2")),
        "B L H D",
        **_SEQUENCES,
    ),
    _rotary(
        "rotary_mul",
        "out = x * cos[l] + rotate_half(x) * sin[l], rotate_half(x) = (-x2, x1) for the halves of each head",
        _rotary_mul,
        (data("x", "B H L D"), data("cos", "L D"), data("sin", "L D")),
        "B H L D",
        **_SEQUENCES,
    ),
    _rotary(
        "rotate_half",
        "out = (-x2, x1) for the halves x1, x2 of each head",
        _rotate_half,
        (data("x", "B L H D"),),
        "B L H D",
        **{
            **_SEQUENCES,
            "flops": "B * L * H * P2",
            "gathered": None,
            "reduction": None,
            "exact": True,
            "nonfinite": True,
            "level": 1,
        },
    ),
    _rotary(
        "fused_qkv_rope",
        "out0, out1, out2 = query, key, value of the packed heads, the first two turned as in rotary_embedding",
        _fused_qkv_rope,
        (_PLACE, data("qkv", "T packed"), _TABLE),
        "T H D",
        "T G D",
        "T G D",
        plains=(plain("heads", formula="H"), plain("width", formula="D")),
        **_PACKED,
    ),
    _rotary(
        "fused_qk_norm_rope",
        "out = qkv with each head of query and key normalised, q / sqrt(mean(q^2) + eps) * weight, and then turned as "
        "in rotary_embedding",
        _fused_qk_norm_rope,
        (
            _PLACE,
            data("qkv", "T packed", large_half=1024.0),
            gain("q_weight", "D"),
            gain("k_weight", "D"),
            _TABLE,
        ),
        "T packed",
        plains=(plain("heads", formula="H"), plain("eps", 1e-6)),
        scaling=False,
        category="normalization",
        **{
            **_PACKED,
            "reduction": "D + 2",
            "gathered": "T * H",
            "flops": "7 * T * (H + G) * D",
        },
    ),
)
