"""Operators that draw, judged by distribution: one seed a call, the numbers of a generator of one's own.

Equal seeds must give equal outputs, and unlike seeds independent ones. Which numbers a seed gives is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kerneleval.records import Arg, Law, Plain, Task
from kerneleval.tasks.define import ROWS, data, index, operator, plain, size

Tensor = torch.Tensor
Noise = Callable[[Tensor], Tensor]

_HALF_UNIT = 2.0**-7
"""Twice the roundoff of bfloat16: what a kept element of a dropout may be off, whatever its type."""

_NEARLY_NORMAL, _ELSE_RIGHT = (10.0, 30.0, 100.0), 1e-3
"""Rates from which on kernels draw rounded normal numbers instead, and for which part of the numbers they do not: else
a single number that no normal distribution gives would hide all others."""


def _generator(seed: Tensor) -> torch.Generator:
    return torch.Generator(device=seed.device).manual_seed(int(seed[0]))


def _rand(like: Tensor, seed: Tensor, rows: int, columns: int) -> Tensor:
    return torch.rand(rows, columns, generator=_generator(seed), dtype=like.dtype, device=like.device)


def _randn(like: Tensor, seed: Tensor, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=_generator(seed), dtype=like.dtype, device=like.device)


def _randint(low: Tensor, seed: Tensor, rows: int, columns: int, count: int) -> Tensor:
    shape = (rows, columns)
    return low + torch.randint(count, shape, generator=_generator(seed), dtype=low.dtype, device=low.device)


def _uniform(low: Tensor, high: Tensor, seed: Tensor, columns: int) -> Tensor:
    unit = torch.rand(len(low), columns, generator=_generator(seed), dtype=low.dtype, device=low.device)
    return low[:, None] + (high - low)[:, None] * unit


def _normal(mean: Tensor, std: Tensor, seed: Tensor) -> Tensor:
    return torch.normal(mean, std, generator=_generator(seed))


def _bernoulli(p: Tensor, seed: Tensor) -> Tensor:
    return torch.bernoulli(p, generator=_generator(seed))


def _poisson(rate: Tensor, seed: Tensor) -> Tensor:
    return torch.poisson(rate, generator=_generator(seed))


def _exponential(like: Tensor, seed: Tensor, rate: float) -> Tensor:
    return torch.empty_like(like).exponential_(rate, generator=_generator(seed))


def _geometric(like: Tensor, seed: Tensor, p: float) -> Tensor:
    return torch.empty_like(like).geometric_(p, generator=_generator(seed))


def _cauchy(like: Tensor, seed: Tensor, median: float, sigma: float) -> Tensor:
    return torch.empty_like(like).cauchy_(median, sigma, generator=_generator(seed))


def _log_normal(like: Tensor, seed: Tensor, mean: float, std: float) -> Tensor:
    return torch.empty_like(like).log_normal_(mean, std, generator=_generator(seed))


def _gumbel(like: Tensor, seed: Tensor) -> Tensor:
    return -torch.empty_like(like).exponential_(generator=_generator(seed)).log()


def _dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    unit = torch.rand(x.shape, generator=_generator(seed), dtype=torch.float32, device=x.device)
    return torch.where(unit >= p, x / (1 - p), 0.0)


def _rrelu_with_noise(x: Tensor, seed: Tensor, lower: float, upper: float) -> Tensor:
    unit = torch.rand(x.shape, generator=_generator(seed), dtype=x.dtype, device=x.device)
    return torch.where(x >= 0, x, x * (lower + (upper - lower) * unit))


def _randperm(like: Tensor, seed: Tensor, count: int) -> Tensor:
    return torch.randperm(count, generator=_generator(seed), device=like.device)


def _multinomial(weights: Tensor, seed: Tensor, samples: int) -> Tensor:
    return torch.multinomial(weights, samples, replacement=True, generator=_generator(seed))


# --------------------------------------------------------------------------------------------------------------------
# Laws: (which elements no draw could give, uniform numbers)
# --------------------------------------------------------------------------------------------------------------------


def _spread(output: Tensor, noise: Noise) -> Tensor:
    """In fp64, anywhere between the numbers of the type next to it."""
    size = output.double().abs().clamp_min(torch.finfo(output.dtype).tiny)
    step = torch.finfo(output.dtype).eps * torch.exp2(torch.floor(torch.log2(size)))
    return output.double() + step * (noise(output) - 0.5)


def _is_no(output: Tensor, least: Any, most: Any) -> Tensor:
    wrong: Tensor = ~((output >= least) & (output <= most))
    return wrong


def _is_no_count(output: Tensor, least: int) -> Tensor:
    return _is_no(output, least, torch.finfo(output.dtype).max) | (output != output.floor())


def _rand_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return ~((output >= 0) & (output < 1)), _spread(output, noise)


def _randn_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return ~output.isfinite(), torch.special.ndtr(_spread(output, noise))


def _randint_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    low, count = args[0], args[-1]
    return _is_no(output, low, low + count - 1), (output - low + noise(output)) / count


def _uniform_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    low, high = args[0][:, None], args[1][:, None]
    unit = ((_spread(output, noise) - low) / (high - low)).abs()  # what is spread beyond an end is folded back
    return _is_no(output, torch.minimum(low, high), torch.maximum(low, high)), 1 - (1 - unit).abs()


def _normal_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return ~output.isfinite(), torch.special.ndtr((_spread(output, noise) - args[0]) / args[1])


def _flags_law(flag: Tensor, p: Any, noise: Noise) -> Tensor:
    """Flags that are set with probability p."""
    unit = noise(flag)
    return torch.where(flag, 1 - p * unit, (1 - p) * unit)


def _bernoulli_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return (output != 0) & (output != 1), _flags_law(output == 1, args[0], noise)


def _poisson_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
    rate = args[0]
    whole = output.double().clamp_min(0)
    upto = torch.special.gammaincc(whole + 1, rate)
    chance = torch.xlogy(whole, rate) - rate - torch.lgamma(whole + 1)
    alternatives = _of_rounded_normal(rate, whole, chance)
    return _is_no_count(output, 0), upto - torch.exp(chance) * noise(output), alternatives


def _of_rounded_normal(rate: Tensor, count: Tensor, chance: Tensor) -> Tensor:
    """Logarithms of likelihood ratios: rounded normal numbers from each of some rates on, against right counts."""
    some = (rate >= _NEARLY_NORMAL[0]) & (count < math.inf)
    rate, count, chance = rate[some], count[some], chance[some]
    step, off = rate.rsqrt(), (count - rate).abs() * rate.rsqrt()
    # in the upper tail, where the difference of two probabilities keeps its digits; below 1/2 all are 0
    far = torch.where(count == 0, 0.0, torch.special.ndtr(-off - step / 2))
    ratio = (torch.special.ndtr(step / 2 - off) - far).log() - chance
    ratio = torch.logaddexp(ratio + math.log1p(-_ELSE_RIGHT), torch.full_like(ratio, math.log(_ELSE_RIGHT)))
    return torch.stack([ratio[rate >= least].sum() for least in _NEARLY_NORMAL])


def _exponential_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return _is_no(output, 0, torch.finfo(output.dtype).max), -torch.expm1(-args[2] * _spread(output, noise))


def _geometric_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    p = args[2]
    below = 1 - (1 - p) ** (output.double().clamp_min(1) - 1)
    return _is_no_count(output, 1), below + p * (1 - below) * noise(output)


def _cauchy_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return output.isnan(), torch.atan((output - args[2]) / args[3]) / math.pi + 0.5


def _log_normal_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return _is_no(output, 0, torch.finfo(output.dtype).max), torch.special.ndtr(
        (_spread(output, noise).log() - args[2]) / args[3]
    )


def _gumbel_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    return output.isnan(), torch.exp(-torch.exp(-_spread(output, noise)))


def _dropout_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    x, p = args[0], args[2]
    kept, scaled = output != 0, x / (1 - p)
    limits = torch.finfo(output.dtype)
    denormal = limits.smallest_normal * limits.eps  # the step between numbers too small for their full precision
    wrong = kept & ~((output - scaled).abs() <= _HALF_UNIT * scaled.abs() + denormal)
    return wrong, _flags_law(kept, 1 - p, noise)[x != 0]


def _rrelu_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    x, _, lower, upper = args
    negative = x < 0
    slope = torch.where(negative, output / torch.where(negative, x, -1.0), lower)
    unit = (slope - lower) / (upper - lower)
    room = 2.0**-10 / (upper - lower)
    return torch.where(negative, _is_no(unit, -room, 1 + room), output != x), unit[negative]


def _randperm_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    n = output.numel()
    inside = (output >= 0) & (output < n)
    seen = torch.zeros(n, dtype=torch.bool, device=output.device)
    seen[output[inside].long()] = True
    everywhere = torch.full_like(inside, not bool(seen.all()))
    return everywhere, (output + noise(output)) / n


def _multinomial_law(output: Tensor, args: Sequence[Any], noise: Noise) -> tuple[Tensor, Tensor]:
    weights = args[0]
    upto = (weights / weights.sum(1, keepdim=True)).cumsum(1)
    chosen = output.clamp(0, weights.shape[1] - 1)
    top = upto.gather(1, chosen)
    bottom = torch.where(chosen > 0, upto.gather(1, (chosen - 1).clamp_min(0)), 0.0)
    return _is_no(output, 0, weights.shape[1] - 1), bottom + (top - bottom) * noise(output)


# --------------------------------------------------------------------------------------------------------------------
# Tasks
# --------------------------------------------------------------------------------------------------------------------

_SEED = index("seed", "one", high="2 ** 31")
_LIKE = data("like", "one")
_SIZES = (plain("rows", formula="M"), plain("columns", formula="N"))


def _drawn(
    name: str, summary: str, reference: Any, law: Law, args: tuple[Arg | Plain, ...], out: str = "M N", **more: Any
) -> Task:
    """A task of the family; ``more`` as ``define.operator`` takes it."""
    return operator(
        name,
        "elementwise",
        summary,
        args=args,
        out=(out,),
        reference=reference,
        law=law,
        **{
            "dims": ROWS,
            "derive": {"one": 1},
            "flops": "10 * M * N",
            "without": ("outlier", "large_scale", "small_scale", "constant", "zeros"),
            "nonfinite": False,
            "group": "Random",
            "complexity": 2,
            "no_backward": "what is drawn has no gradient",
            **more,
        },
    )


_DROPPED = "the mask is the candidate's own; dropout by a given mask has its gradient"
_FULL = data("like", "M N")
_SAMPLES = "max(16, 8192 // max(1, M))"
"""Indices of each row: of few rows so many that categories which are never drawn show."""

TASKS = (
    _drawn("rand", "out = numbers uniform on [0, 1)", _rand, _rand_law, (_LIKE, _SEED, *_SIZES)),
    _drawn("randn", "out = numbers of N(0, 1)", _randn, _randn_law, (_LIKE, _SEED, *_SIZES)),
    _drawn(
        "randint",
        "out = whole numbers in [low, low + count), all as likely",
        _randint,
        _randint_law,
        (index("low", "one", high="100"), _SEED, *_SIZES, plain("count", 1000, among=(3, 100, 30000))),
        "M N: int64",
        dtypes=("int64",),
    ),
    _drawn(
        "uniform",
        "out[m] = numbers uniform between low[m] and high[m]",
        _uniform,
        _uniform_law,
        (data("low", "M"), data("high", "M", values="above_one"), _SEED, _SIZES[1]),
        dtypes=("float32",),
    ),
    _drawn(
        "normal",
        "out = numbers of N(mean, std^2), element by element",
        _normal,
        _normal_law,
        (data("mean", "M N"), data("std", "M N", values="positive"), _SEED),
    ),
    _drawn(
        "bernoulli",
        "out = 1 with probability p, else 0",
        _bernoulli,
        _bernoulli_law,
        (data("p", "M N", values="uniform"), _SEED),
    ),
    _drawn(
        "poisson",
        "out = counts of a Poisson distribution of that rate",
        _poisson,
        _poisson_law,
        (data("rate", "M N", values="rates"), _SEED),
    ),
    _drawn(
        "exponential",
        "out = numbers of density rate * exp(-rate * x)",
        _exponential,
        _exponential_law,
        (_FULL, _SEED, plain("rate", 1.5)),
    ),
    _drawn(
        "geometric",
        "out = k >= 1 with probability p (1 - p)^(k - 1)",
        _geometric,
        _geometric_law,
        (_FULL, _SEED, plain("p", 0.25)),
    ),
    _drawn(
        "cauchy",
        "out = numbers of density sigma / (pi ((x - median)^2 + sigma^2))",
        _cauchy,
        _cauchy_law,
        (_FULL, _SEED, plain("median", 0.5), plain("sigma", 2.0)),
        dtypes=("float32",),
    ),
    _drawn(
        "log_normal",
        "out = exp of numbers of N(mean, std^2)",
        _log_normal,
        _log_normal_law,
        (_FULL, _SEED, plain("mean", 0.25), plain("std", 0.5)),
    ),
    _drawn("gumbel", "out = -log(-log(u)), u uniform on (0, 1)", _gumbel, _gumbel_law, (_FULL, _SEED)),
    _drawn(
        "dropout",
        "out = x / (1 - p) with probability 1 - p, else 0",
        _dropout,
        _dropout_law,
        (data("x", "M N"), _SEED, plain("p", 0.3)),
        group="Activation",
        no_backward=_DROPPED,
    ),
    _drawn(
        "rrelu_with_noise",
        "out = x where x >= 0, else a * x, a uniform on [lower, upper]",
        _rrelu_with_noise,
        _rrelu_law,
        (data("x", "M N"), _SEED, plain("lower", 0.125), plain("upper", 0.5)),
        dtypes=("float32",),
        group="Activation",
        no_backward="the slopes are the candidate's own; rrelu_with_noise_backward has its gradient",
    ),
    _drawn(
        "randperm",
        "out = a permutation of 0 .. count - 1, all as likely",
        _randperm,
        _randperm_law,
        (_LIKE, _SEED, plain("count", formula="M * N")),
        "count: int64",
        derive={"one": 1, "count": "M * N"},
        dtypes=("float32",),
    ),
    _drawn(
        "multinomial",
        "out[m] = indices drawn with replacement, n with probability weights[m, n] / sum weights[m]",
        _multinomial,
        _multinomial_law,
        (data("weights", "M N", values="positive"), _SEED, plain("samples", formula=_SAMPLES)),
        "M samples: int64",
        dims=(size("M"), size("N", low=4)),
        derive={"one": 1, "samples": _SAMPLES},
        rows=("ordered",),
        dtypes=("float32",),
    ),
)
