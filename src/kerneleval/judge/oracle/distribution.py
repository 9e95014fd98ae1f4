"""Outputs of operators that draw: judged by distribution, because no two generators draw the same numbers.

A task's law turns outputs into numbers that must be uniform on [0, 1) and independent of one another: the probability
integral transform, randomised where the outputs are discrete (Czado, Gneiting and Held, Biometrics 65, 2009). What no
draw could give is found element by element.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.judge.oracle.expectation import opened, unit_roundoff
from kerneleval.records import Evidence, Law

_ODDS = 1e-9
"""Probability with which right numbers fail a test. A check of a candidate runs some thousand of them."""

_FEWEST = 16
"""With fewer numbers only whether each is possible is tested."""

_SORTED = 1 << 18
"""Most numbers for the tests that sort: a run of them from a secret place."""
_FOLDED = 1 << 16
"""The same for correlations of distances from 1/2: more would take as long again as all else."""

_TRANSFORMED = {"cpu": 1 << 20}
_TRANSFORMED_DEVICE = 1 << 24
"""The same for those that transform. The correlation at lags beyond that is looked at among as many that lie apart, by
a power of two, as large blocks that come again do."""

_RESOLVED = 0.5
"""Numbers of a type with unit roundoff u tell a shift of u from none where there are more than (this / u)^2: they may
be rounded, or cut, so that tests of all together look at no more (65,536 of bfloat16)."""

_BLOCKS = (64, 1024)
"""Numbers of which the mean and the variance are looked at block by block, over all of the output."""

_ASYMPTOTIC = 1000
"""From so many numbers on the limit of Kolmogorov's distribution is as good, and takes no quarter of a second."""

_NEAR_ROW, _NEAR_PAIRS, _NEAR_MOST = 1 << 12, 1 << 22, 1 << 16
"""Numbers in a row, pairs in rows, and numbers in all, of which it is asked whether they are too near one another."""
_NEAR = (1024, 256, 64, 8)
"""Neighbours that are to be so near by chance. With few, what is never drawn shows where it comes in fine pieces; with
many, where draws are few."""
_NEAREST = 2.0**-18
"""Distances smaller than this are not asked about: right numbers are multiples of one a little smaller."""
_FINE = 2.0**-20
"""Unit roundoff of types whose numbers are fine enough for that; integers are spread over what they stand for."""

_BINS = 64
_PER_BIN = 8
"""Least expected count of a bin of the chi-square test (Cochran's rule asks for 5)."""


def implausible(law: Law, output: torch.Tensor, args: Sequence[Any]) -> tuple[str, Evidence] | None:
    """What is wrong with an output that was drawn, in words and figures; None: nothing is.

    Tests, each with a probability of 1e-9 to fail where all is right: Kolmogorov-Smirnov, chi-square over 64 bins, mean
    and variance of all and of every block of 64 and of 1,024, the correlation at any lag of the numbers and of how far
    they are from 1/2, and how many numbers of one row are too near one another, as where many of what could be drawn
    never is; and whether another distribution that the law names explains them better.
    """
    impossible, uniform, *alternatives = _transformed(law, output, args)
    count = int(torch.count_nonzero(impossible))
    if count:
        flat = int(impossible.reshape(-1).int().argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(flat), output.shape)]
        got = opened(output).reshape(-1)[flat].item()
        text = f"element {place} is {got:.8g}, which cannot be drawn; {count} of {output.numel()} elements cannot"
        return text, {"rule": "possible", "worst_index": place, "got": got, "beyond": count, "of": output.numel()}
    n = uniform.numel()
    if n < _FEWEST:
        return None
    most = int(_RESOLVED / unit_roundoff(output.dtype)) ** 2 if output.is_floating_point() else n
    sample = _run(uniform, min(_SORTED, most))
    longest = _TRANSFORMED.get(output.device.type, _TRANSFORMED_DEVICE)
    found = [
        ("Kolmogorov-Smirnov", _distance(sample)),
        ("chi-square", _chi_square(sample)),
        *_moments(_run(uniform, most), most),
        *(found for size in _BLOCKS if size < n for found in _moments(uniform, size)),
        ("autocorrelation", _autocorrelation(_run(uniform, longest))),
        ("autocorrelation of distances from 1/2", _autocorrelation(_folded(_run(uniform, _FOLDED)))),
    ]
    if not output.is_floating_point() or unit_roundoff(output.dtype) <= _FINE:
        found.append(("nearness", _nearness(uniform, output.shape[-1] if n == output.numel() and output.ndim else n)))
    found.extend(("likelihood ratio", _of_alternatives(one)) for one in alternatives)
    if n > longest:
        apart = 1 << math.ceil(math.log2(n / longest))
        found.append(("autocorrelation", _autocorrelation(uniform[::apart])))
    name, odds = min(found, key=lambda one: -1.0 if math.isnan(one[1]) else one[1])
    if odds >= _ODDS:
        return None
    evidence: Evidence = {"rule": "distribution", "test": name, "p_value": odds, "of": n}
    evidence |= {"mean": float(uniform.mean()), "variance": float(uniform.var()) if n > 1 else 0.0}
    return f"not drawn as the task says: {name} test, p = {odds:.2g} over {n} numbers", evidence


