"""A/A: every operator's reference as candidate against itself. Nothing may come out faster or slower.

Prints, per operator and shape, the interval of the speedup; then the share of intervals that contain 1, the claims, and
the largest deviation among cells of 20 us or more.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.report import Report, parser, until_ended
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import Failed, Passed, Protocol

_LONG_NS = 2e4


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tier", default="standard")
    made.add_argument("--tasks", default="", help="comma separated; empty: all")
    made.add_argument("--categories", default="", help="comma separated; empty: all")
    made.add_argument("--directions", default="forward")
    made.add_argument("--seconds", type=float, default=420.0, help="stop beginning new operators after this long")
    options = made.parse_args()
    directions = set(options.directions.split(","))
    words = {name: tuple(w for w in getattr(options, name).split(",") if w) for name in ("categories", "directions")}
    protocol = Protocol(
        tier=options.tier,
        dtypes=("float32",),
        distributions=("standard",),
        allow=("custom", "mixed", "library"),
        **words,
    )
    names = [n for n in options.tasks.split(",") if n] or list(tasks.CORE)
    rows, failures = [], []
    with Judge(options.device) as judge:
        report = Report("aa", judge.machine, options.out)
        started = time.monotonic()
        noise = judge.noise(protocol)
        report.say(f"noise by duration class (spread of a block, between sessions): {noise}", "")
        done = []
        with until_ended():
            for name in names:
                if time.monotonic() - started > options.seconds:
                    break
                task = tasks.find(name)
                if not directions & set(task.directions):
                    done.append(name)
                    continue
                verdict = judge.check(baseline_candidate(task, protocol), task, protocol, trusted=True)
                for cell in verdict.cells:
                    if isinstance(cell.outcome, Failed):
                        failures.append((cell.case.key, cell.outcome.reason, cell.outcome.message[:200]))
                    elif isinstance(cell.outcome, Passed) and cell.outcome.timing is not None:
                        rows.append((name, cell.case, cell.outcome.timing))
                done.append(name)
                print(f"{name}: {len(verdict.cells)} cells, {verdict.seconds:.0f} s", flush=True)
        skipped = [name for name in names if name not in done]
        _tell(report, rows, failures, skipped)
        report.write()


def _tell(report: Report, rows: list, failures: list, skipped: list) -> None:
    table = []
    for name, case, t in rows:
        us = statistics.median(t.samples.baseline_ns) / 1e3
        calls, blocks = t.samples.calls, len(t.samples.baseline_ns) // 2
        interval = f"[{t.low:.4f}, {t.high:.4f}]"
        where = (name, case.direction, case.shape_category)
        figures = (t.time, f"{us:.1f}", calls, blocks, f"{t.speedup:.4f}", interval, f"{t.margin:.3f}", t.claim)
        table.append((*where, *figures))
    report.table(
        ("operator", "direction", "shape", "time", "us", "calls", "blocks", "speedup", "interval", "margin", "claim"),
        table,
    )
    contain = [t.low <= 1 <= t.high for _, _, t in rows]
    claims = [t.claim for _, _, t in rows]
    long = [t for _, _, t in rows if statistics.median(t.samples.baseline_ns) >= _LONG_NS]
    halves = {
        "below 20 us": [(t.high / t.low - 1) / 2 for _, _, t in rows if t not in long],
        "20 us and more": [(t.high / t.low - 1) / 2 for t in long],
    }
    worst = max((abs(t.speedup - 1) for t in long), default=float("nan"))
    report.data = {
        "cells": len(rows),
        "contain_1": sum(contain),
        "faster": claims.count("faster"),
        "slower": claims.count("slower"),
        "by_time": {kind: sum(t.time == kind for _, _, t in rows) for kind in ("device", "call")},
        "half_width": {name: statistics.median(of) for name, of in halves.items() if of},
        "cells_20us": len(long),
        "worst_20us": worst,
        "beyond_1_percent_20us": sum(abs(t.speedup - 1) > 0.01 for t in long),
        "failures": failures,
        "skipped": skipped,
        "rows": [{"task": n, "case": c.key, "category": c.shape_category, "timing": t} for n, c, t in rows],
    }
    report.say(
        f"{sum(contain)} of {len(rows)} intervals contain 1 ({sum(contain) / max(len(rows), 1):.1%})",
        f"claims: {claims.count('faster')} faster, {claims.count('slower')} slower, {claims.count('equal')} equal, "
        f"{claims.count('inconclusive')} inconclusive",
        f"times: {report.data['by_time']}; median half widths: "
        + ", ".join(f"{name} {width:.2%}" for name, width in report.data["half_width"].items()),
        f"cells of 20 us or more: {len(long)}, largest |speedup - 1| {worst:.2%}, "
        f"{sum(abs(t.speedup - 1) > 0.01 for t in long)} beyond 1 %",
        f"failures: {len(failures)}; not run for lack of time: {', '.join(skipped) or 'none'}",
    )
    for failure in failures[:20]:
        report.say("  " + " | ".join(failure))


if __name__ == "__main__":
    main()
