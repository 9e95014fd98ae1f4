"""What makes tasks difficult: static proxies of each task, and how they go with failure.

KernelBench-X calls such figures task-level static proxies. They are known before the first attempt; a rank correlation
with the observed share of wrong attempts shows which of them predict anything.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from kerneleval.records import Protocol, Result, Score, Task
from kerneleval.scores.common.cells import attempted, by_generator, by_key, checked, primary
from kerneleval.scores.common.intervals import NOTHING, SEED, Draw, interval
from kerneleval.scores.common.registry import DEFAULT, Setting

Floats = NDArray[np.float64]

PROXIES: dict[str, str] = {
    "arguments": "arguments of the operator",
    "output_rank": "dimensions of the first output",
    "dims": "free dims of its shapes",
    "flop_per_byte": "floating-point operations a byte, at a medium shape",
    "complexity": "K of the Standard Kernel Rubric",
    "reference_lines": "lines of the reference, one statement a line",
    "reference_nodes": "nodes of the reference's syntax tree",
    "backward": "whether gradients are judged",
}
"""Each proxy in words."""

FEWEST_TASKS = 5
"""Of fewer, no rank correlation has a p-value below 0.05 (4! = 24 orders, two of which are extreme)."""

PERMUTATIONS = 9999

_MEDIUM_BYTES, _MEDIUM_FLOPS = 64 << 20, 1 << 36


@dataclass(frozen=True, kw_only=True)
class TaskDifficulty:
    """One task: what can be known of it beforehand, and how it went."""

    task: str
    category: str
    group: str
    """Category in KernelBench-X's taxonomy; empty: none."""
    proxies: Mapping[str, float]
    """Proxy -> value; NaN: not available for this task."""
    right: float
    """Share of the attempts that are right in every supported case: mean over samples, then over generators."""
    attempts: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """How one proxy goes with failure."""

    proxy: str
    """One of :data:`PROXIES`."""
    rho: Score
    """Spearman's rank correlation with the share of wrong attempts: above 0, tasks with more of it fail more often.
    Interval by bootstrap over tasks; n is their number."""
    p: float
    p_adjusted: float
    """The same, adjusted over all proxies (Benjamini and Hochberg 1995, JRSS B 57:289)."""


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """Difficulty of the tasks of a run."""

    tasks: tuple[TaskDifficulty, ...]
    """Every task of the results, the hardest first."""
    correlations: tuple[Correlation, ...]
    note: str = ""


def difficulty(results: Iterable[Result], tasks: Mapping[str, Task], setting: Setting = DEFAULT) -> Difficulty:
    """Static proxies of every task, and the share of attempts that got it right, on the primary machine. Tasks that are
    missing have no proxies. Raises UsageError where a cell comes twice, or the setting names a device that was not
    evaluated.
    """
    cells = primary(list(results), setting)
    made = by_key(pair for of in by_generator(cells).values() for pair in attempted(checked(of)).items())
    first = {r.task: r for r in reversed(cells)}
    found = []
    for task, of_generators in made.items():
        values, note = proxies(tasks[task]) if task in tasks else (dict.fromkeys(PROXIES, math.nan), "not at hand")
        found.append(
            TaskDifficulty(
                task=task,
                category=first[task].category,
                group=first[task].group,
                proxies=values,
                right=statistics.fmean(statistics.fmean(one.correct for one in samples) for samples in of_generators),
                attempts=sum(map(len, of_generators)),
                note=note,
            )
        )
    missing = [one.task for one in found if one.task not in tasks]
    return Difficulty(
        tasks=tuple(sorted(found, key=lambda one: (one.right, one.task))),
        correlations=_correlations(found),
        note=f"{len(missing)} of {len(found)} tasks are not at hand: {', '.join(missing[:6])}" if missing else "",
    )


def proxies(task: Task) -> tuple[dict[str, float], str]:
    """The static proxies of a task, NaN where it has none; and why."""
    dims = _medium(task)
    dtype = task.dtypes[0]
    moved = task.bytes(dims, dtype)
    arguments = len(task.arguments(dims, dtype))
    lines, nodes = _size_of_reference(task, arguments)
    values = {
        "arguments": float(arguments),
        "output_rank": float(len(task.table.outputs[0].shape.split())) if task.table.outputs else math.nan,
        "dims": float(len(task.dims)),
        "flop_per_byte": task.flops(dims) / moved if moved else math.nan,
        "complexity": float(task.complexity),
        "reference_lines": lines,
        "reference_nodes": nodes,
        "backward": float("backward" in task.directions),
    }
    missing = [name for name, value in values.items() if math.isnan(value)]
    return values, f"not to be had: {', '.join(missing)}" if missing else ""


