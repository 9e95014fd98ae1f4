"""A/A: every operator's reference as candidate against itself. Nothing may come out faster or slower.

Prints, per operator and shape, the interval of the speedup; then the share of intervals that contain 1, the claims, and
the largest deviation among cells of 100 us or more.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.report import Report, parser, until_ended
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import Failed, Passed, Protocol


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tier", default="standard")
    made.add_argument("--tasks", default="", help="comma separated; empty: all")
    made.add_argument("--categories", default="", help="comma separated; empty: all")
    made.add_argument("--directions", default="forward")
    made.add_argument("--seconds", type=float, default=420.0, help="stop beginning new operators after this long")
    options = made.parse_args()
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
        report.say(f"noise by duration class (spread of a quad, between sessions): {noise}", "")
        done = []
        with until_ended():
            for name in names:
                if time.monotonic() - started > options.seconds:
                    break
                task = tasks.find(name)
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
        calls, quads = t.samples.calls, len(t.samples.baseline_ns) // 2
        interval = f"[{t.low:.4f}, {t.high:.4f}]"
        where = (name, case.direction, case.shape_category)
        figures = (f"{us:.1f}", calls, quads, f"{t.speedup:.4f}", interval, t.claim, t.device_time.split(":")[0])
        table.append((*where, *figures))
    report.table(
        ("operator", "direction", "shape", "us", "calls", "quads", "speedup", "interval", "claim", "device time"), table
    )
    contain = [t.low <= 1 <= t.high for _, _, t in rows]
    claims = [t.claim for _, _, t in rows]
    long = [t for _, _, t in rows if statistics.median(t.samples.baseline_ns) >= 1e5]
    worst = max((abs(t.speedup - 1) for t in long), default=float("nan"))
    report.data = {
        "cells": len(rows),
        "contain_1": sum(contain),
        "faster": claims.count("faster"),
        "slower": claims.count("slower"),
        "cells_100us": len(long),
        "worst_100us": worst,
        "beyond_1_percent_100us": sum(abs(t.speedup - 1) > 0.01 for t in long),
        "failures": failures,
        "skipped": skipped,
        "rows": [{"task": n, "case": c.key, "category": c.shape_category, "timing": t} for n, c, t in rows],
    }
    report.say(
        f"{sum(contain)} of {len(rows)} intervals contain 1 ({sum(contain) / max(len(rows), 1):.1%})",
        f"claims: {claims.count('faster')} faster, {claims.count('slower')} slower, {claims.count('equal')} equal, "
        f"{claims.count('inconclusive')} inconclusive",
        f"cells of 100 us or more: {len(long)}, largest |speedup - 1| {worst:.2%}, "
        f"{sum(abs(t.speedup - 1) > 0.01 for t in long)} beyond 1 %",
        f"failures: {len(failures)}; not run for lack of time: {', '.join(skipped) or 'none'}",
    )
    for failure in failures[:20]:
        report.say("  " + " | ".join(failure))


if __name__ == "__main__":
    main()
