"""What became of candidates from one iteration to the next: rescued, regressed, faster, slower or neither; and pairs to
learn from: a failed candidate and the right one made from it, a right one and a faster one.

Of the 57 records of "speedup increase" in KernelBench-X's published corpus 37 have the same code byte for byte before
and after. Here a change of speed is one only if the code really changed and the effect is beyond noise.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from kerneleval.records import Candidate, Passed, Score, Verdict
from kerneleval.scores.common.intervals import NOTHING, Z, log_error, share
from kerneleval.store import Attempt

NOISE = 0.02
"""What a speedup without an interval must exceed to be a change: 0.02 is 2 %. The largest difference between two
published timings of the same code in KernelBench-X's corpus is 1.8 %."""

STATES = ("rescued", "regressed", "still_failing", "still_passing", "not_told")

SPEEDS = ("faster", "slower", "unchanged", "same_code", "other_machine", "newly_timed", "no_longer_timed", "untimed")
"""``unchanged``: within noise; ``same_code``: nothing changed, whatever was measured."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """Two candidates of a chain, the second made from the first."""

    before: Step
    after: Step
    build: str
    call: str
    correct: str
    speed: str
    """One of :data:`SPEEDS`."""
    code_changed: bool
    """Whether the code differs in more than comments, docstrings and white space."""
    ratio: float
    """The second's speedup over the first's, over the cells that both have; NaN: not both are right and timed."""


def transitions(chains: Iterable[Sequence[Step]], *, noise: float = NOISE) -> list[Transition]:
    """Every pair of neighbours of every chain. Without interval and noise floor a change of speed must exceed
    ``noise``.
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
    if math.isnan(error):  # no interval: the threshold replaces both
        beyond = abs(effect) > max(math.log1p(noise), *floors)
    else:
        beyond = abs(effect) > Z * error and abs(effect) > math.hypot(*floors)
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
        return effect, math.hypot(*(log_error(step.low, step.high, unknown=math.nan) for step in (before, after)))
    pairs = [(before.cells[key], after.cells[key]) for key in same]
    effect = math.fsum(math.log(after / before) for (before, _, _), (after, _, _) in pairs) / len(same)
    errors = [log_error(low, high, unknown=math.nan) for pair in pairs for _, low, high in pair]
    return effect, math.hypot(*errors) / len(same)


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
    """Repair bias: the speedups of rescued candidates compared with those of candidates that were right already.

    Medians with their distribution-free intervals (order statistics, by the binomial distribution; Conover 1999,
    Practical Nonparametric Statistics, section 3.2). The difference is no statement about single tasks: what had to be
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
    n, value = len(values), float(np.median(values))
    interval = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return Score(value=value, low=math.nan, high=math.nan, n=n, note="fewer than 6 have no 95 % interval")
    return Score(value=value, low=float(interval.low), high=float(interval.high), n=n)


COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("kind", "task", "chain"), "string"),
    **dict.fromkeys(("round_before", "round_after"), "int"),
    **dict.fromkeys(("before", "after", "failed_stage", "failed_reason", "failed_message"), "string"),
    **dict.fromkeys(("speedup_before", "speedup_after", "ratio"), "float"),
    **dict.fromkeys(("generator", "model", "machine", "source", "licence"), "string"),
}
"""Column of a row -> type, as tables are written (``reports/export.py``). ``before`` and ``after`` are code."""


def pairs(found: Sequence[Transition]) -> Iterator[dict[str, Any]]:
    """A row for every ``correction`` (wrong, then right) and every ``optimisation`` (right, then right and faster
    beyond noise) whose code is there on both sides and really changed.
    """
    for one in found:
        kind, _why = _kind(one)
        if kind:
            before, after = one.before, one.after
            yield {
                "kind": kind,
                "task": before.task,
                "chain": before.chain,
                "round_before": before.round,
                "round_after": after.round,
                "before": before.code,
                "after": after.code,
                **{f"failed_{name}": getattr(before, name) for name in ("stage", "reason", "message")},
                "speedup_before": before.speedup,
                "speedup_after": after.speedup,
                "ratio": one.ratio,
                **{name: getattr(after, name) for name in ("generator", "model", "machine", "source", "licence")},
            }


def left_out(found: Sequence[Transition]) -> dict[str, int]:
    """Why transitions are no pairs: reason -> number of them, the most frequent first."""
    why = Counter(reason for kind, reason in map(_kind, found) if not kind)
    return dict(why.most_common())


def _kind(one: Transition) -> tuple[str, str]:
    """The kind of a pair, or why it is none."""
    if not one.after.correct:
        return "", "the second is wrong"
    if not one.before.code.strip() or not one.after.code.strip():
        return "", "a source is missing"
    if not one.code_changed:
        return "", "the code did not change"
    if not one.before.correct:
        return "correction", ""
    if one.speed == "faster":
        return "optimisation", ""
    return "", "not timed on both sides" if math.isnan(one.ratio) else f"the speed is {one.speed.replace('_', ' ')}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One candidate for a task, in a chain of those that were made from one another."""

    task: str
    """Task, by the name that its judge has for it."""
    chain: str
    """What it belongs to: a generator, with the sample where there are several."""
    round: int
    code: str
    """Its source; of several files one after another."""
    built: bool | None
    """Whether it built; None: its judge does not distinguish building from calling."""
    called: bool
    correct: bool
    stage: str = ""
    """Stage of the failure; empty: none."""
    reason: str = ""
    """Slug of the failure; empty: none."""
    message: str = ""
    speedup: float = math.nan
    """Baseline time over its own; NaN: not timed."""
    low: float = math.nan
    """Lower end of the 95 % interval; NaN: its judge gave none."""
    high: float = math.nan
    noise: float = math.nan
    """Noise floor as a ratio minus 1; NaN: its judge gave none."""
    cells: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """Case -> its speedup with the ends of its 95 % interval; empty: its judge gives no single cells."""
    machine: str = ""
    """Where it was timed: times of different machines are not compared."""
    generator: str = ""
    model: str = ""
    source: str = "KernelEval"
    """Who judged and published it."""
    licence: str = ""
    """Licence under which the source is available; empty: not known."""

    @property
    def timed(self) -> bool:
        """Whether it has a speedup that counts: that of a right candidate."""
        return self.correct and self.speedup > 0