def _medium(task: Task) -> dict[str, int]:
    """Dims of its case of the medium category; where it has none, of its first one."""
    from kerneleval.tasks import sampling, shapes

    if task.case_dims:
        given = [dims for category, dims in task.case_dims if category == "medium"]
        return dict(given[0] if given else task.case_dims[0][1])
    budget = shapes.Budget(memory_bytes=_MEDIUM_BYTES, flops=_MEDIUM_FLOPS)
    plain = {"directions": ("forward",), "dtypes": task.dtypes[:1], "distributions": task.distributions[:1]}
    there = ("medium",) if sampling.exists(task, "medium") else ()
    return shapes.plan(task, Protocol(**plain, categories=there), budget)[0].dims_map  # type: ignore[arg-type]


def _size_of_reference(task: Task, arguments: int) -> tuple[float, float]:
    """Lines and nodes of the reference: of a problem file the whole file, of PyTorch's own function the call of it, of
    one of the library's own its body.
    """
    if task.baseline_source:
        return _size(task.baseline_source, whole=True)
    function: Any = task.reference
    while isinstance(function, functools.partial):
        function = function.func
    module = str(getattr(function, "__module__", None) or "")
    if module.split(".", maxsplit=1)[0] in ("torch", "") or inspect.isbuiltin(function):
        return _size(f"f({', '.join('x' * arguments)})", whole=True)
    try:
        text = inspect.getsource(function if inspect.isroutine(function) else type(function).__call__)
    except (OSError, TypeError):
        return math.nan, math.nan
    return _size(textwrap.dedent(text), whole=False)


def _size(text: str, *, whole: bool) -> tuple[float, float]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return math.nan, math.nan
    body: Sequence[ast.stmt] = tree.body
    if not whole and isinstance(body[0], (ast.FunctionDef, ast.ClassDef)):
        body = body[0].body
    body = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    lines = sum(len(ast.unparse(statement).splitlines()) for statement in body)
    return float(lines), float(sum(1 for statement in body for _ in ast.walk(statement)))


def _correlations(tasks: Sequence[TaskDifficulty]) -> tuple[Correlation, ...]:
    found = [
        _correlation(name, [one.proxies[name] for one in tasks], [1 - one.right for one in tasks]) for name in PROXIES
    ]
    tested = [i for i, (_, p) in enumerate(found) if not math.isnan(p)]
    adjusted = np.full(len(found), math.nan)
    if tested:
        adjusted[tested] = stats.false_discovery_control([found[i][1] for i in tested])
    return tuple(
        Correlation(proxy=name, rho=rho, p=p, p_adjusted=float(q))
        for name, (rho, p), q in zip(PROXIES, found, adjusted, strict=True)
    )


def _correlation(name: str, values: Sequence[float], failed: Sequence[float]) -> tuple[Score, float]:
    x, y = np.array([both for both in zip(values, failed, strict=True) if not math.isnan(both[0])]).reshape(-1, 2).T
    n = len(x)
    if n < FEWEST_TASKS:
        return NOTHING(f"{n} tasks with this proxy; a rank correlation needs {FEWEST_TASKS}", n), math.nan
    if np.ptp(x) == 0:
        return NOTHING(f"{name} is {x[0]:g} in every task", n), math.nan
    if np.ptp(y) == 0:
        return NOTHING(f"every task is failed by {100 * y[0]:.0f} % of its attempts", n), math.nan

    def rho(draw: Draw) -> Floats:
        return _pearson(*(stats.rankdata(of[draw.tasks], axis=-1) for of in (x, y)))

    value, low, high, undefined = interval(rho, n, n, never_outside=(-1.0, 1.0))
    note = f"{100 * undefined:.0f} % of the resamples have one value alone" if undefined > 0.05 else ""
    return Score(value=value, low=low, high=high, n=n, note=note), _p(x, y)


def _pearson(a: Floats, b: Floats) -> Floats:
    """Correlations along the last axis; NaN where either does not vary."""
    a, b = (of - of.mean(axis=-1, keepdims=True) for of in (a, b))
    size = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    out: Floats = np.where(size > 0, (a * b).sum(axis=-1) / np.where(size > 0, size, 1.0), math.nan)
    return np.clip(out, -1.0, 1.0)


def _p(x: Floats, y: Floats) -> float:
    """Share of the pairings of proxies with tasks whose rank correlation is as far from 0. The usual approximation by
    Student's t is for many tasks without ties.
    """
    a, b = (stats.rankdata(of) for of in (x, y))
    generator = np.random.default_rng(SEED)
    seen = abs(float(_pearson(a, b))) - 1e-12
    chunk = max(1, (1 << 21) // len(a))
    as_far = 0
    for start in range(0, PERMUTATIONS, chunk):
        count = min(chunk, PERMUTATIONS - start)
        shuffled = generator.permuted(np.broadcast_to(a, (count, len(a))), axis=-1)
        as_far += int((np.abs(_pearson(shuffled, b)) >= seen).sum())
    return (1 + as_far) / (1 + PERMUTATIONS)
