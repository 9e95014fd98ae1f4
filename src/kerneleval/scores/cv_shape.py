"""How much the speedup depends on the shape: CV_shape, the second factor of S; the same by shape category; and the gap
between shapes that kernels are tuned for and all others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from kerneleval.records import CATEGORIES, DIRECTIONS, SHAPE_CATEGORIES, Result, Score
from kerneleval.scores.common.cells import by_key, checked, primary, timing_of
from kerneleval.scores.common.intervals import (
    FEW,
    NOTHING,
    Draw,
    Floats,
    in_order,
    interval,
    nested,
    notes,
    quotient,
    ratio_over_tasks,
    scored,
)
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import MIN_SHAPES, Speeds, few_tasks, measurement_variance, speeds, where

QUIET = 0.05
"""Measurement noise (root mean square over the groups, as a CV) up to which CV_shape is given whatever it is: it then
moves the value, and with it 1 - CV in S, by at most 0.07."""

LEAST_RATIO = 2.0
"""Above :data:`QUIET`, the observed variance is at least so many times that of the measurements: with more than half of
it measured noise, an error of 10 % in the noise moves the CV by more than 10 %, and by more the larger that share."""


def over_groups(table: Speeds, draw: Draw) -> Floats:
    """(resamples,): mean over the eligible groups of the corrected CV.

    A resample of n cells has on average only (n - 1) / n of the data's variance, because cells repeat; with three
    shapes a group that is 18 % of the standard deviation. Resamples are scaled up by that, so that the interval is
    around the value and not below it.
    """
    if draw.whole:
        return draw.ratio(np.stack([_of_groups(table).sum(axis=1), table.eligible.sum(axis=1)], axis=1))
    eligible, cells = table.eligible[draw.tasks], draw.cells(table.nested)
    found = _corrected(_squares(cells, drawn=True), table.noise[draw.tasks], table.nested.counts[draw.tasks])
    return quotient(np.where(eligible, found, 0.0).sum(axis=(1, 2)), eligible.sum(axis=(1, 2)))


def _of_groups(table: Speeds) -> Floats:
    """(tasks, groups): corrected CV of each group; 0 of those that are not eligible."""
    found = _corrected(_squares(table.nested.values), table.noise, table.nested.counts)
    return np.where(table.eligible, found, 0.0)


def _squares(cells: Floats, *, drawn: bool = False) -> Floats:
    """(..., cells) -> (...): variance (n - 1) over squared mean of each group, as measured; 0 of fewer than 2."""
    n = np.maximum(np.sum(~np.isnan(cells), axis=-1), 2)
    mean = np.nansum(cells, axis=-1) / n
    variance = np.nansum((cells - mean[..., None]) ** 2, axis=-1) / (n - 1)
    if drawn:
        variance *= n / (n - 1)
    return np.nan_to_num(quotient(variance, mean**2))


def _corrected(squares: Floats, noise: Floats, n: NDArray[np.intp]) -> Floats:
    """The CV without the measurements' part: the root of what is left of its square, q = squares - noise, which is
    unbiased, times 1 + var(q) / (8 q²), because a root of q is too small by that (Taylor's second order); at most
    twice. Normal errors of n cells leave var(q) = (4 q noise + 2 noise²) / (n - 1). Without noise: the CV as measured.
    """
    left = np.maximum(squares - noise, 0.0)
    ratio = np.divide(noise, left, out=np.zeros_like(left), where=left > 1e-9 * noise)
    lost = (2 * ratio + ratio**2) / (4 * np.maximum(n - 1, 1))
    out: Floats = np.sqrt(left) * (1 + np.minimum(lost, 1.0))
    return out


def judged(table: Speeds) -> tuple[tuple[float, float, float], str]:
    """(value, low, high), and why there is none; empty: there is."""
    squares = np.where(table.eligible, _squares(table.nested.values), 0.0)
    noise = np.where(table.eligible, table.noise, 0.0)
    freedom = np.where(table.eligible, table.nested.counts - 1, 0)
    seen = float(squares.sum()), float(noise.sum()), int(table.eligible.sum()), int(freedom.sum())
    found = with_interval(table)
    return found, _why_not(*seen, found[1])


def _why_not(squares: float, noise: float, n: int, freedom: int, low: float = math.inf) -> str:
    """Why there is no CV from sums over n groups (or cells) of squared CVs and of the noise in them, with an interval
    from ``low``; empty: there is one.

    Of few degrees of freedom the variance must also be beyond what noise alone gives in 95 % of all cases.
    """
    own, seen = (math.sqrt(of / max(n, 1)) for of in (noise, squares))
    if own <= QUIET:
        return ""
    from scipy import special

    if low > 0 and squares >= max(LEAST_RATIO, float(special.chdtri(freedom, 0.05)) / freedom) * noise:
        return ""
    return (
        f"timings alone scatter by {own:.2g}, with shapes by {seen:.2g}: too noisy to tell; time on a quieter machine "
        "or in a higher tier"
    )


@register
def cv_shape(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Coefficient of variation of speedup over shapes, without the scatter of the timings: per (task, direction, dtype)
    with at least 3 shapes, standard deviation over mean of the speedups of its timed cells on the primary device, less
    the cells' mean measurement variance; then the mean over these groups.

    The variance is the sample one (n - 1); what is taken off it is the mean of s² (1 - exp(-e²)), e being the standard
    error of the logarithm of a speedup s by its timing's interval (the moment estimator of a variance between groups:
    Hedges 1983, Psychological Bulletin 93:388). The root of the rest is corrected for its bias. There is no value where
    the noise is above 0.05 and is more than half of the observed variance, or leaves an interval that holds 0. Clipped
    to [0, 1] in S only. The interval is Hall's transformed t over tasks, of fewer than five of them a hierarchical
    bootstrap; n is the number of groups.
    """
    table = speeds(checked(results), setting)
    groups = int(table.eligible.sum())
    if not groups:
        return NOTHING(f"no (task, direction, dtype) has {MIN_SHAPES} timed shapes")
    found, why = judged(table)
    if why:
        return NOTHING(notes(where(results, setting), why), groups)
    measured = float(np.sqrt(np.where(table.eligible, _squares(table.nested.values), 0.0)).sum()) / groups
    of_timings = f"{measured:.2g} with the scatter of the timings" if found[0] < 0.95 * measured else ""
    too_few = int((table.nested.counts > 0).sum()) - groups
    left_out = f"{too_few} groups with fewer than {MIN_SHAPES} timed shapes left out" if too_few else ""
    tasks = int(table.eligible.any(axis=1).sum())
    return scored(found, groups, where(results, setting), of_timings, left_out, few_tasks(tasks))


def with_interval(table: Speeds) -> tuple[float, float, float]:
    """(value, low, high)."""
    there = table.eligible.any(axis=1)
    if there.sum() >= FEW:
        total = _of_groups(table).sum(axis=1)[there]
        value, low, high = ratio_over_tasks(total, table.eligible.sum(axis=1)[there].astype(np.float64))
        return value, max(low, 0.0), high
    found = interval(
        lambda draw: over_groups(table, draw),
        len(table.tasks),
        table.nested.values.size,
        never_outside=(0.0, math.inf),
    )
    return found[:3]


@register
def cv_by_direction(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """CV_shape over the groups of each direction."""
    mine = primary(checked(results), setting)
    groups = by_key((r.case.direction, r) for r in mine)
    return {direction: cv_shape(groups[direction]) for direction in DIRECTIONS if direction in groups}


@register
def cv_by_category(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """CV_shape over the groups of each operator category."""
    mine = primary(checked(results), setting)
    known = in_order({r.category for r in mine}, CATEGORIES)
    return {category: cv_shape([r for r in mine if r.category == category]) for category in known}


@register
def cv_by_shape(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """How far the speedups at shapes of each category lie from the mean of their (task, direction, dtype), without the
    scatter of the timings: root mean square of (speedup - mean) / mean, times n / (n - 1) under the root, over the
    correct, timed cells of the primary device in groups with at least 3 shapes.

    The mean of the squares over all cells of a group is the square of its coefficient of variation, so that a category
    above the others is where CV_shape comes from. A cell's own measurement variance v and the mean one of its group are
    taken off by their parts, v (n - 2) / (n - 1) + mean / (n - 1). There is no value where noise above 0.05 is more
    than half. The interval is Hall's transformed t over tasks, of fewer than five of them a bootstrap; n is the number
    of cells.
    """
    mine = primary(checked(results), setting)
    timed = ((r, timing) for r in mine if (timing := timing_of(r)) is not None)
    groups = by_key(((r.task, r.sample, r.case.direction, r.case.dtype), (r, timing)) for r, timing in timed)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for cells in groups.values():
        if len({r.case.dims for r, _ in cells}) < MIN_SHAPES:
            continue
        mean, n = statistics.fmean(timing.speedup for _, timing in cells), len(cells)
        variances = [measurement_variance(timing) / mean**2 for _, timing in cells]
        common = statistics.fmean(variances)
        for (r, timing), own in zip(cells, variances, strict=True):
            square = (timing.speedup / mean - 1) ** 2 * n / (n - 1)
            noise = (own * (n - 2) + common) / (n - 1)
            found.setdefault(r.case.shape_category, {}).setdefault(r.task, []).append((square, noise))
    return {
        category: _root(found[category].values(), where(mine, setting))
        for category in in_order(found, SHAPE_CATEGORIES)
    }


def _root(of_tasks: Collection[list[tuple[float, float]]], note: str) -> Score:
    sums = np.array([(*map(sum, zip(*of, strict=True)), len(of)) for of in of_tasks])
    squares, noise, cells = sums.sum(axis=0)
    left = np.stack([sums[:, 0] - sums[:, 1], sums[:, 2]], axis=1)
    if len(left) >= FEW:
        ends = ratio_over_tasks(left[:, 0], left[:, 1])
    else:
        ends = interval(lambda draw: draw.ratio(left), len(left), len(left), never_outside=(-math.inf, math.inf))[:3]
    if why := _why_not(squares, noise, int(cells), int(cells)):
        return NOTHING(notes(note, why), int(cells))
    return scored([math.sqrt(max(end, 0.0)) for end in ends], int(cells), note, few_tasks(len(left)))


_SIDES = ("power_of_two", "non_power_of_two")


@register
def shape_gap(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """How many times as fast, against the baseline, a generator is at powers of two as elsewhere: the median speedup
    over the ``power_of_two`` cells divided by that over the ``non_power_of_two`` ones, of the primary device.

    1 is even; a kernel tuned to powers of two is above. The interval is a hierarchical bootstrap (whole tasks);
    n is the number of cells of both sides.
    """
    mine = primary(checked(results), setting)
    tasks = tuple(dict.fromkeys(r.task for r in mine))
    timed = [(r, timing) for r in mine if (timing := timing_of(r)) is not None]
    sides = []
    for side in _SIDES:
        of_side = [(r, timing.speedup) for r, timing in timed if r.case.shape_category == side]
        rows = [(r.task, (r.sample, r.case.direction, r.case.dtype), speed) for r, speed in of_side]
        sides.append(nested(tasks, rows))
    for side, of in zip(_SIDES, sides, strict=True):
        if not of.counts.sum():
            return NOTHING(f"no correct cell of {side} shapes was timed")

    size, bounds = sum(of.values.size for of in sides), (0.0, math.inf)
    *found, _ = interval(lambda draw: quotient(*map(draw.median, sides)), len(tasks), size, never_outside=bounds)
    n = int(sum(of.counts.sum() for of in sides))
    return scored(found, n, where(results, setting), few_tasks(len(tasks)))
