"""Portability matrices of many candidates on a machine without a GPU: which targets each compiles for, and how long it
takes.

    python -m benchmarks.matrix --generators robust,fragile,liger

Archetypes' Triton kernels come in the device kind ``cuda``. Liger-Kernel must be importable (PYTHONPATH will do).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.report import Report, parser
from kerneleval import devices, generators, pipeline, tasks
from kerneleval.languages.crosscompile import TARGETS
from kerneleval.records import Matrix, UsageError, to_plain


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--generators", default="robust,fragile,liger", help="names, with commas")
    made.add_argument(
        "--tasks", default="", help="names, with commas; empty: the archetypes' suite, and a library's own"
    )
    made.add_argument("--dtypes", default="float32", help="names, with commas; empty: the tasks' own")
    made.add_argument("--seconds", type=float, default=0.0, help="begin nothing more after so long; 0: never")
    options = made.parse_args()
    report = Report("matrix", devices.find("cpu").machine(), options.out)
    dtypes = tuple(filter(None, options.dtypes.split(",")))
    started, rows, times = time.monotonic(), [], []
    left: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.generators.split(","):
            generator = generators.find(name)
            if isinstance(generator, generators.Asked):
                raise UsageError(f"{name} is asked for its candidates: give its folder of them instead")
            own = getattr(generator, "tasks", ()) or generators.SUITE
            for task in filter(None, options.tasks.split(",")) if options.tasks else own:
                for candidate in generator.candidates(tasks.find(task), "cuda"):
                    if candidate.language not in ("triton", "cuda"):
                        left[f"{name}: {candidate.language}"] += 1
                        continue
                    if options.seconds and time.monotonic() - started > options.seconds:
                        left["out of time"] += 1
                        continue
                    path = Path(folder) / ("candidate.py" if candidate.language == "triton" else "candidate.cu")
                    path.write_text(candidate.main)
                    found = pipeline.matrix(
                        path,
                        task,
                        dtypes=dtypes,
                        judged=False,
                        entry=candidate.entry,
                        backward_entry=candidate.backward_entry,
                    )
                    sample = candidate.origin.sample
                    rows.append((name, task, sample, found))
                    times += [kernel.seconds for row in found.rows for kernel in row.kernels if kernel.seconds > 0.01]
    _write(report, rows, times, left, time.monotonic() - started)


def _write(
    report: Report,
    rows: list[tuple[str, str, int, Matrix]],
    times: list[float],
    left: Counter[str],
    seconds: float,
) -> None:
    report.say(
        f"{len(rows)} candidates, {len(TARGETS)} targets, {seconds:.0f} s; + compiles, x does not, . not evaluated"
    )
    marks = {"yes": "+", "no": "x", "not evaluated": "."}
    report.table(
        ("generator", "task", "sample", *TARGETS, "kernels", "s"),
        [
            (
                name,
                task,
                sample,
                *(marks[row.compiles.answer] for row in found.rows),
                max(len(row.kernels) for row in found.rows),
                f"{sum(row.seconds for row in found.rows):.1f}",
            )
            for name, task, sample, found in rows
        ],
    )
    if times:
        quartiles = statistics.quantiles(times, n=4)
        report.say(
            f"a kernel for a target: {statistics.median(times):.2f} s in the median, quartiles {quartiles[0]:.2f} and "
            f"{quartiles[2]:.2f}, {len(times)} of them"
        )
    report.say("left out: " + (", ".join(f"{what} {count}" for what, count in left.items()) or "none"))
    seen: set[tuple[str, str]] = set()
    for name, task, sample, found in rows:
        for row in found.rows:
            key = (f"{name} {task} #{sample}", row.compiles.why[:300])
            if row.compiles.answer == "no" and key not in seen:
                seen.add(key)
                report.say(f"{key[0]}, {row.target}: {' '.join(key[1].split())}")
    plain: list[Any] = [{"generator": n, "task": t, "sample": s, "matrix": to_plain(m)} for n, t, s, m in rows]
    report.data = {"candidates": plain}
    report.write()


if __name__ == "__main__":
    main()