def dependent(law: Law, first: tuple[torch.Tensor, Sequence[Any]], second: tuple[torch.Tensor, Sequence[Any]]) -> str:
    """Whether outputs of two calls with unlike seeds depend on each other, in words; empty: they do not. Their
    correlation, and that of how far they are from 1/2, is looked at at every shift: a counter that starts at the seed
    gives the same numbers again, one place further.
    """
    one, other = (uniforms(law, output, args)[1][:_SORTED] for output, args in (first, second))
    n = min(one.numel(), other.numel())
    if n < _FEWEST:
        return ""
    one, other = one[:n], other[:n]
    odds = min(_correlation(one, other), _correlation(_folded(one[:_FOLDED]), _folded(other[:_FOLDED])))
    return f"numbers under two seeds hang on one another (p = {odds:.2g})" if odds < _ODDS else ""


def one_cycle(outputs: Sequence[torch.Tensor]) -> str:
    """Whether permutations drawn under unlike seeds have together too few cycles, or too many, in words; empty: they
    have not, or are none. A shuffle that swaps each place with one before it, never with itself, makes a single cycle:
    of n elements one permutation in n is such.
    """
    n = outputs[0].numel()
    if n < _FEWEST or not all(_permutes(output) for output in outputs):
        return ""
    asked = outputs[: math.ceil(math.log(_ODDS, 1 / n))]  # so few tell
    count = sum(map(_cycles, asked))
    odds = _of_cycles(count, n, len(asked))
    return f"{len(asked)} permutations of {n} have {count} cycles together (p = {odds:.2g})" if odds < _ODDS else ""


def _permutes(output: torch.Tensor) -> bool:
    """Whether it has each of the places of its elements once."""
    if output.ndim != 1 or output.dtype != torch.int64:
        return False
    return torch.equal(output.sort().values, torch.arange(len(output), device=output.device))


def _cycles(permutation: torch.Tensor) -> int:
    """How many it has: elements that are the least of their own, found in steps that double."""
    following = permutation.int()  # int32 and index_select: a sixth of the time
    places = least = torch.arange(len(following), dtype=torch.int32, device=following.device)
    for _ in range(len(following).bit_length()):
        least = torch.minimum(least, least.index_select(0, following))
        following = following.index_select(0, following)
    return int(torch.count_nonzero(least == places))


def _of_cycles(count: int, n: int, permutations: int) -> float:
    """Bound on the probability of as few cycles, and of as many, by Chernoff. Of one permutation the mean of z^cycles
    is gamma(n + z) / (gamma(z) n!).
    """

    def bound(z: float) -> float:
        return permutations * (math.lgamma(n + z) - math.lgamma(z) - math.lgamma(n + 1)) - count * math.log(z)

    return math.exp(min(0.0, *(bound(2.0 ** (step / 4)) for step in range(-120, 81))))


def uniforms(law: Law, output: torch.Tensor, args: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """(which elements no draw could give, what the law makes of the others: flat, fp64, within [0, 1])."""
    impossible, uniform, *_ = _transformed(law, output, args)
    return impossible, uniform


def _transformed(law: Law, output: torch.Tensor, args: Sequence[Any]) -> list[torch.Tensor]:
    """The same, and the logarithms of likelihood ratios of the other distributions that the law names."""
    generator = torch.Generator(device=output.device).manual_seed(secrets.randbits(63))

    def noise(like: torch.Tensor) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator, dtype=torch.float64, device=like.device)

    given = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    impossible, uniform, *alternatives = law(output, given, noise)
    return [impossible, uniform.reshape(-1).double().clamp(0, 1), *alternatives]


def _of_alternatives(ratios: torch.Tensor) -> float:
    """Bound on the probability that any of these likelihood ratios is as large where the law is right: the mean of each
    is 1 there, so it is beyond r in one draw of r at most (Markov).
    """
    return min(1.0, len(ratios) * math.exp(-max(0.0, min(700.0, float(ratios.max())))))


