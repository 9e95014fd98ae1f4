"""Attention without a softmax: a state of each head, keys by values, that every step changes and every query reads.

Everything is computed in fp32 at least. States are zero before the first step where none is given. Recurrences get no
NaN: kernels take several steps at once by masked products, in which 0 times the NaN of a later step is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Task
from kerneleval.tasks.define import MOST_STEPS, data, fixed, plain, size
from kerneleval.tasks.operators.attention.state_space import LINEAR, MOST_STATES, SLOW_GATE, SLOW_LOG, stepwise
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import permutation

Tensor = torch.Tensor


def _recurrent(step: Callable[..., tuple[Tensor, Tensor]], state: Tensor, *inputs: Tensor) -> Tensor:
    """(B, H, L, E): what ``step(state, the inputs at l) -> (state, output)`` gives for each l of (B, H, L, ...)."""
    outs = []
    for at in zip(*(x.unbind(2) for x in inputs), strict=True):
        state, out = step(state, *at)
        outs.append(out)
    return torch.stack(outs, 2)


def _empty_state(k: Tensor, v: Tensor) -> Tensor:
    """(B, H, D, E)."""
    return wide(v).new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])


def _read(q: Tensor, state: Tensor) -> Tensor:
    return (q[..., None] * state).sum(2)


def _gated_step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    state = keep[..., None] * state + k[..., None] * v[:, :, None]
    return state, _read(q, state)


def _gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    keep = torch.sigmoid(wide(gate))
    return _recurrent(_gated_step, _empty_state(k, v), wide(q), wide(k), wide(v), keep).to(q.dtype)


def _bonus_step(state: Tensor, r: Tensor, k: Tensor, v: Tensor, keep: Tensor, bonus: Tensor) -> tuple[Tensor, Tensor]:
    new = k[..., None] * v[:, :, None]
    return keep[..., None] * state + new, _read(r, state + bonus[..., None] * new)


# Chunks take differences of the running sums of exp(decay): where some of these are thousands, no digits are left.
def _rwkv6(r: Tensor, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    keep = torch.exp(-torch.exp(wide(decay)))
    every = wide(bonus)[:, None].expand(*k.shape)
    return _recurrent(_bonus_step, _empty_state(k, v), wide(r), wide(k), wide(v), keep, every).to(r.dtype)


def _delta_step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    state = keep[..., None, None] * state
    state = state + k[..., None] * (beta[..., None] * (v - _read(k, state)))[:, :, None]
    return state, _read(q, state)


def _gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor) -> Tensor:
    q, k = (F.normalize(wide(x), dim=-1, eps=1e-6) for x in (q, k))
    beta, keep = torch.sigmoid(wide(beta)), torch.sigmoid(wide(gate))
    return _recurrent(_delta_step, _empty_state(k, v), q, k, wide(v), beta, keep).to(v.dtype)


def _delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    q, k = (F.normalize(wide(x), dim=-1, eps=1e-6) for x in (q, k))
    beta = torch.sigmoid(wide(beta))
    return _recurrent(_delta_step, _empty_state(k, v), q, k, wide(v), beta, torch.ones_like(beta)).to(v.dtype)


def _linear_attention_decode(state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    keep = torch.exp(-wide(decay))[None, :, None].expand(*k.shape)
    new, out = _gated_step(wide(state), wide(q), wide(k), wide(v), keep)
    return out.to(q.dtype), new.to(q.dtype)


def _linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = F.elu(wide(q)) + 1, F.elu(wide(k)) + 1
    out = q @ (k.mT @ wide(v)) / (q @ k.sum(-2)[..., None])
    return out.to(v.dtype)


def _causal_linear_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return ((wide(q) @ wide(k).mT * scale).tril() @ wide(v)).to(q.dtype)


def _retention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    heads, length = q.shape[1:3]
    slow = torch.log1p(-torch.exp2(-5.0 - torch.arange(heads, device=q.device, dtype=wide(q).dtype)))
    place = torch.arange(length, device=q.device)
    behind = place[:, None] - place
    weights = torch.exp(slow[:, None, None] * behind).masked_fill(behind < 0, 0)
    return ((wide(q) @ wide(k).mT * (scale * weights)) @ wide(v)).to(q.dtype)


_HEADS = (
    fixed("B", high=2),
    fixed("H", low=2),
    size("L", low=2, high=512, long=MOST_STEPS),
    fixed("D", low=4, high=32, multiple_of=4),
)
_FORGETS = -87.0
"""A gate that forgets all: the inverse of a chunk's decay is infinite in fp32 there, and the decay itself a number."""
_VALUES = fixed("E", low=4, high=32, multiple_of=4)
_QKV = (data("q", "B H L D"), data("k", "B H L D", fan_in="D"), data("v", "B H L E", along="L"))


def _heads(name: str, summary: str, reference: Callable[..., Any], *further: Any, each: int, **more: Any) -> Task:
    """One that takes q, k, v and more of each head, and holds a state of D by E; ``each``: operations for an element of
    a state.
    """
    settings: dict[str, Any] = {
        "dims": (*_HEADS, _VALUES),
        "flops": f"{each} * B * H * L * D * E",
        "reduction": "L + D",
        "where": f"B * H * L * D * E > 0 and B * H * L * D * E <= {MOST_STATES}",
        **more,
    }
    return stepwise(name, summary, reference, (*settings.pop("over", _QKV), *further), "B H L E", **settings)


