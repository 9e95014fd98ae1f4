"""Outputs against the expectation: passes of a few kernels over each output, one look at the figures.

The rule is in ``docs/correctness.md``; the bounds come from ``calibration.py``; a mismatch is explained by
``diagnosis.py``. The contract of operators that quantise (cosine, relative L1 and rms against exact arithmetic) stands
beside the bounds and replaces none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from kerneleval.judge.oracle import diagnosis, distribution
from kerneleval.judge.oracle.expectation import (
    NATIVE,
    POOLED,
    Bounds,
    Expectation,
    Expected,
    as_real,
    distance,
    is_eight_bit,
    opened,
    same,
    slack_of_count,
    steps,
    tiles,
    unit_roundoff,
)
from kerneleval.records import Evidence


def figures(outputs: torch.Tensor, plain: torch.Tensor) -> Evidence:
    """``cosine``, ``relative_l1`` (sum of the errors over the sum of the magnitudes) and ``relative_rmse`` of outputs
    against those without quantisation. Where nothing but zeros is right, the first is 1 and the others are infinite
    unless nothing but zeros came out.
    """
    got, want = (t.double().reshape(-1) for t in (outputs, plain))
    error = got - want
    norms = [torch.linalg.vector_norm(t) for t in (got, want, error)]
    sums = [t.abs().sum() for t in (error, want)]
    table = torch.stack([*norms, *sums, torch.dot(got, want)]).tolist()
    own, size, off, wrong, total, product = table
    if not size:
        away = 0.0 if not own else float("inf")
        return {"cosine": 1.0, "relative_l1": away, "relative_rmse": away}
    return {"cosine": product / (own * size) if own else 0.0, "relative_l1": wrong / total, "relative_rmse": off / size}


def keeps_to(contract: tuple[float, float, float], outputs: torch.Tensor, plain: torch.Tensor) -> str:
    """The first figure that breaks the contract (least cosine, largest relative L1 and rms errors), with its bound, for
    people; empty: none does. A figure that is no number breaks it.
    """
    found = figures(outputs, plain)
    if not found["cosine"] >= contract[0]:
        return f"cosine {found['cosine']:.3g}, at least {contract[0]:g}"
    for name, words, most in (("relative_l1", "relative L1 error", 1), ("relative_rmse", "relative rms error", 2)):
        if not found[name] <= contract[most]:
            return f"{words} {found[name]:.3g}, at most {contract[most]:g}"
    return ""


@dataclass(frozen=True, kw_only=True)
class Match:
    """Every output is right."""

    evidence: Evidence = field(default_factory=dict)
    """Of the floating output that came nearest to its bound: ``relative_rms_error``, ``native_relative_rms_error``,
    ``relative_rms_bound`` (all relative to the oracle's rms), ``max_abs_error``, ``native_max_abs_error``."""


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Some output is wrong."""

    reason: str
    """``wrong_count``, ``wrong_shape``, ``wrong_dtype`` or ``wrong_output``."""
    message: str
    evidence: Evidence = field(default_factory=dict)
    """Plain data: ``output`` (position), ``rule`` that was broken, ``diagnosis`` (``diagnosis.SLUGS``), figures as in
    :class:`Match`, the worst element (``worst_index``, ``expected``, ``got``, ``tolerance``), ``beyond`` and ``of``
    (elements), ``nan`` and ``inf`` (counts)."""


def compare(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Match | Mismatch:
    """Judge the outputs of one call.

    Args:
        outputs: in the order of the expectation, on its device; gradients in backward cases. Only read.

    Returns:
        Match, or Mismatch for the first output that is wrong.
    """
    found = _compared(outputs, expectation)
    if isinstance(found, Mismatch) and found.reason == "wrong_output" and expectation.wider is not None:
        return _compared(outputs, expectation.wider())
    return found


def _compared(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Match | Mismatch:
    if len(outputs) != len(expectation.outputs):
        text = f"{len(outputs)} outputs, expected {len(expectation.outputs)}"
        return Mismatch(reason="wrong_count", message=text, evidence={"got": len(outputs)})
    for index, (got, expected) in enumerate(zip(outputs, expectation.outputs, strict=True)):
        wrong = _form(index, got, expected)
        if wrong is not None:
            return wrong
    outputs = _asked(outputs, expectation)
    improbable = _improbable(outputs, expectation)
    if improbable is not None:
        return improbable
    evidence: Evidence = {}
    nearest = -1.0
    for index, figured in _found(outputs, expectation):
        expected = expectation.outputs[index]
        got, found, rule = _ruled(outputs[index], expected, figured)
        if rule:
            return _mismatch(index, got, expected, expectation, found, rule)
        if expected.contract is not None and expected.plain is not None:
            broken = keeps_to(expected.contract, as_real(got), expected.plain)
            if broken:
                evidence = {"output": index, "rule": "contract", **figures(as_real(got), expected.plain)}
                message = f"output {index} breaks the contract of its quantisation: {broken}"
                return Mismatch(reason="wrong_output", message=message, evidence=evidence)
        if expected.bounds is not None:
            share = found.rms / expected.bounds.rms if expected.bounds.rms else 0.0
            if share > nearest:
                nearest, evidence = share, found.evidence(expected.bounds)
                if expected.plain is not None:
                    evidence |= figures(as_real(got), expected.plain)
    return Match(evidence=evidence)


def matches(outputs: Sequence[torch.Tensor], expectation: Expectation, *, steps: bool = True) -> bool:
    """Whether outputs of the right form are right, as :func:`compare` has it, without a word about what is wrong.

    Args:
        steps: whether elements that may fall to the other side of a step are put right even where few can
            (``Expected.fine``). To find out whether a file's outputs have steps at all takes dozens of oracles.
    """
    return _matched(outputs, expectation, steps) or (
        expectation.wider is not None and _matched(outputs, expectation.wider(), steps)
    )


def _matched(outputs: Sequence[torch.Tensor], expectation: Expectation, steps: bool) -> bool:
    outputs = _asked(outputs, expectation)
    if _improbable(outputs, expectation) is not None:
        return False
    expected = [replace(one, undone=None) if one.fine and not steps else one for one in expectation.outputs]
    return all(not _ruled(outputs[index], expected[index], found)[2] for index, found in _found(outputs, expectation))


def _asked(outputs: Sequence[torch.Tensor], expectation: Expectation) -> list[torch.Tensor]:
    """The outputs, the native ones in their place where nothing is asked."""
    unasked = [expected.unasked(got) for got, expected in zip(outputs, expectation.outputs, strict=True)]
    return [
        got if where is None else torch.where(where, expected.native, expected.beside_interval(got))
        for got, expected, where in zip(outputs, expectation.outputs, unasked, strict=True)
    ]


def _improbable(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Mismatch | None:
    for index, (got, expected) in enumerate(zip(outputs, expectation.outputs, strict=True)):
        if expected.law is None or not got.numel():
            continue
        wrong = distribution.implausible(expected.law, got, expectation.args)
        if wrong is not None:
            message = f"output {index}: {wrong[0]}"
            return Mismatch(reason="wrong_output", message=message, evidence={"output": index, **wrong[1]})
    return None


def _found(outputs: Sequence[torch.Tensor], expectation: Expectation) -> list[tuple[int, _Found]]:
    """Position and figures of every output that has elements; the device is waited for once."""
    rows = [_figures(got, e) for got, e in zip(outputs, expectation.outputs, strict=True)]
    device_figures = [figure for figures in rows for figure in figures]
    table = torch.cat(device_figures).double().tolist() if device_figures else []
    found = []
    for index, figures in enumerate(rows):
        taken, table = table[: len(figures) * _WIDTH], table[len(figures) * _WIDTH :]
        if figures:
            found.append((index, _Found.from_table(taken, expectation.outputs[index])))
    return found


def _form(index: int, got: torch.Tensor, expected: Expected) -> Mismatch | None:
    native = expected.native
    if got.shape != native.shape:
        text = f"output {index} has shape {list(got.shape)}, expected {list(native.shape)}"
        evidence: Evidence = {"output": index, "got": list(got.shape), "expected": list(native.shape)}
        return Mismatch(reason="wrong_shape", message=text, evidence=evidence)
    if got.dtype != native.dtype:
        names = str(got.dtype)[6:], str(native.dtype)[6:]
        text = f"output {index} is {names[0]}, expected {names[1]}"
        evidence = {"output": index, "got": names[0], "expected": names[1]}
        return Mismatch(reason="wrong_dtype", message=text, evidence=evidence)
    return None


_WIDTH = 7


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Figures of one output, times the bounds' gain."""

    rms: float
    largest: float
    excess: float
    """Largest error beyond an element's tolerance; elements that differ, where equality is asked for."""
    bulk: float
    bias: _Bias
    """Zero where it is not judged."""

    @classmethod
    def from_table(cls, table: Sequence[float], expected: Expected) -> _Found:
        tiles_ = [table[i : i + _WIDTH] for i in range(0, len(table), _WIDTH)]
        count = expected.native.numel()
        return cls(
            rms=math.sqrt(sum(t[0] ** 2 for t in tiles_) / count),
            largest=_max(t[1] for t in tiles_),
            excess=_max(t[2] for t in tiles_),
            bulk=sum(t[3] for t in tiles_) / count,
            bias=_Bias.of([(t[4], t[5], t[6]) for t in tiles_], count),
        )

    def broken(self, expected: Expected, got: torch.Tensor) -> str:
        """The first rule that does not hold; empty: all do."""
        bounds = expected.bounds
        if bounds is None:
            return "" if self.excess <= expected.allowed and self.rms <= expected.far else "equality"
        if not math.isfinite(self.largest):
            return "finite"
        # a NaN figure must break a rule, so each is asked the right way round
        if not self.rms <= bounds.rms:
            return "rms"
        if not self.excess <= 0:
            return "element"
        if not self.rms <= bounds.variation:
            return "variation"
        if not self.bulk <= bounds.bulk:
            return "bulk"
        return "bias" if _biased(expected, self.bias, got) is not None else ""

    def evidence(self, bounds: Bounds) -> Evidence:
        """Figures for people: relative to the oracle's rms, and absolute."""
        scale = bounds.scales.rms
        found: Evidence = {
            "relative_rms_error": self.rms / scale if scale else self.rms,
            "native_relative_rms_error": bounds.scales.native_rms / scale if scale else bounds.scales.native_rms,
            "relative_rms_bound": bounds.rms / scale if scale else bounds.rms,
            "max_abs_error": self.largest / bounds.gain,
            "native_max_abs_error": bounds.scales.native_max / bounds.gain,
        }
        return found


def _ruled(got: torch.Tensor, expected: Expected, found: _Found) -> tuple[torch.Tensor, _Found, str]:
    """(output, figures, first rule that is broken): of a problem file whose outputs jump, without the elements that may
    fall to the other side of a step; asked again where values repeat, and for the bulk, which looks at the size of rows
    where it is broken.
    """
    rule = found.broken(expected, got)
    if rule == "rms" and expected.native.dtype in _VALUES and _near(found, expected):
        expected = _shared(got, expected)
        rule = found.broken(expected, got)
    if rule == "element" and expected.native.dtype in _VALUES and _few_beyond(got, expected):
        found = replace(found, excess=0.0)
        rule = found.broken(expected, got)
    if rule == "bulk" and (noise := _noise(expected)) is not None:
        table = torch.cat(_figures(got, expected, noise)).double().tolist()
        found = replace(found, bulk=_Found.from_table(table, expected).bulk)
        rule = found.broken(expected, got)
    if rule == "bulk" and expected.native.dtype in _VALUES:
        found = replace(found, bulk=_bulk_of_values(got, expected))
        rule = found.broken(expected, got)
    if rule and expected.undone is not None:
        for other in expected.undone(got):
            table = torch.cat(_figures(other, expected)).double().tolist()
            got, found = other, _Found.from_table(table, expected)
            if not (rule := found.broken(expected, got)):
                break
    return got, found, rule


# -- The extremes of many elements -------------------------------------------------------------------------------------

_ONE_IN, _FARTHEST = 14, 3.0
"""In a half type one element in 2^14 may be off by up to three times its bound. Steps that round to the type leave
errors that do not follow the response at every element: those of a tanh near -1."""


def _few_beyond(got: torch.Tensor, expected: Expected) -> bool:
    """Whether no more than these are beyond their bound, and none by more than the larger of half of
    itself and the rms of the output: a large element that is left out is no rounding.
    """
    few, bounds = expected.native.numel() >> _ONE_IN, expected.bounds
    assert bounds is not None
    if not few or bool(_beyond(got, expected, _FARTHEST).any()):
        return False
    beyond = _beyond(got, expected)
    own, oracle = as_real(got)[beyond], as_real(expected.oracle)[beyond]
    most = distance(oracle, None, bounds.gain).div_(2).clamp_(min=bounds.scales.rms)
    return len(own) <= few and bool((distance(own, oracle, bounds.gain) <= most).all())


# -- Values that repeat ------------------------------------------------------------------------------------------------
#
# Elements of the same value, as clamping, padding and copying leave them, share what steps in a half type leave there,
# which may be above the usual. A rule that is broken is asked again as over so many values as there are.


def _near(found: _Found, expected: Expected) -> bool:
    """Whether the rms would be within its bound if all elements were one: most that is wrong is not, and needs no
    counting of values.
    """
    bounds = expected.bounds
    assert bounds is not None
    return found.rms <= bounds.rms * slack_of_count(1) / slack_of_count(bounds.independent)


def _shared(got: torch.Tensor, expected: Expected) -> Expected:
    """The same with room in its rms for the scatter over as many values as carry it (Kish's effective size): as carry
    the bounds, or the errors, if these are more. Numbers that lie beside a clamped one have no part in its luck.
    """
    bounds = expected.bounds
    assert bounds is not None
    number = as_real(expected.oracle).reshape(-1).unique(return_inverse=True)[1]
    count = 0.0
    for sizes in (bounds.local.reshape(-1), _sized_errors(got, expected)):
        squares = sizes.double().square()
        sums = torch.bincount(number, weights=squares)
        count = max(count, len(number) * float(squares.square().sum() / sums.square().sum()))
    room = max(1.0, slack_of_count(count) / slack_of_count(bounds.independent))
    return replace(expected, bounds=replace(bounds, rms=bounds.rms * room))


def _sized_errors(got: torch.Tensor, expected: Expected) -> torch.Tensor:
    """The errors of all elements that have a size, times the gain; 0 elsewhere."""
    bounds = expected.bounds
    assert bounds is not None
    own, oracle, native = (as_real(t).reshape(-1) for t in (got, expected.oracle, expected.native))
    error = distance(own, oracle, bounds.gain)
    return _by_class(error, own, oracle, native, bounds)[1] if bounds.special else error


def _bulk_of_values(got: torch.Tensor, expected: Expected) -> float:
    """The bulk in which each value counts once; 0 where there are too few."""
    bounds = expected.bounds
    assert bounds is not None
    _, number, times = as_real(expected.oracle).reshape(-1).unique(return_inverse=True, return_counts=True)
    if len(times) < POOLED:
        return 0.0
    error = _sized_errors(got, expected)
    part = (error / bounds.local.reshape(-1)).clamp_(max=1.0).double()
    return float((part / times[number]).sum()) / len(times)


def _max(values: object) -> float:
    """Maximum in which NaN wins."""
    found = list(values)  # type: ignore[call-overload]
    return math.nan if any(math.isnan(v) for v in found) else max(found)


_COMMON, _ALIKE = 0.75, 4.0
"""A row has a size in common where its rms is at most so many times the magnitude that this share of its elements stay
below. The rms of exponentials of scattered numbers is that of a few of them."""


def _noise(expected: Expected) -> torch.Tensor | None:
    """What rounding a row's common size in the computing precision leaves, (rows, 1); 0 where there is none, None: it
    is so in every row. Errors up to it tell nothing of elements that are far smaller: half of a saturated sigmoid is
    next to nothing, and by the tanh it is off by the rounding of 1.
    """
    bounds = expected.bounds
    assert bounds is not None
    oracle = as_real(expected.oracle).contiguous().view(bounds.shape)
    computing = min(unit_roundoff(as_real(expected.native).dtype), 2.0**-24)
    count = bounds.shape[1]
    noise = torch.zeros(bounds.shape[0], 1, device=oracle.device)
    for rows in {rows.start: rows for rows, _ in tiles(bounds.shape, oracle.device)}.values():
        sizes = distance(oracle[rows], None, bounds.gain)
        sizes.masked_fill_(~(oracle[rows].abs() < bounds.limit), 0.0)
        common = sizes.kthvalue(math.ceil(_COMMON * count), dim=1, keepdim=True).values
        rms = torch.linalg.vector_norm(sizes, dim=1, keepdim=True) / math.sqrt(count)
        noise[rows] = torch.where(rms <= _ALIKE * common, computing * common, 0.0)
    return noise if bool(noise.any()) else None


def _figures(got: torch.Tensor, expected: Expected, noise: torch.Tensor | None = None) -> list[torch.Tensor]:
    """For each tile: rms numerator (as a norm), largest error, largest excess, bulk sum; the sums of a bias.

    Args:
        noise: errors of each row, (rows, 1), that the bulk does not count.
    """
    if got.numel() == 0 or expected.law is not None:
        return []
    if expected.bounds is None:
        return [_unequal(got, expected)]
    bounds = expected.bounds
    own = as_real(got).contiguous().view(bounds.shape)
    oracle, native = (as_real(t).contiguous().view(bounds.shape) for t in (expected.oracle, expected.native))
    figures, none = [], torch.zeros(3, device=own.device)
    for rows, columns in tiles(bounds.shape, own.device):
        o, c = oracle[rows, columns], own[rows, columns]
        error = distance(c, o, bounds.gain)
        local = bounds.local[rows, columns]
        counted = error
        if bounds.special:
            error, counted = _by_class(error, c, o, native[rows, columns], bounds)
        norm = torch.linalg.vector_norm(counted)
        beyond = counted if noise is None else counted.masked_fill(counted <= noise[rows], 0.0)
        bulk = torch.div(beyond, local).clamp_(max=1.0).sum()
        excess = (error - local).sub_(bounds.slack[rows]).amax()
        signed = none if math.isinf(bounds.bias) else _bias_sums(c, o, bounds.gain)
        figures.append(torch.cat([torch.stack([norm, error.amax(), excess, bulk]), signed]))
    return figures


def _by_class(
    error: torch.Tensor, got: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor, bounds: Bounds
) -> tuple[torch.Tensor, torch.Tensor]:
    """(errors with 0 where a non-finite output is right and infinity where it is wrong, those that have a size).

    A NaN is right where the oracle or the native reference has one. An infinity is right where the oracle, rounded, or
    the native reference has the same one, or where the oracle is at the end of the range. A finite number where the
    oracle is not is wrong.
    """
    finite = got.isfinite()
    real = oracle.isfinite()
    at_end = (oracle.abs() >= bounds.limit) & (oracle.sign() == got.sign())
    infinite = (got == oracle.to(got.dtype)) | (got == native) | at_end
    right = torch.where(got.isnan(), oracle.isnan() | native.isnan(), infinite)
    error = torch.where(finite & real, error, torch.where(~finite & right, 0.0, torch.inf))
    usable = finite & real & native.isfinite() & (oracle.abs() < bounds.limit)
    return error, torch.where(usable, error, 0.0)


def _unequal(got: torch.Tensor, expected: Expected) -> torch.Tensor:
    """Number of elements that are not what they must be, in the place of the excess; their distance where it counts."""
    wrong = torch.count_nonzero(differing(got, expected)).double()
    zero = torch.zeros_like(wrong)
    distance = zero
    if math.isfinite(expected.far):
        own, wanted = (steps(t.to(got.dtype)) if is_eight_bit(got) else t for t in (got, expected.oracle))
        distance = torch.linalg.vector_norm((own.double() - wanted.double()).flatten())
    return torch.stack([distance, zero, wrong, zero, zero, zero, zero])


def differing(got: torch.Tensor, expected: Expected) -> torch.Tensor:
    """Which elements of an output that is judged by equality are wrong."""
    if expected.kind == "index" and expected.source is not None:
        source, dim = expected.source, expected.dim
        size = source.shape[dim]
        inside = (got >= 0) & (got < size)
        flat = got.ndim < source.ndim
        chosen, wanted = (i.unsqueeze(dim) if flat else i for i in (got.clamp(0, max(size - 1, 0)), expected.oracle))
        mine, theirs = source.gather(dim, chosen.long()), source.gather(dim, wanted.long())
        equal = same(mine, theirs)
        wrong = ~(inside & (equal.squeeze(dim) if flat else equal))
        if expected.distinct:
            wrong |= (got.sort(dim).values.diff(dim=dim) == 0).any(dim, keepdim=True)
        return wrong
    if is_eight_bit(expected.native):
        own, wanted, native = (steps(t.to(expected.native.dtype)) for t in (got, expected.oracle, expected.native))
        return (own != wanted) & (own != native)
    unequal = got != expected.oracle
    if got.is_floating_point() or got.is_complex():
        unequal &= ~(got.isnan() & expected.oracle.isnan())
    if expected.kind == "count":
        for other in (expected.native, *expected.either):
            unequal &= got != other
    return unequal


# -- Errors with a sign in common -------------------------------------------------------------------------------------
#
# A factor, an offset, numbers that are cut: rounding to the nearest leaves errors of both signs, which average out over
# the elements of an output in a half type; what is left of their mean is systematic, far below one rounding step.

_CERTAIN = 6.5
"""Standard errors beyond which a mean is no chance. For independent errors of either sign, whatever their sizes, the
probability is at most 2 exp(-6.5^2 / 2) = 1.3e-9 (Hoeffding 1963; Efron 1969 for sums divided by their own norm)."""

_VALUES = {torch.bfloat16: 1 << 10, torch.float16: 1 << 13}
"""Where each element follows from one of each input, as many of them count at most: there are few numbers of a half
type near 1, and equal inputs make equal errors. (Normal numbers are worth about 1,200 different ones in bfloat16, by
the inverse of the sum of their squared shares, and eight times as many in float16.)"""

_TIE = 1 + 2.0**-5
"""An element that is no further off than this many times the rounding to nearest is rounded to nearest."""


def _beyond_rounding(
    got: torch.Tensor, oracle: torch.Tensor, *, ties: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """(distance of each element of a half type from the oracle rounded to nearest, the oracle): zero almost everywhere
    for kernels that round once, be the outputs equal, saturated or on a coarse grid.

    Args:
        ties: whether an element that is not the nearest but as near counts. Looking at each takes the longest.
    """
    exact = oracle.float()
    nearest = exact.to(got.dtype).float()
    error = got.float() - nearest
    if not ties:
        error.masked_fill_((got.float() - exact).abs_() <= (nearest - exact).abs_() * _TIE, 0.0)
    return error, exact


def _bias_sums(got: torch.Tensor, oracle: torch.Tensor, gain: float) -> torch.Tensor:
    """Sum of the errors beyond rounding times the oracle's sign, their sum and their norm, times the gain."""
    error, exact = _beyond_rounding(got, oracle)
    signed = torch.dot(error.reshape(-1), exact.sign().reshape(-1))
    return torch.stack([signed, error.sum(), torch.linalg.vector_norm(error)]).mul_(gain)


@dataclass(frozen=True, kw_only=True)
class _Bias:
    """Mean errors of an output beyond rounding to nearest, times the bounds' gain."""

    along: float
    """Of errors times the oracle's sign: a factor."""
    shift: float
    """Of the errors themselves: an offset."""
    scatter: float
    """rms of the errors."""
    together: float = 0.0
    """Standard error of the means where elements of one value, or of one row or column, share their error."""
    size: float = 1.0
    """Mean magnitude, by that of all elements alike."""

    @classmethod
    def of(cls, table: list[tuple[float, float, float]], count: int) -> _Bias:
        """From the ``_bias_sums`` of an output's tiles."""
        along, shift = (sum(row[i] for row in table) / count for i in (0, 1))
        return cls(along=along, shift=shift, scatter=math.sqrt(sum(row[2] ** 2 for row in table) / count))

    @property
    def most(self) -> float:
        """The larger of both."""
        return max(abs(self.along), abs(self.shift))


def _bias_bound(expected: Expected, found: _Bias) -> float:
    """What the larger of the means may be, without what the native reference has."""
    bounds = expected.bounds
    assert bounds is not None
    few = bounds.independent
    if bounds.length <= 1:
        few = min(few, _VALUES.get(expected.native.dtype, few))
    chance = max(found.scatter / math.sqrt(few), found.together)
    return found.size * bounds.bias + _CERTAIN * math.hypot(chance, found.size * bounds.common)


def _biased(expected: Expected, found: _Bias, got: torch.Tensor) -> tuple[float, float] | None:
    """(mean, bound) where the mean error is beyond chance, what is allowed and twice what the native reference has.

    Args:
        found: with ties counted; only where it is beyond its bound the others are looked at.
    """
    if found.most <= _bias_bound(expected, found):
        return None
    found, native = _without_ties(expected, got), _without_ties(expected, expected.native)
    most = max(_bias_bound(expected, found), _bias_bound(expected, native)) + NATIVE * native.most
    return None if found.most <= most else (found.most, most)


def _without_ties(expected: Expected, output: torch.Tensor) -> _Bias:
    """Of elements that are not as near as the nearest, none of whose values counts for more than so many do
    (``_VALUES``).
    """
    bounds = expected.bounds
    assert bounds is not None
    oracle = as_real(expected.oracle).reshape(-1)
    error, exact = _beyond_rounding(as_real(output).reshape(-1), oracle, ties=False)
    number = oracle.unique(return_inverse=True)[1]
    times = torch.bincount(number).double()
    share = (times.clamp(max=max(1.0, len(oracle) / _VALUES.get(output.dtype, len(oracle)))) / times)[number]
    share, error = share / share.sum(), error.double() * bounds.gain
    shifted, signed = share * error, share * error * exact.sign()
    alike = [torch.bincount(number, weights=shifted)]
    if bounds.shared and bounds.length > 1:
        alike += [sums for part in (shifted, signed) for sums in _along_dims(part.view(output.shape))]
    size = torch.dot(share, exact.abs().double()) * bounds.gain / max(bounds.scales.mean, 1e-30)
    norms = [torch.linalg.vector_norm(t) for t in (share.sqrt() * error, *alike)]
    along, shift, size, scatter, *together = torch.stack([signed.sum(), shifted.sum(), size, *norms]).tolist()
    return _Bias(along=along, shift=shift, scatter=scatter, together=max(together), size=size)


def _along_dims(errors: torch.Tensor) -> list[torch.Tensor]:
    """The sums along each dim that has more than one element and leaves more than one sum. Gradients of one key share
    what its probability is off by, in the ratio of a query's elements, where steps round to a half type.
    """
    return [errors.sum(dim) for dim, size in enumerate(errors.shape) if 1 < size < errors.numel()]


# -- What is wrong ----------------------------------------------------------------------------------------------------


def _mismatch(
    index: int, got: torch.Tensor, expected: Expected, expectation: Expectation, found: _Found, rule: str
) -> Mismatch:
    if expected.bounds is None:
        wrong = differing(got, expected)
        evidence: Evidence = {}
    else:
        wrong = _beyond(got, expected)
        if math.isinf(found.rms) and bool(as_real(got).isfinite().all()):  # fp32 does not hold the squares
            found = _in_double(found, got, expected)
            rule = "element" if found.rms <= expected.bounds.rms else "rms"
        evidence = found.evidence(expected.bounds)
    if rule == "bias":
        (evidence["bias"], evidence["bias_bound"]) = _relative_bias(expected, found, got)
    got = opened(got)
    slug, words = diagnosis.diagnose(got, expected, expectation.args, wrong)
    slug = "biased" if rule == "bias" and slug == "wrong" else slug
    count, of = int(torch.count_nonzero(wrong)), wrong.numel()
    evidence |= {"output": index, "rule": rule, "diagnosis": slug, "beyond": count, "of": of}
    flat, worst = diagnosis.worst_element(got, expected, wrong)
    evidence |= worst
    if got.is_floating_point() or got.is_complex():
        evidence |= {"nan": int(got.isnan().sum()), "inf": int(got.isinf().sum())}
    if expected.bounds is not None:
        bounds = expected.bounds
        row, column = divmod(flat, bounds.shape[1])
        evidence["tolerance"] = float(bounds.local[row, column] + bounds.slack[row, 0]) / bounds.gain
    message = f"output {index}: {_words(rule, evidence, expected)}"
    return Mismatch(reason="wrong_output", message=f"{message}{'; ' if words else ''}{words}", evidence=evidence)


def _in_double(found: _Found, got: torch.Tensor, expected: Expected) -> _Found:
    """The same with rms and largest error as fp64 holds them, over the elements that are to be finite."""
    bounds = expected.bounds
    assert bounds is not None
    own, oracle = (as_real(t).contiguous().view(bounds.shape) for t in (got, expected.oracle))
    norms, largest = [], []
    for rows, columns in tiles(bounds.shape, got.device):
        wanted = oracle[rows, columns].double()
        error = torch.where(wanted.isfinite(), own[rows, columns].double() - wanted, 0.0).mul_(bounds.gain)
        norms.append(torch.linalg.vector_norm(error))
        largest.append(error.abs_().amax())
    rms = float(torch.linalg.vector_norm(torch.stack(norms))) / math.sqrt(own.numel())
    return replace(found, rms=rms, largest=float(torch.stack(largest).amax()))


def _relative_bias(expected: Expected, found: _Found, got: torch.Tensor) -> tuple[float, float]:
    """(mean error, its bound), both by the mean magnitude of the oracle."""
    bounds, mean = expected.bounds, _biased(expected, found.bias, got)
    assert bounds is not None
    assert mean is not None
    return mean[0] / bounds.scales.mean, mean[1] / bounds.scales.mean


def _beyond(got: torch.Tensor, expected: Expected, times: float = 1.0) -> torch.Tensor:
    """Which elements are beyond so many times their tolerance, as the output is shaped (complex: with a last dim of two
    parts).
    """
    bounds = expected.bounds
    assert bounds is not None
    own, oracle, native = (as_real(t).contiguous().view(bounds.shape) for t in (got, expected.oracle, expected.native))
    wrong = torch.empty(bounds.shape, dtype=torch.bool, device=got.device)
    for rows, columns in tiles(bounds.shape, got.device):
        o, c = oracle[rows, columns], own[rows, columns]
        error = distance(c, o, bounds.gain)
        if bounds.special:
            error, _ = _by_class(error, c, o, native[rows, columns], bounds)
        wrong[rows, columns] = ~(error <= (bounds.local[rows, columns] + bounds.slack[rows]) * times)
    return wrong.view(as_real(got).shape)


def _apart(number: float, other: float, least: int = 8) -> tuple[str, str]:
    """Both in as many digits as tell one from the other, at least so many; whole numbers in all of theirs."""
    if isinstance(number, int) and isinstance(other, int):
        return str(number), str(other)
    texts = [(f"{number:.{digits}g}", f"{other:.{digits}g}") for digits in range(least, 18)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[0])


def _words(rule: str, evidence: Evidence, expected: Expected) -> str:
    bounds, dtype = expected.bounds, expected.native.dtype
    at = "element {} is {}, expected {}".format(evidence["worst_index"], *_apart(evidence["got"], evidence["expected"]))
    if bounds is not None and torch.finfo(dtype).max < abs(evidence["expected"]) < math.inf:
        at += f" (beyond the largest {str(dtype)[6:]}, {torch.finfo(dtype).max:.8g})"
    beyond = f"{evidence['beyond']} of {evidence['of']} elements are"
    if bounds is None:
        return f"{at}; {beyond} wrong"
    if rule == "finite":
        return f"{at}; {evidence['nan']} NaN, {evidence['inf']} infinite, {beyond} beyond their bound"
    error, bound = evidence["relative_rms_error"], evidence["relative_rms_bound"]
    shown = _apart(error, bound, 3)
    if rule == "rms":
        those = f"{beyond} beyond their bound" if evidence["beyond"] else "no element is beyond its own bound"
        if bound >= 1:  # relative to an output that is zero, figures say nothing
            times = f"rms error {error / bound:.3g} times its bound, where hardly more than rounding comes out"
            return f"{times}; {at}; {those}"
        return f"relative rms error {shown[0]}, bound {shown[1]}; {at}; {those}"
    if rule == "element":
        return (
            f"{at}; {beyond} beyond their bound (their relative rms error, {shown[0]}, is within its own, {shown[1]})"
        )
    if rule == "bias":
        mean, most = evidence["bias"], evidence["bias_bound"]
        words = "a factor, an offset, or numbers that are cut instead of rounded to nearest"
        return f"errors have one sign: their mean is {mean:.2g} of the mean magnitude, at most {most:.2g}; {words}"
    if rule == "variation":
        trivial = bounds.nearest.replace("_", " ")
        return f"more than half as far from the oracle as a trivial answer is ({trivial}); {at}"
    return f"most elements are off by more than rounding explains, though each is small beside its row; {at}"