def _distance(uniform: torch.Tensor) -> float:
    from scipy import stats  # a second of work, which tasks that draw nothing have no use for

    method = "exact" if uniform.numel() < _ASYMPTOTIC else "asymp"
    return float(stats.kstest(uniform.cpu().numpy(), "uniform", method=method).pvalue)


def _chi_square(uniform: torch.Tensor) -> float:
    from scipy import stats

    n = uniform.numel()
    bins = min(_BINS, n // _PER_BIN)
    if bins < 2:
        return 1.0
    counts = torch.histc(uniform.float(), bins, 0.0, 1.0).double().cpu().numpy()
    # the p-value of the tail above alone: too even is no fault of a permutation
    return float(stats.chi2.sf(((counts - n / bins) ** 2 / (n / bins)).sum(), bins - 1))


def _nearness(uniform: torch.Tensor, width: int) -> float:
    """Probability that as many neighbours, in order of size, within rows of that width, or parts of them, are near one
    another: of n numbers any two are no further apart than d with probability 1 - (1 - d)^n, and one such pair makes
    the others less likely.
    """
    from scipy import stats

    width = uniform.numel() if width < 2 else width
    size = min(width, _NEAR_ROW)
    rows = uniform.view(-1, width)[:, : width // size * size].reshape(-1, size)
    most = max(1, min(_NEAR_PAIRS // size**2 * 2, _NEAR_MOST // size))
    start = secrets.randbelow(max(1, len(rows) - most + 1))
    apart = rows[start : start + most].sort(1).values.diff(dim=1)
    odds = 1.0
    for wanted in _NEAR:
        near = max(min(wanted / (apart.numel() * size), 1 / size), _NEAREST)
        count = int(torch.count_nonzero(apart < near))
        odds = min(odds, float(stats.binom.sf(count - 1, apart.numel(), -math.expm1(size * math.log1p(-near)))))
    return odds


def _run(uniform: torch.Tensor, most: int) -> torch.Tensor:
    """So many of them at most, in a row from a secret place."""
    start = secrets.randbelow(max(1, uniform.numel() - most + 1))
    return uniform[start : start + most]


def _moments(uniform: torch.Tensor, size: int) -> list[tuple[str, float]]:
    """Mean and variance of each block of that size; the last one ends where the numbers do."""
    n = uniform.numel()
    size = min(size, n)
    blocks = torch.cat((uniform[: n // size * size].view(-1, size), uniform[-size:].view(1, size))) - 0.5
    what = "" if size == n else f" of {size} in a row"
    found = [(f"mean{what}", _of_many(float((blocks.mean(1) * math.sqrt(12 * size)).abs().max()), len(blocks)))]
    if size >= _BLOCKS[0]:  # of fewer, it is not near normal
        spread = (blocks.square().mean(1) - 1 / 12) * math.sqrt(180 * size)
        found.append((f"variance{what}", _of_many(float(spread.abs().max()), len(blocks))))
    return found


def _folded(uniform: torch.Tensor) -> torch.Tensor:
    """Twice how far they are from 1/2: uniform as well, and alike where numbers share their size but not their sign."""
    return (2 * uniform - 1).abs()


def _autocorrelation(uniform: torch.Tensor) -> float:
    """Correlation of the numbers with themselves."""
    return _correlation(uniform, uniform)


def _correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    """Over all shifts, by Fourier transforms padded so that none wraps round; of numbers with themselves but for 0."""
    n, size, alone = one.numel(), _padded(one.numel()), one is other
    first = torch.fft.rfft((one - 0.5) * math.sqrt(12), size)
    second = first if alone else torch.fft.rfft((other - 0.5) * math.sqrt(12), size)
    products = torch.fft.irfft(first * second.conj(), size) / math.sqrt(n)
    largest = float((products[1:n] if alone else products).abs().max())
    return _of_many(largest, n if alone else 2 * n)


def _padded(n: int) -> int:
    """A length for transforms in which no lag of n numbers wraps round, without a large prime factor: one in which
    there is such takes up to seven times as long.
    """
    from scipy import fft

    return int(fft.next_fast_len(2 * n, real=True))


def _of_many(largest: float, count: int) -> float:
    """Probability that the largest magnitude of so many standard normal numbers is as large (Bonferroni)."""
    if math.isnan(largest):
        return 0.0
    return min(1.0, math.erfc(largest / math.sqrt(2.0)) * max(1, count))
