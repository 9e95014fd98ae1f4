"""From logits to tokens: penalties, cuts of the distribution, verification of drafts. Rows are sequences of a batch.

What is drawn comes as an argument, so that the token follows. Which tokens a cut keeps is given as flags: it hangs on
sums, of which the last digit may turn a token that stands on the edge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Relation, Task
from kerneleval.tasks.define import (
    FAR_BELOW,
    LONG_ROWS,
    MOST_NAMED,
    ROWS,
    data,
    fixed,
    flags,
    index,
    operator,
    plain,
    size,
    whole,
)
from kerneleval.tasks.operators.movement.movement import moved
from kerneleval.tasks.operators.reduction.scan import wide
from kerneleval.tasks.relations import homogeneity, permutation, resampling, shift

Tensor = torch.Tensor
_OUT = float("-inf")


def _apply_repetition_penalties(logits: Tensor, prompt: Tensor, output: Tensor, penalty: Tensor) -> Tensor:
    by = torch.where(prompt | output, penalty[:, None], 1)
    return torch.where(logits > 0, logits / by, logits * by)


def _apply_count_penalties(logits: Tensor, counts: Tensor, frequency: Tensor, presence: Tensor) -> Tensor:
    return logits - frequency[:, None] * counts - presence[:, None] * (counts > 0)


def _apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    return logits / temperature[:, None]


def _apply_logit_bias(logits: Tensor, tokens: Tensor, bias: Tensor) -> Tensor:
    return logits + logits.new_zeros(logits.shape[-1]).index_add(0, tokens, bias)


def _apply_token_bitmask(logits: Tensor, words: Tensor) -> Tensor:
    number = torch.arange(logits.shape[-1], device=logits.device)
    allowed = (words[:, number // 32] >> (number % 32)) & 1
    return logits.masked_fill(allowed == 0, _OUT)


def _forbid_tokens(logits: Tensor, tokens: Tensor, length: Tensor, least: int) -> Tensor:
    fill = torch.zeros_like(logits, dtype=torch.bool).scatter(1, tokens, (length < least)[:, None].expand_as(tokens))
    return logits.masked_fill(fill, _OUT)


def _top_k_mask(logits: Tensor, k: Tensor) -> Tensor:
    least = torch.sort(logits, -1, descending=True).values.gather(-1, k[:, None] - 1)
    return logits.masked_fill(logits < least, _OUT)


def _top_p_keep(logits: Tensor, p: Tensor) -> Tensor:
    ordered, order = torch.sort(wide(logits), dim=-1, descending=True, stable=True)
    shares = torch.softmax(ordered, -1)
    kept = shares.cumsum(-1) - shares < wide(p)[:, None]
    return torch.zeros_like(kept).scatter(-1, order, kept)


def _min_p_keep(logits: Tensor, p: Tensor) -> Tensor:
    shares = torch.softmax(wide(logits), -1)
    return shares >= wide(p)[:, None] * shares.amax(-1, keepdim=True)


def _top_n_sigma_keep(logits: Tensor, n: float) -> Tensor:
    wider = wide(logits)
    return wider >= wider.amax(-1, keepdim=True) - n * wider.std(-1, correction=0, keepdim=True)


def _epsilon_keep(logits: Tensor, epsilon: float) -> Tensor:
    return torch.softmax(wide(logits), -1) >= epsilon


def _sample_by_race(probabilities: Tensor, noise: Tensor) -> Tensor:
    return torch.argmax(wide(probabilities) / wide(noise), -1)


def _token_logprobs(logits: Tensor, token: Tensor) -> Tensor:
    chosen = wide(logits.gather(-1, token[:, None]))
    return (chosen - torch.logsumexp(wide(logits), -1, keepdim=True)).squeeze(-1).to(logits.dtype)


def _token_ranks(logits: Tensor, token: Tensor) -> Tensor:
    return (logits > logits.gather(-1, token[:, None])).sum(-1) + 1


def _greedy_verification(draft: Tensor, target: Tensor) -> Tensor:
    right = F.pad((draft == target[:, :-1]).cumprod(-1), (1, 0), value=1)
    return target.masked_fill(right == 0, -1)


def _accepted(draft: Tensor, target: Tensor, uniform: Tensor) -> Tensor:
    return (wide(uniform) * wide(draft) <= wide(target)).cumprod(-1).sum(-1)


def _residual_distribution(draft: Tensor, target: Tensor) -> Tensor:
    rest = F.relu(target - draft)
    return rest / rest.sum(-1, keepdim=True).clamp_min(torch.finfo(rest.dtype).tiny)


def _eagle_next_tokens(tokens: Tensor, sampled: Tensor, ends: Tensor) -> Tensor:
    return tokens.roll(-1).index_copy(0, ends.cumsum(0) - 1, sampled)


def _beam_search_step(scores: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    total = (wide(scores)[..., None] + wide(logprobs)).flatten(1)
    best = torch.argsort(total, dim=-1, descending=True, stable=True)[:, : scores.shape[1]].contiguous()
    words = logprobs.shape[-1]
    return total.gather(-1, best).to(scores.dtype), best // words, best % words


_LOGITS = data("logits", "M N", nonfinite="masked")
_SHARES = replace(_LOGITS, common=FAR_BELOW)
_EVEN = replace(_SHARES, even=True)
_SAMPLING = "what is sampled has no gradient"
_TOKENS: Any = {"source": "vllm", "no_backward": _SAMPLING, "group": "Fusion", "level": 2}


def _rows(args: tuple[Any, ...], outputs: int) -> Relation:
    """Sequences may be drawn anew."""
    along = {i: a.shape.split().index("M") for i, a in enumerate(args) if isinstance(a, Arg) and "M" in a.shape.split()}
    return resampling("row_resampling", along, dict.fromkeys(range(outputs), 0))


def _logits(
    name: str,
    summary: str,
    reference: Any,
    args: tuple[Any, ...],
    *out: str,
    each: int = 1,
    relations: tuple[Relation, ...] = (),
    **more: Any,
) -> Task:
    """A task over rows of logits; ``more`` as ``define.operator`` takes it."""
    settings: dict[str, Any] = {"dims": ROWS, "empty": True, "nonfinite": False, **_TOKENS, **more}
    return operator(
        name,
        "elementwise" if "reduction" not in settings else "reduction",
        summary,
        args=args,
        out=out or ("M N",),
        reference=reference,
        flops=f"{each} * M * N",
        relations=(_rows(args, len(out) or 1), *relations),
        **settings,
    )


_ROW: Any = {"reduction": "N", "where": "N > 0", "complexity": 2}
_SINGLE: Any = {"dtypes": ("float32", "float64")}  # of half types many numbers are equal, and few rows may be wrong
_KEPT = ("M N: bool",)
_MOVED = (shift("shift_invariance", 0, moves_output=False),)
_COLUMNS = permutation("token_permutation", {0: 1}, {0: 1})

TASKS = (
    _logits(
        "apply_repetition_penalties",
        "out = logits / penalty[m] where positive, else logits * penalty[m], of tokens with a flag in prompt or "
        "output; out = logits for others",
        _apply_repetition_penalties,
        (_LOGITS, flags("prompt", "M N"), flags("output", "M N"), data("penalty", "M", values="above_one")),
        each=3,
        relations=(permutation("token_permutation", {0: 1, 1: 1, 2: 1}, {0: 1}),),
    ),
    _logits(
        "apply_count_penalties",
        "out = logits - frequency[m] * counts - presence[m] * (counts > 0)",
        _apply_count_penalties,
        (_LOGITS, whole("counts", "M N", 0, 4, dtype="int64", wide=9), data("frequency", "M"), data("presence", "M")),
        each=5,
        relations=(permutation("token_permutation", {0: 1, 1: 1}, {0: 1}),),
    ),
    _logits(
        "apply_temperature",
        "out = logits / temperature[m]",
        _apply_temperature,
        (_LOGITS, data("temperature", "M", values="positive")),
        relations=(_COLUMNS, homogeneity({0: -2.0}, {0: -2.0})),
        without=("small_scale",),  # quotients by them overflow
    ),
    _logits(
        "apply_logit_bias",
        "out = logits + the sum of bias[k] over all k with tokens[k] = n",
        _apply_logit_bias,
        (_LOGITS, index("tokens", "K", "N", summed=True), data("bias", "K")),
        dims=(*ROWS, fixed("K", low=4, high=64)),
        where="N >= K > 0",
        relations=(permutation("order", {1: 0, 2: 0}, {}),),
    ),
    _logits(
        "apply_token_bitmask",
        "out = logits where bit n mod 32 of words[m, n // 32] is set, else minus infinity",
        _apply_token_bitmask,
        (_LOGITS, whole("words", "M words", -(2**31), 2**31 - 1, dtype="int32")),
        derive={"words": "-(-N // 32)"},
        where="N > 0",
        each=3,
        exact=True,
        nonfinite=True,
    ),
    _logits(
        "forbid_tokens",
        "out[m, tokens[m, k]] = minus infinity for all k where length[m] < least, else logits: no end too early",
        _forbid_tokens,
        (_LOGITS, index("tokens", "M K", "N"), index("length", "M", "8"), plain("least", 5, among=(1, 3, 4, 7))),
        dims=(size("M", low=4), size("N", low=2), fixed("K")),
        where="N > 1",
        exact=True,
        nonfinite=True,
    ),
    _logits(
        "top_k_mask",
        "out = logits where no less than the k[m]-th largest of row m, else minus infinity",
        _top_k_mask,
        (_LOGITS, index("k", "M", "N + 1", low=1)),
        each=12,
        exact=True,
        rows=("ordered",),
        extreme="rows",
        where="N > 1",
        dims=(size("M"), size("N", low=4, long=MOST_NAMED)),
        complexity=2,
        relations=(_COLUMNS, homogeneity({0: 2.0}, {0: 2.0})),
    ),
    _logits(
        "top_p_keep",
        "out = whether the tokens before it, in the order of softmax(logits[m]), largest first, have less than p[m] "
        "together; equal ones keep their order",
        _top_p_keep,
        (_EVEN, data("p", "M", values="variance")),
        *_KEPT,
        each=18,
        rows=("ordered",),
        relations=_MOVED,
        **_ROW,
        **_SINGLE,
    ),
    _logits(
        "min_p_keep",
        "out = whether s >= p[m] * max(s), s = softmax(logits[m])",
        _min_p_keep,
        (_EVEN, data("p", "M", fan_in="N", values="uniform")),  # of larger ones hardly any token is left
        *_KEPT,
        each=7,
        relations=(_COLUMNS, *_MOVED),
        **_ROW,
    ),
    _logits(
        "top_n_sigma_keep",
        "out = whether logits >= max(logits[m]) - n * the standard deviation (over N) of row m",
        _top_n_sigma_keep,
        (_SHARES, plain("n", 3.0)),
        *_KEPT,
        each=7,
        rows=("ordered", "far_mean"),
        extreme="rows",
        relations=(_COLUMNS, *_MOVED),
        **{**_ROW, "dims": (size("M"), size("N", low=4)), "empty": False},
    ),
    _logits(
        "epsilon_keep",
        "out = whether softmax(logits[m]) >= epsilon",
        _epsilon_keep,
        (_EVEN, plain("epsilon", formula="2 / 2 ** ceil(log2(N + 1))")),  # 1 / N would be equal shares, up to rounding
        *_KEPT,
        each=6,
        relations=(_COLUMNS, *_MOVED),
        without=("small_scale",),  # all shares are about 1 / N
        **_ROW,
        **_SINGLE,
    ),
    _logits(
        "sample_by_race",
        "out[m] = argmax_n probabilities[m, n] / noise[m, n], noise exponential: a random token; first of equal ones",
        _sample_by_race,
        (data("probabilities", "M N", values="nonnegative"), data("noise", "M N", values="positive")),
        "M: int64",
        each=2,
        rows=("ordered",),
        dims=LONG_ROWS,
        **_ROW,
    ),
    _logits(
        "token_logprobs",
        "out = log_softmax(logits[m])[token[m]]",
        _token_logprobs,
        (_SHARES, index("token", "M", "N")),
        "M",
        each=4,
        **{**_ROW, "where": "N > 1", "no_backward": "", "dims": (size("M"), size("N", low=4)), **_SINGLE},
    ),
    _logits(
        "token_ranks",
        "out = 1 + how many of logits[m] are larger than that of token[m]",
        _token_ranks,
        (_LOGITS, index("token", "M", "N")),
        "M: int64",
        exact=True,
        rows=("ordered",),
        where="N > 1",
        dims=(size("M"), size("N", low=4, long=MOST_NAMED)),
        relations=_MOVED,
    ),
    _logits(
        "residual_distribution",
        "out = r / sum(r[m]), r = max(0, target - draft); 0 where the sum is",
        _residual_distribution,
        (data("draft", "M N", values="uniform"), data("target", "M N", values="uniform")),
        each=4,
        relations=(permutation("token_permutation", {0: 1, 1: 1}, {0: 1}),),
        without=("outlier", "large_scale", "small_scale"),
        **_ROW,
    ),
    _logits(
        "speculative_acceptance",
        "out[m] = how many tokens are accepted, in a row from the first on, for which uniform * draft <= target",
        _accepted,
        (
            data("draft", "M K", values="uniform"),
            data("target", "M K", values="uniform"),
            data("uniform", "M K", values="uniform"),
        ),
        "M: int64",
        each=3,
        dims=(size("M"), size("K", low=2, high=64)),
        derive={"N": "K"},
        reduction="K",
        without=("outlier", "large_scale"),
    ),
    moved(
        "greedy_verification",
        "out[b, k] = target[b, k] while draft[b, i] = target[b, i] for all i < k, then -1: right tokens of a draft "
        "and one more",
        _greedy_verification,
        (whole("draft", "B K", 0, 3, wide=31), whole("target", "B more", 0, 3, wide=31)),
        "B more",
        dims=(size("B", low=8), fixed("K", low=2, high=16)),
        derive={"more": "K + 1"},
        where="K > 0",
        batch=True,
        each=3,
        dtypes=("int64", "int32"),
        **_TOKENS,
    ),
    moved(
        "next_draft_inputs",
        "out[t] = tokens[t + 1], but sampled[b] at the end of sequence b, whose lengths are given",
        _eagle_next_tokens,
        (
            whole("tokens", "T", 0, 50000, wide=31),
            whole("sampled", "B", 0, 50000, wide=31),
            index("lengths", "B", "C + 1", 1, lengths=True),
        ),
        "T",
        dims=(size("B", high=1024), fixed("C", low=2, high=16)),
        derive={"T": "B * C"},
        where="C > 0",
        dtypes=("int64", "int32"),
        **_TOKENS,
    ),
    operator(
        "beam_search_step",
        "reduction",
        "out0 = the W largest of scores[b, w] + logprobs[b, w, n], the largest first, out1 = their w, out2 = their n; "
        "the first of equal ones",
        dims=(size("B", high=256), fixed("W", low=2), size("N", low=4, long=MOST_NAMED)),
        args=(data("scores", "B W", nonfinite="masked"), data("logprobs", "B W N", along="W N", nonfinite="masked")),
        rows=("ordered",),
        out=("B W", "B W: int64", "B W: int64"),
        reference=_beam_search_step,
        flops="B * W * N * (1 + W)",
        reduction="2",
        where="W * N > 0",
        nonfinite=False,
        complexity=2,
        empty=True,
        relations=(resampling("batch_resampling", {0: 0, 1: 0}, {0: 0, 1: 0, 2: 0}),),
        **_TOKENS,
    ),
)
