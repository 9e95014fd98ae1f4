"""What became of candidates from one iteration to the next: rescued, regressed, faster, slower or neither.

Of the 57 records of "speedup increase" in KernelBench-X's published corpus 37 have the same code byte for byte before
and after. Here a change of speed is one only if the code really changed and the effect is beyond noise.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from kerneleval.analysis.steps import Step, really_changed
from kerneleval.records import Score
from kerneleval.scores.common.intervals import NOTHING, share

NOISE = 0.02
"""What a speedup without an interval must exceed to be a change: 0.02 is 2 %. The largest difference between two
published timings of the same code in KernelBench-X's corpus is 1.8 %."""

STATES = ("rescued", "regressed", "still_failing", "still_passing", "not_told")

SPEEDS = ("faster", "slower", "unchanged", "same_code", "other_machine", "newly_timed", "no_longer_timed", "untimed")
"""``unchanged``: within noise; ``same_code``: whatever the clocks said, nothing changed."""

_Z = 1.959963984540054


@dataclass(frozen=True, kw_only=True)
class Transition:
    """Two candidates of a chain, the second made from the first."""

    before: Step
    after: Step
    build: str
    """One of :data:`STATES`."""
    call: str
    correct: str
    speed: str
    """One of :data:`SPEEDS`."""
    code_changed: bool
    """Whether the code differs in more than comments, docstrings and white space."""
    ratio: float
    """The second's speedup over the first's, over the cells that both have; NaN: not both are right and timed."""


def transitions(chains: Iterable[Sequence[Step]], *, noise: float = NOISE) -> list[Transition]:
    """Every pair of neighbours of every chain.

    Args:
        chains: steps in the order in which they were made.
        noise: what a change of speed without an interval or a noise floor must exceed, as a ratio minus 1.
    """
    return [_between(one, other, noise) for chain in chains for one, other in itertools.pairwise(chain)]


def _between(before: Step, after: Step, noise: float) -> Transition:
    changed = really_changed(before.code, after.code)
    return Transition(
        before=before,
        after=after,
        build=_state(before.built, after.built),
        call=_state(before.called, after.called),
        correct=_state(before.correct, after.correct),
        speed=_speed(before, after, changed, noise),
        code_changed=changed,
        ratio=math.exp(_effect(before, after)[0]) if before.timed and after.timed else math.nan,
    )


def _state(before: bool | None, after: bool | None) -> str:
    if before is None or after is None:
        return "not_told"
    if before:
        return "still_passing" if after else "regressed"
    return "rescued" if after else "still_failing"


def _speed(before: Step, after: Step, changed: bool, noise: float) -> str:
    if not before.timed or not after.timed:
        return {(False, True): "newly_timed", (True, False): "no_longer_timed"}.get(
            (before.timed, after.timed), "untimed"
        )
    if not changed:
        return "same_code"
    if before.machine != after.machine:
        return "other_machine"
    effect, error = _effect(before, after)
    floors = [math.log1p(step.noise if step.noise >= 0 else noise) for step in (before, after)]
    if math.isnan(error):  # no interval: the threshold stands for both
        beyond = abs(effect) > max(math.log1p(noise), *floors)
    else:
        beyond = abs(effect) > _Z * error and abs(effect) > math.hypot(*floors)
    if not beyond:
        return "unchanged"
    return "faster" if effect > 0 else "slower"


def _effect(before: Step, after: Step) -> tuple[float, float]:
    """Logarithm of the second's speedup over the first's and its standard error; NaN: a judge gave no interval.

    Where both were timed at the same cells it is the mean over these: how speedups differ from cell to cell is in both,
    and says nothing of the change.
    """
    same = sorted(before.cells.keys() & after.cells.keys())
    if not same:
        effect = math.log(after.speedup / before.speedup)
        return effect, math.hypot(_error(before.low, before.high), _error(after.low, after.high))
    pairs = [(before.cells[key], after.cells[key]) for key in same]
    effect = math.fsum(math.log(after / before) for (before, _, _), (after, _, _) in pairs) / len(same)
    errors = [_error(low, high) for pair in pairs for _, low, high in pair]
    return effect, math.hypot(*errors) / len(same)


def _error(low: float, high: float) -> float:
    """Standard error of the logarithm of a speedup, from the ends of its 95 % interval; NaN: there is none."""
    if not 0 < low <= high < math.inf:
        return math.nan
    return math.log(high / low) / (2 * _Z)


def counts(found: Sequence[Transition]) -> dict[str, dict[str, int]]:
    """Stage (``build``, ``call``, ``correct``, ``speed``) -> kind of change -> number of transitions."""
    table = {}
    for stage, kinds in (("build", STATES), ("call", STATES), ("correct", STATES), ("speed", SPEEDS)):
        seen = Counter(getattr(one, stage) for one in found)
        table[stage] = {kind: seen[kind] for kind in kinds if seen[kind]}
    return table


def shares(found: Sequence[Transition]) -> dict[str, Score]:
    """``rescue_rate``: of what was wrong, the share that became right; ``regression_rate``: of what was right, that
    became wrong; ``faster_rate``: of what was right and timed before and after, that became faster beyond noise.
    Wilson's intervals, with tasks as the independent units.
    """
    both = [t for t in found if not math.isnan(t.ratio)]
    return {
        "rescue_rate": _share([t for t in found if not t.before.correct], lambda t: t.after.correct),
        "regression_rate": _share([t for t in found if t.before.correct], lambda t: not t.after.correct),
        "faster_rate": _share(both, lambda t: t.speed == "faster"),
    }


def _share(of: Sequence[Transition], holds: Callable[[Transition], bool]) -> Score:
    if not of:
        return NOTHING("no such transition")
    value = sum(map(holds, of)) / len(of)
    return share(value, len(of), independent=len({t.before.task for t in of}))


@dataclass(frozen=True, kw_only=True)
class Bias:
    """Whether candidates that a repair made right are slower than those that were right before it."""

    rescued: Score
    """Median speedup of what became right and was timed; n is their number."""
    right_before: Score
    """Median speedup, after the same step, of what had been right before it."""
    p: float
    """Two-sided p-value of the Mann-Whitney test of no difference; NaN: one side has fewer than 3."""


def repair_bias(found: Sequence[Transition]) -> Bias:
    """Repair bias: the speedups of rescued candidates beside those of candidates that were right already.

    Medians with their distribution-free intervals (order statistics, by the binomial distribution; Conover 1999,
    Practical Nonparametric Statistics, section 3.2). The difference says nothing of single tasks: what had to be
    rescued is harder.
    """
    rescued = [t.after.speedup for t in found if t.correct == "rescued" and t.after.timed]
    right = [t.after.speedup for t in found if t.correct == "still_passing" and t.after.timed]
    p = math.nan
    if min(len(rescued), len(right)) >= 3:
        p = float(stats.mannwhitneyu(rescued, right).pvalue)
    return Bias(rescued=_median(rescued), right_before=_median(right), p=p)


def _median(values: Sequence[float]) -> Score:
    if not values:
        return NOTHING("none")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    # the largest k with P(Binomial(n, 1/2) < k) <= 2.5 %: the k-th values from both ends
    k = int(stats.binom.ppf(0.025, n, 0.5))
    k -= stats.binom.cdf(k - 1, n, 0.5) > 0.025
    value = float(np.median(ordered))
    if k < 1:
        return Score(value=value, low=math.nan, high=math.nan, n=n, note="fewer than 6 have no 95 % interval")
    return Score(value=value, low=float(ordered[k - 1]), high=float(ordered[n - k]), n=n)
