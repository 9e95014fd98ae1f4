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

_NEAR_ROW, _NEAR_PAIRS = 64, 1 << 20
"""Numbers in a row, and pairs of such, of which it is asked whether they are too near one another."""
_NEAR = (64, 8)
"""Pairs that are to be so near by chance."""
_FINE = 2.0**-20
"""Unit roundoff of types whose numbers are fine enough for that; integers are spread over what they stand for."""

_BINS = 64
_PER_BIN = 8
"""Least expected count of a bin of the chi-square test (Cochran's rule asks for 5)."""


def implausible(law: Law, output: torch.Tensor, args: Sequence[Any]) -> tuple[str, Evidence] | None:
    """What is wrong with an output that was drawn, in words and figures; None: nothing is.

    Tests, each with a probability of 1e-9 to fail where all is right: Kolmogorov-Smirnov, chi-square over 64 bins, mean
    and variance of all and of every block of 64 and of 1,024, the correlation with itself at any lag, and how many
    numbers of one row are too near one another, as where many of what could be drawn never is.
    """
    impossible, uniform = uniforms(law, output, args)
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
    ]
    if not output.is_floating_point() or unit_roundoff(output.dtype) <= _FINE:
        found.append(("nearness", _nearness(uniform, output.shape[-1] if n == output.numel() and output.ndim else n)))
    if n > longest:
        apart = 1 << math.ceil(math.log2(n / longest))
        found.append(("autocorrelation", _autocorrelation(uniform[::apart])))
    name, odds = min(found, key=lambda one: one[1])
    if odds >= _ODDS:
        return None
    evidence: Evidence = {"rule": "distribution", "test": name, "p_value": odds, "of": n}
    evidence |= {"mean": float(uniform.mean()), "variance": float(uniform.var()) if n > 1 else 0.0}
    return f"not drawn as the task says: {name} test, p = {odds:.2g} over {n} numbers", evidence


def dependent(law: Law, first: tuple[torch.Tensor, Sequence[Any]], second: tuple[torch.Tensor, Sequence[Any]]) -> str:
    """Whether outputs of two calls with unlike seeds depend on each other, in words; empty: they do not. Their
    correlation is looked at at every shift: a counter that starts at the seed gives the same numbers again, one place
    further.
    """
    one, other = (uniforms(law, output, args)[1][:_SORTED] for output, args in (first, second))
    n = min(one.numel(), other.numel())
    if n < _FEWEST:
        return ""
    one, other = ((t[:n] - 0.5) * math.sqrt(12) for t in (one, other))
    size = _padded(n)
    products = torch.fft.irfft(torch.fft.rfft(one, size) * torch.fft.rfft(other, size).conj(), size) / math.sqrt(n)
    most = float(products.abs().max())
    odds = _of_many(most, 2 * n)
    return f"numbers under two seeds hang on one another (p = {odds:.2g})" if odds < _ODDS else ""


def uniforms(law: Law, output: torch.Tensor, args: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """(which elements no draw could give, what the law makes of the others: flat, fp64, within [0, 1])."""
    generator = torch.Generator(device=output.device).manual_seed(secrets.randbits(63))

    def noise(like: torch.Tensor) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator, dtype=torch.float64, device=like.device)

    given = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    impossible, uniform = law(output, given, noise)
    return impossible, uniform.reshape(-1).double().clamp(0, 1)


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
    """Probability that as many pairs within rows of that width, or parts of them, are near one another (Poisson)."""
    from scipy import stats

    width = uniform.numel() if width < 2 else width
    size = min(width, _NEAR_ROW)
    rows = uniform.view(-1, width)[:, : width // size * size].reshape(-1, size)
    most = max(1, _NEAR_PAIRS // size**2)
    start = secrets.randbelow(max(1, len(rows) - most + 1))
    rows = rows[start : start + most]
    pairs = len(rows) * size * (size - 1) // 2
    apart = (rows.unsqueeze(2) - rows.unsqueeze(1)).abs()
    odds = 1.0
    for wanted in _NEAR:
        near = min(wanted / (2 * pairs), 1 / _NEAR_ROW)
        count = (int(torch.count_nonzero(apart < near)) - rows.numel()) // 2
        odds = min(odds, float(stats.poisson.sf(count - 1, pairs * near * (2 - near))))
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


def _autocorrelation(uniform: torch.Tensor) -> float:
    """Over all lags but 0, by the Fourier transform of the numbers, padded so that no lag wraps round."""
    n, size = uniform.numel(), _padded(uniform.numel())
    centred = (uniform - 0.5) * math.sqrt(12)
    power = torch.fft.rfft(centred, size).abs().square()
    products = torch.fft.irfft(power, size)[1:n] / math.sqrt(n)
    return _of_many(float(products.abs().max()), n)


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
