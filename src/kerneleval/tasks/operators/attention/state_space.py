"""State spaces: states that decay and take up inputs, step by step, and what is read of them.

Everything is computed in fp32 at least. States are zero before the first step where none is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Task
from kerneleval.tasks.define import FAR_BELOW, MOST_STEPS, data, fixed, operator, plain, size, weight
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import permutation, resampling

__all__ = ["MOST_STATES", "SLOW_GATE", "SLOW_LOG", "SLOW_RATE", "TASKS", "stepwise"]

Tensor = torch.Tensor


def _scanned(decay: Tensor, taken: Tensor) -> Tensor:
    """h[l] = decay[l] * h[l - 1] + taken[l] along the last dim: of pairs of steps, then of the first step of each."""
    length, pairs = taken.shape[-1], taken.shape[-1] // 2
    if length < 2:
        return taken
    first, second, evens = decay[..., ::2], decay[..., 1::2], taken[..., ::2]
    odds = _scanned(second * first[..., :pairs], taken[..., 1::2] + second * evens[..., :pairs])
    evens = evens + first * F.pad(odds, (1, 0))[..., : length - pairs]
    return torch.stack((evens, F.pad(odds, (0, length % 2))), -1).flatten(-2)[..., :length]


def _selective_scan(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, skip: Tensor, z: Tensor, delta_bias: Tensor
) -> Tensor:
    step = F.softplus(wide(delta) + wide(delta_bias)[:, None])
    taken = (step * wide(u))[:, :, None] * wide(b)[:, None]
    states = _scanned(torch.exp(-step[:, :, None] * wide(decay)[:, :, None]), taken)
    out = (states * wide(c)[:, None]).sum(2) + wide(skip)[:, None] * wide(u)
    return (out * F.silu(wide(z))).to(u.dtype)


def _selective_state_update(
    state: Tensor, x: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, skip: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    step = F.softplus(wide(delta))
    kept = wide(state) * torch.exp(-step[..., None] * wide(decay))
    new = kept + (step * wide(x))[..., None] * wide(b)[:, None]
    out = (new * wide(c)[:, None]).sum(-1) + wide(skip) * wide(x)
    return (out * F.silu(wide(z))).to(x.dtype), new.to(x.dtype)


def _causal_conv1d_update(state: Tensor, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    window = torch.cat((state, x[..., None]), -1)
    found = (wide(window) * wide(weight)).sum(-1) + wide(bias)
    return F.silu(found).to(x.dtype), window[..., 1:].clone(memory_format=torch.contiguous_format)


def _between(logs: Tensor) -> Tensor:
    """exp(logs[j + 1] + ... + logs[i]) for i >= j, else 0, for all i and j: summed for each j by itself, because
    differences of long sums lose their digits.
    """
    length = logs.shape[-1]
    below = torch.ones(length, length, dtype=torch.bool, device=logs.device).tril(-1)
    sums = logs[..., None].expand(*logs.shape, length).masked_fill(~below, 0).cumsum(-2)
    return torch.exp(sums.masked_fill(~(below | below.new_ones(length).diag()), float("-inf")))


def _mamba_chunk_scan(
    x: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Within chunks as a product with all weights, between them by their states (Dao and Gu, 2024, listing 1)."""
    step = F.softplus(wide(delta))
    logs = -(step * wide(decay)).transpose(1, 2).unflatten(-1, (-1, chunk))  # (B, H, chunks, chunk)
    inputs = (wide(x) * step[..., None]).transpose(1, 2).unflatten(2, (-1, chunk))  # (..., P)
    b, c = (wide(side).unflatten(1, (-1, chunk))[:, None] for side in (b, c))  # (B, 1, chunks, chunk, N)
    within = (c @ b.mT * _between(logs)) @ inputs
    sums = logs.cumsum(-1)
    states = (inputs * torch.exp(sums[..., -1:] - sums)[..., None]).mT @ b
    states = F.pad(states, (0, 0, 0, 0, 1, 0))
    states = (_between(F.pad(sums[..., -1], (1, 0))) @ states.flatten(3)).unflatten(-1, states.shape[3:])
    out = within + c @ states[:, :, :-1].mT * torch.exp(sums)[..., None]
    return out.flatten(2, 3).transpose(1, 2).to(x.dtype, copy=True).contiguous(), states[:, :, -1].to(x.dtype)