def steps_of_run(verdicts: Iterable[tuple[Attempt, Verdict]], sources: Mapping[str, Candidate]) -> list[list[Step]]:
    """The chains of a stored run, from its finished attempts and their sources: attempts of one generator, task and
    machine of which each names the one before it as the parent of its candidate (``Origin.parent``). Attempts that
    nothing refines and that refine nothing, or that were not judged, are left out.
    """
    groups: dict[tuple[str, str, str], dict[str, tuple[Attempt, Verdict]]] = {}
    for attempt, verdict in verdicts:
        if attempt.candidate and verdict.verdict != "not_judged":
            where = (attempt.generator, attempt.task, attempt.machine)
            groups.setdefault(where, {}).setdefault(attempt.candidate, (attempt, verdict))
    chains = []
    for (generator, _, _), known in groups.items():
        parents = {h: a.origin.parent for h, (a, _) in known.items() if a.origin and a.origin.parent in known}
        for last in known:
            if last in parents and last not in parents.values():
                line = [last]
                while (parent := parents.get(line[-1])) is not None and parent not in line:
                    line.append(parent)
                line.reverse()
                name = f"{generator} #{known[last][0].sample}"
                chains.append([_step(*known[h], sources, name, i) for i, h in enumerate(line)])
    return chains


def _step(attempt: Attempt, verdict: Verdict, sources: Mapping[str, Candidate], chain: str, place: int) -> Step:
    candidate = sources.get(attempt.candidate)
    failed = verdict.stage if verdict.verdict == "failed" else ""
    speed = verdict.speedup
    timed = [
        (c.case, c.outcome.timing)
        for c in verdict.cells
        if isinstance(c.outcome, Passed) and c.outcome.timing is not None
    ]
    noise = [timing.noise for _, timing in timed]
    direction = "forward" if speed is None else speed.direction
    return Step(
        task=attempt.task,
        chain=chain,
        round=place,
        code="\n".join(text for _, text in candidate.files) if candidate else "",
        built=failed not in ("generate", "build"),
        called=failed not in ("generate", "build", "call"),
        correct=not failed,
        stage=failed,
        reason=verdict.reason if failed else "",
        message=verdict.message if failed else "",
        speedup=math.nan if speed is None else speed.value,
        low=math.nan if speed is None else speed.low,
        high=math.nan if speed is None else speed.high,
        noise=sum(noise) / len(noise) if noise else math.nan,
        cells={case.key: (t.speedup, t.low, t.high) for case, t in timed if case.direction == direction},
        machine=attempt.machine,
        generator=attempt.generator,
        model=attempt.origin.model if attempt.origin else "",
        licence=attempt.origin.licence if attempt.origin else "",
    )


_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|#(?!\s*(?:include|define|pragma|if|el|end|undef))[^\n]*", re.DOTALL)


def really_changed(before: str, after: str) -> bool:
    """Whether two sources differ in more than comments, docstrings and white space."""
    return before != after and essence(before) != essence(after)


def essence(code: str) -> str:
    """A source without comments, docstrings and white space: of Python the dump of its syntax tree; of what does not
    parse as Python, the text without C's and Python's comments and without white space.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.sub(r"\s+", "", _COMMENT.sub("", code))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                node.body = node.body[1:]
    return ast.dump(tree)
