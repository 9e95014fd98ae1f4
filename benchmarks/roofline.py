"""How near eager PyTorch comes to this machine's measured limits, over the 28 core operators, forward and backward.

Each reference is judged as a candidate against itself, at the large sampled shape in float32 and at the largest shape
of a model that fits in bfloat16 (where the task has either). IOU, MFU and the fraction of the limit are those of the
verdicts. Nothing may lie above 1 but by noise, or where fewer operations or bytes than a task states will do: what does
is listed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.report import Report, parser, until_ended
from kerneleval import pipeline, tasks
from kerneleval.judge import Judge
from kerneleval.judge.timing.effort import TIERS
from kerneleval.judge.timing.statistics import Noise
from kerneleval.judge.timing.timer import CLASSES_NS, NoiseFigures
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import Case, CellResult, Failed, Passed, Protocol, Task
from kerneleval.tasks import shapes
from kerneleval.tasks.real_shapes import real_shapes

_WINDOW_NS, _CALLS, _BLOCKS = 8e6, 512, 3
"""Windows as long as the standard tier's, in one session."""

_BYTES, _FLOPS = 1 << 30, 10_000_000_000_000
"""Largest shapes of models: they are judged in fp64 too."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One timed cell."""

    case: Case
    """Where."""
    us: float
    """Median time of a call."""
    limit: dict[str, Any]
    """``evidence.limit`` of the verdict."""
    cache: str
    """``cold`` or ``warm``."""

    @property
    def fraction(self) -> float:
        """Share of the limit that is reached."""
        return float(self.limit["fraction"])


def chosen(task: Task, planned: Sequence[Case], *, real: bool) -> list[Case]:
    """One case a direction: the largest by bytes, of those of models only what is judged in time."""
    found: dict[str, Case] = {}
    for case in sorted(planned, key=lambda case: task.bytes(case.dims_map, case.dtype)):
        fits = task.bytes(case.dims_map, case.dtype) <= _BYTES and task.flops(case.dims_map) <= _FLOPS
        if fits or not real:
            found[case.direction] = case
    return list(found.values())


def rows_of(cells: Sequence[CellResult]) -> list[Row]:
    """The timed cells."""
    found = []
    for cell in cells:
        if isinstance(cell.outcome, Passed) and cell.outcome.timing is not None:
            samples = cell.outcome.timing.samples
            us = statistics.median(samples.candidate_ns) / 1e3
            found.append(Row(case=cell.case, us=us, limit=cell.outcome.evidence["limit"], cache=samples.cache))
    return found


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tasks", default="", help="comma separated; empty: the 28 core operators")
    made.add_argument("--shapes", default="large,model", help="large, model, or both with a comma")
    made.add_argument("--seconds", type=float, default=140.0, help="stop beginning new operators after this long")
    options = made.parse_args()
    names = [n for n in options.tasks.split(",") if n] or list(tasks.CORE)
    kinds = options.shapes.split(",")
    if unknown := set(kinds) - {"large", "model"}:
        made.error(f"--shapes {', '.join(sorted(unknown))} is unknown; they are large and model")
    rows: list[Row] = []
    failures: list[tuple[str, str, str]] = []
    missed: list[str] = []
    with Judge(options.device) as judge:
        report = Report("roofline", judge.machine, options.out)
        started = time.monotonic()
        peaks = pipeline.peaks(judge=judge)["peaks"]
        report.say("peaks: " + ", ".join(f"{p['name']} {p['best']:.4g} {p['unit']}" for p in peaks if p["best"]), "")
        none = NoiseFigures(call=(Noise(spread=0.0, between=0.0),) * len(CLASSES_NS), device=())
        judge.noise = lambda *_: none  # type: ignore[method-assign]
        TIERS["quick"] = replace(
            TIERS["quick"], window_ns=_WINDOW_NS, max_calls=_CALLS, min_blocks=_BLOCKS, max_blocks=_BLOCKS
        )
        work = [(name, False) for name in names if "large" in kinds]
        work += [(name, True) for name in names if "model" in kinds and real_shapes(tasks.find(name))]
        with until_ended():
            for name, real in work:
                what = f"{name} ({'model' if real else 'large'})"
                if time.monotonic() - started > options.seconds:
                    missed.append(what)
                    continue
                cells = _judged(judge, tasks.find(name), real=real)
                rows += rows_of(cells)
                failures += [
                    (c.case.key, c.outcome.reason, c.outcome.message[:200])
                    for c in cells
                    if isinstance(c.outcome, Failed)
                ]
                print(f"{what}: {len(cells)} cells, {time.monotonic() - started:.0f} s in all", flush=True)
        _tell(report, rows, failures, missed, time.monotonic() - started)
        report.write()


def _judged(judge: Judge, task: Task, *, real: bool) -> Sequence[CellResult]:
    dtype = "bfloat16" if real and "bfloat16" in task.dtypes else task.dtypes[0]
    protocol = Protocol(
        tier="quick",
        dtypes=(dtype,),
        distributions=("standard",),
        shapes="real" if real else "default",
        categories=() if real else ("large",),
        allow=("custom", "mixed", "library"),
    )
    planned = [c for c in judge.plan(task, protocol) if shapes.is_timed(c, task, protocol)]
    cases = chosen(task, planned, real=real)
    if not cases:
        return ()
    return judge.check(baseline_candidate(task, protocol), task, protocol, cases=cases, trusted=True).cells


def _tell(
    report: Report, rows: Sequence[Row], failures: Sequence[tuple[str, str, str]], missed: Sequence[str], seconds: float
) -> None:
    table = []
    for row in rows:
        case, limit = row.case, row.limit
        dims = " ".join(f"{n}={v}" for n, v in case.dims)
        mfu = "" if limit["mfu"] is None else f"{limit['mfu']:.3f}"
        where = (case.task, case.direction, case.shape_category, case.dtype, dims)
        table.append((*where, f"{row.us:.1f}", row.cache, f"{limit['iou']:.3f}", mfu, f"{row.fraction:.3f}"))
    head = ("operator", "direction", "shape", "dtype", "dims", "us", "cache", "IOU", "MFU", "fraction")
    report.table(head, table)
    above = [row for row in rows if row.fraction > 1]
    if rows:
        fractions = sorted(row.fraction for row in rows)
        report.say(
            f"{len(rows)} cells; fraction of the limit: median {statistics.median(fractions):.3f}, least "
            f"{fractions[0]:.3f}, most {fractions[-1]:.3f}"
        )
    report.say(f"above 1: {len(above) or 'nothing'}")
    for row in above:
        report.say(f"  {row.case.key}: {row.fraction:.4f} ({row.limit['bound']}, {row.us:.1f} us, {row.cache})")
    report.say(f"failures: {len(failures)}; not run for lack of time: {', '.join(missed) or 'none'}; {seconds:.0f} s")
    for failure in failures[:20]:
        report.say("  " + " | ".join(failure))
    report.data = {
        "rows": [
            {"case": r.case.key, "shape": r.case.shape_category, "us": r.us, "cache": r.cache} | r.limit for r in rows
        ],
        "above_1": [row.case.key for row in above],
        "failures": list(failures),
        "missed": list(missed),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