TASKS = (
    _heads(
        "gated_linear_attention",
        "h[l] = diag(sigmoid(gate[l])) h[l - 1] + k[l] v[l]^T, out[l] = q[l] h[l]",
        _gated_linear_attention,
        data("gate", "B H L D", along="L", slow=SLOW_GATE, reset=_FORGETS, common=LINEAR),
        each=6,
        rows=("long_memory",),
        nonfinite=False,
    ),
    _heads(
        "rwkv6_wkv",
        "out[l] = r[l] (h[l - 1] + diag(bonus[h]) k[l] v[l]^T), h[l] = diag(exp(-exp(decay[l]))) h[l - 1] + "
        "k[l] v[l]^T",
        _rwkv6,
        data("decay", "B H L D", values="symmetric", slow=SLOW_LOG),
        data("bonus", "H D"),
        rows=("long_memory",),
        over=(data("r", "B H L D"), *_QKV[1:]),
        each=8,
        # two steps do not depend on the decay
        dims=(*_HEADS[:2], size("L", low=4, high=512, long=MOST_STEPS), _HEADS[3], _VALUES),
        gathered="B * L",
        nonfinite=False,
    ),
    _heads(
        "delta_rule",
        "h[l] = h[l - 1] + sigmoid(beta[l]) k[l] (v[l] - k[l] h[l - 1])^T, out[l] = q[l] h[l], q and k divided by "
        "their norms",
        _delta_rule,
        data("beta", "B H L", common=LINEAR, common_signs=True),
        over=(data("q", "B H L D"), data("k", "B H L D"), _QKV[2]),
        each=7,
        nonfinite=False,
    ),
    _heads(
        "gated_delta_rule",
        "h = sigmoid(gate[l]) h[l - 1], h[l] = h + sigmoid(beta[l]) k[l] (v[l] - k[l] h)^T, out[l] = q[l] h[l], q and "
        "k divided by their norms",
        _gated_delta_rule,
        data("beta", "B H L", common=LINEAR, common_signs=True),
        data("gate", "B H L", along="L", slow=SLOW_GATE, reset=_FORGETS, common=LINEAR),
        rows=("long_memory",),
        over=(data("q", "B H L D"), data("k", "B H L D"), _QKV[2]),
        each=8,
        nonfinite=False,
    ),
    stepwise(
        "linear_attention_decode",
        "out1 = exp(-decay[h]) state + k v^T, out0 = q out1: one step",
        _linear_attention_decode,
        (
            data("state", "B H D E"),
            data("q", "B H D", fan_in="D"),
            data("k", "B H D"),
            data("v", "B H E"),
            data("decay", "H", values="positive"),
        ),
        "B H E",
        "B H D E",
        dims=(size("B", high=512), fixed("H", low=2, high=32), size("D", high=256), fixed("E", low=4, high=128)),
        flops="6 * B * H * D * E",
        reduction="D",
        gathered="B * D * E",
        where="B * H * D * E > 0",
        source="vllm",
        complexity=2,
    ),
    _heads(
        "linear_attention",
        "out = f(q) (f(k)^T v) / (f(q) sum_l f(k[l])), f(x) = elu(x) + 1",
        _linear_attention,
        each=4,
        flops="B * H * L * (4 * D * E + 7 * D + E)",
        dims=(*_HEADS[:2], size("L", low=4, high=4096), fixed("D", low=4, high=128, multiple_of=4), _VALUES),
        where="B * H * L * D * E > 0",
        complexity=3,
    ),
    _heads(
        "causal_linear_attention",
        "out[l] = sum_{i <= l} scale * (q[l] . k[i]) v[i]",
        _causal_linear_attention,
        plain("scale", formula="max(1, L) ** (-0.5)"),
        each=1,
        dims=(*_HEADS[:2], size("L", low=4, high=2048), fixed("D", low=4, high=128, multiple_of=4), _VALUES),
        flops="2 * B * H * L * L * (D + E + 1)",
        where=f"B * H * L * D * E > 0 and B * H * L * L <= {MOST_STATES}",
        nonfinite=False,
        complexity=3,
    ),
    _heads(
        "retention",
        "out[l] = sum_{i <= l} scale * g ** (l - i) * (q[l] . k[i]) v[i], g = 1 - 2 ** (-5 - h) of head h",
        _retention,
        plain("scale", formula="max(1, L) ** (-0.5)"),
        each=1,
        dims=(*_HEADS[:2], size("L", low=4, high=2048), fixed("D", low=4, high=128, multiple_of=4), _VALUES),
        flops="2 * B * H * L * L * (D + E + 1)",
        where=f"B * H * L * D * E > 0 and B * H * L * L <= {MOST_STATES}",
        nonfinite=False,
        complexity=3,
        relations=(permutation("batch_permutation", {0: 0, 1: 0, 2: 0}, {0: 0}),),
    ),
)