def _rwkv4(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    keys, values, keep = wide(k).mT, wide(v).mT, -torch.exp(wide(decay))[:, None]
    now = keys + wide(bonus)[:, None]
    steps = torch.arange(k.shape[1], device=k.device) * keep
    top = (torch.cummax(keys - steps, -1).values + steps).detach()  # about the largest exponent so far, the sums' unit
    before = F.pad(top[..., :-1], (1, 0), value=float("-inf"))
    most = torch.maximum(before, now).detach()
    taken = torch.exp(keys - top)
    total, weights = _scanned(torch.exp(before + keep - top), torch.stack((taken * values, taken)))
    old, own = torch.exp(before - most), torch.exp(now - most)
    total, weights = (old * F.pad(sums[..., :-1], (1, 0)) for sums in (total, weights))
    return ((total + own * values) / (weights + own)).mT.to(v.dtype, copy=True).contiguous()


def _rwkv4_by_steps(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """The gradient of the bonus is added up step by step, in its type."""
    wider, values, keep = wide(k), wide(v), -torch.exp(wide(decay))
    top = torch.full_like(wider[:, 0], float("-inf"))  # the largest exponent so far; sums are in units of its exp
    total = weights = torch.zeros_like(top)
    outs = []
    for key, value in zip(wider.unbind(1), values.unbind(1), strict=True):
        most = torch.maximum(top, key + bonus).detach()
        old, own = torch.exp(top - most), torch.exp(key + bonus - most)
        outs.append((old * total + own * value) / (old * weights + own))
        most = torch.maximum(top + keep, key).detach()
        old, own = torch.exp(top + keep - most), torch.exp(key - most)
        total, weights, top = old * total + own * value, old * weights + own, most
    return torch.stack(outs, 1).to(v.dtype)


def _token_shift(x: Tensor, mix: Tensor) -> Tensor:
    before = F.pad(x[:, :-1], (0, 0, 1, 0))
    return torch.lerp(x, before, mix.expand_as(x))


def _rg_lru(x: Tensor, take: Tensor, keep: Tensor, rate: Tensor) -> Tensor:
    logs = -8 * F.softplus(wide(rate)) * torch.sigmoid(wide(keep))
    taken = torch.sqrt(-torch.expm1(2 * logs)) * torch.sigmoid(wide(take)) * wide(x)
    return _scanned(torch.exp(logs).mT, taken.mT).mT.to(x.dtype, copy=True).contiguous()


SLOW_RATE, SLOW_LOG, SLOW_GATE = (2.0**-10, 0.0), (1.0, -7.0), (1.0, 7.0)
"""``Arg.slow`` of rates of decay, of their logarithms, and of what a sigmoid makes a decay of: some thousand steps are
remembered."""
LINEAR = 100.0
"""Beyond where kernels take a softplus for its argument, and where exp overflows in fp32; far below zero a softplus, a
sigmoid and a silu are next to nothing.
"""
MOST_STATES = 2**22
"""Most numbers of all states of one case: some references hold them all."""
_CHANNELS = (fixed("B", high=4), size("D", high=1024), size("L", low=2, high=1024), fixed("N", low=2, high=16))
_PRODUCTS = ("outlier", "large_scale", "small_scale")
"""Left out: products of so many of these lie beyond half types, or below."""


def _along(args: tuple[Any, ...], letter: str) -> dict[int, int]:
    return {i: a.shape.split().index(letter) for i, a in enumerate(args) if isinstance(a, Arg) and letter in a.shape}


def stepwise(
    name: str, summary: str, reference: Callable[..., Any], args: tuple[Any, ...], *out: str, **more: Any
) -> Task:
    """A task in which batch elements, and heads where there are such, are apart; ``more`` as ``define.operator`` takes
    it.
    """
    found = []
    for letter, kind in (("B", "batch"), ("H", "head")):
        if any(letter in shape for shape in out):
            outputs = {i: shape.split().index(letter) for i, shape in enumerate(out)}
            found.append(permutation(f"{kind}_permutation", _along(args, letter), outputs))
    found.append(resampling("batch_resampling", _along(args, "B"), dict.fromkeys(range(len(out)), 0)))
    return operator(
        name,
        "fused",
        summary,
        args=args,
        out=out,
        reference=reference,
        **{
            "where": "B * L * D > 0",
            "without": _PRODUCTS,
            "relations": tuple(found),
            "source": "model",
            "level": 2,
            "complexity": 4,
            **more,
        },
    )


TASKS = (
    stepwise(
        "selective_scan",
        "h[l] = exp(-s decay) h[l - 1] + s b[l] u[l], s = softplus(delta[l] + delta_bias); out[l] = (c[l] h[l] + "
        "skip u[l]) * silu(z[l])",
        _selective_scan,
        (
            data("u", "B D L", along="L"),
            data("delta", "B D L", common=LINEAR, common_signs=True),
            data("decay", "D N", values="positive", slow=SLOW_RATE),
            data("b", "B N L"),
            data("c", "B N L", fan_in="N"),
            data("skip", "D"),
            data("z", "B D L", common=LINEAR, common_signs=True),
            data("delta_bias", "D"),
        ),
        "B D L",
        dims=_CHANNELS,
        flops="B * D * L * (7 * N + 11)",
        reduction="L + N",
        gathered="max(B * L, D)",
        rows=("long_memory",),
        nonfinite=False,  # as those of linear.py
        where=f"B * D * N > 0 and L > 1 and (B * D * L * N <= {MOST_STATES})",
        source="vllm",
        level=3,
    ),
    stepwise(
        "selective_state_update",
        "out1 = exp(-s decay) state + s b x, s = softplus(delta); out0 = (c out1 + skip x) * silu(z): one step",
        _selective_state_update,
        (
            data("state", "B D N"),
            data("x", "B D"),
            data("delta", "B D", common=LINEAR, common_signs=True),
            data("decay", "D N", values="positive"),
            data("b", "B N"),
            data("c", "B N", fan_in="N"),
            data("skip", "D"),
            data("z", "B D", common=LINEAR, common_signs=True),
        ),
        "B D",
        "B D N",
        dims=(size("B", high=512), size("D", high=4096), fixed("N", low=2, high=64)),
        flops="B * D * (7 * N + 11)",
        reduction="N",
        where="B * D * N > 0",
        source="vllm",
        complexity=2,
    ),
    stepwise(
        "causal_conv1d_update",
        "out0 = silu(bias + sum_w weight[d, w] * window[b, d, w]), window = state and x behind it; out1 = window "
        "without its first",
        _causal_conv1d_update,
        (data("state", "B D past"), data("x", "B D"), weight("weight", "D W", fan_in="W"), weight("bias", "D")),
        "B D",
        "B D past",
        dims=(size("B", high=1024), size("D"), fixed("W", low=2, high=4)),
        derive={"past": "W - 1"},
        flops="B * D * (2 * W + 5)",
        reduction="W",
        where="B * D > 0 and W > 1",
        without=(),
        source="vllm",
        complexity=2,
    ),
    stepwise(
        "mamba_chunk_scan",
        "h[l] = exp(-s decay) h[l - 1] + s x[l] b[l]^T, s = softplus(delta[l]); out0[l] = h[l] c[l], out1 = the last "
        "h; L steps in chunks",
        _mamba_chunk_scan,
        (
            data("x", "B L H P", along="L"),
            data("delta", "B L H", common=LINEAR, common_signs=True),
            data("decay", "H", values="positive", slow=SLOW_RATE),
            data("b", "B L N"),
            data("c", "B L N", fan_in="N"),
            plain("chunk", formula="S"),
        ),
        "B L H P",
        "B H P N",
        dims=(
            fixed("B", high=2),
            size("K", high=64),
            fixed("S", low=4, high=64, multiple_of=4),
            size("H", low=2, high=32),
            fixed("P", low=4, high=32, multiple_of=4),
            fixed("N", low=4, high=32, multiple_of=4),
        ),
        derive={"L": "K * S"},
        flops=(
            "2 * B * K * S * S * (N + H * (P + 3)) + 4 * B * H * L * P * N + 2 * B * H * (K + "
            "1) ** 2 * P * N + 4 * B * L * H * P"
        ),
        reduction="L + N",
        gathered="H * (L + P)",
        rows=("long_memory",),
        nonfinite=False,  # as those of linear.py
        forward_only=("long_memory",),  # gradients through so many steps take seconds
        where=f"B * K * S * H * P * N > 0 and B * H * L * (S + K + P * N // S) <= {MOST_STATES}",
        source="vllm",
        level=3,
    ),
    stepwise(
        "rwkv4_wkv",
        "out[l] = the mean of v[i] for i < l and of v[l], weighted with exp(k[i] - (l - 1 - i) exp(decay)) and "
        "exp(k[l] + bonus)",
        _rwkv4,
        (
            data("k", "B L D", common=f"{FAR_BELOW}", common_signs=True),
            data("v", "B L D", along="L"),
            data("decay", "D", slow=SLOW_LOG),
            data("bonus", "D"),
        ),
        "B L D",
        dims=(size("B", high=32), size("L", low=2, high=512, long=MOST_STEPS), size("D", high=1024)),
        flops="16 * B * L * D",
        reduction="L",
        gathered="B * L",
        rows=("long_memory",),
        nonfinite=False,  # as those of linear.py
        forward_only=("long_memory",),  # as of mamba_chunk_scan
        unfused=(_rwkv4_by_steps,),
        in_type=False,
    ),
    stepwise(
        "token_shift",
        "out[l] = x[l] + mix * (x[l - 1] - x[l]), 0 before the first",
        _token_shift,
        (data("x", "B L D"), data("mix", "D", values="uniform")),
        "B L D",
        dims=(size("B", high=32), size("L", high=4096), size("D", high=2048)),
        flops="3 * B * L * D",
        reduction="2",
        gathered="B * L",
        without=("outlier", "large_scale"),
        complexity=1,
    ),
    stepwise(
        "rg_lru",
        "out[l] = a out[l - 1] + sqrt(1 - a^2) * sigmoid(take[l]) * x[l], a = exp(-8 softplus(rate) * "
        "sigmoid(keep[l]))",
        _rg_lru,
        (
            data("x", "B L D", along="L"),
            data("take", "B L D", common=LINEAR, common_signs=True),
            data("keep", "B L D"),
            data("rate", "D", slow=SLOW_LOG),
        ),
        "B L D",
        rows=("long_memory",),
        nonfinite=False,  # as those of linear.py
        dims=(size("B", high=32), size("L", high=2048), size("D", high=1024)),
        flops="20 * B * L * D",
        reduction="L",
        gathered="B * L",
    ),
)
