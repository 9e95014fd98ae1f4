"""Portability matrices of many candidates on a machine without a GPU: which targets each compiles for, and how long it
takes.

    python -m benchmarks.matrix --generators robust,fragile,liger

Archetypes' Triton kernels come in the device kind ``cuda``. Liger-Kernel must be importable (PYTHONPATH will do). With
``--journal FILE`` each candidate is a line there as soon as it is done, and one that has its line is not done again: so
``--seconds`` makes it a long job in parts.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Report, parser
from kerneleval import devices, generators, pipeline, tasks
from kerneleval.languages.crosscompile.targets import TARGETS
from kerneleval.records import Candidate, CandidateSpec, Protocol, UsageError, to_plain

Row = dict[str, Any]
"""``generator``, ``task``, ``sample``, ``dtypes``, and the ``matrix`` as plain data."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--generators", default="robust,fragile,liger", help="names, with commas")
    made.add_argument(
        "--tasks", default="", help="names, with commas; empty: the archetypes' suite, and a library's own"
    )
    made.add_argument("--dtypes", default="float32", help="names, with commas; empty: the tasks' own")
    made.add_argument("--seconds", type=float, default=0.0, help="begin nothing more after so long; 0: never")
    made.add_argument("--journal", type=Path, help="file of what is done already, a line of JSON each; it grows")
    options = made.parse_args()
    report = Report("matrix", devices.find("cpu").machine(), options.out)
    dtypes = tuple(filter(None, options.dtypes.split(",")))
    rows = _journalled(options.journal)
    done = {(row["generator"], row["task"], row["sample"], tuple(row["dtypes"])) for row in rows}
    left: Counter[str] = Counter()
    started = time.monotonic()
    for name, task, candidate in _candidates(options.generators.split(","), options.tasks):
        if candidate.language not in ("triton", "cuda"):
            left[f"{name}: {candidate.language}"] += 1
        elif (name, task, candidate.origin.sample, dtypes) in done:
            continue
        elif options.seconds and time.monotonic() - started > options.seconds:
            left["out of time"] += 1
        else:
            rows.append(_row(name, task, candidate, dtypes))
            if options.journal:
                with options.journal.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    _write(report, rows, left)


def _journalled(path: Path | None) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def _candidates(names: Sequence[str], only: str) -> Iterator[tuple[str, str, Candidate]]:
    for name in names:
        generator = generators.find(name)
        if isinstance(generator, generators.Asked):
            raise UsageError(f"{name} is asked for its candidates: give its folder of them instead")
        own = getattr(generator, "tasks", ()) or generators.SUITE
        for task in filter(None, only.split(",")) if only else own:
            for candidate in generator.candidates(tasks.find(task), "cuda"):
                yield name, task, candidate


def _row(name: str, task: str, candidate: Candidate, dtypes: tuple[str, ...]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("candidate.py" if candidate.language == "triton" else "candidate.cu")
        path.write_text(candidate.main)
        spec = CandidateSpec(
            source=str(path), task=task, entry=candidate.entry, backward_entry=candidate.backward_entry
        )
        found = pipeline.matrix(spec, Protocol(dtypes=dtypes), judged=False)
    sample = candidate.origin.sample
    return {"generator": name, "task": task, "sample": sample, "dtypes": list(dtypes), "matrix": to_plain(found)}


def _levels(targets: Sequence[Row], axis: str) -> str:
    """The rubric's levels over the targets, each once."""
    found = {level["level"] for target in targets if (level := target[axis]) is not None}
    return ",".join(str(level) for level in sorted(found - {None})) or "-"


def _units(targets: Sequence[Row]) -> list[str]:
    """Classes of instructions that some kernel has on some target."""
    kernels = (kernel for target in targets for kernel in target["kernels"])
    return list(dict.fromkeys(name for kernel in kernels for name, _ in kernel["instructions"]))


def _write(report: Report, rows: Sequence[Row], left: Counter[str]) -> None:
    by_row = [(row, row["matrix"]["rows"]) for row in rows]
    seconds = sum(target["seconds"] for _, targets in by_row for target in targets)
    report.say(
        f"{len(rows)} candidates, {len(TARGETS)} targets, {seconds:.0f} s; + compiles, x does not, . not evaluated"
    )
    marks = {"yes": "+", "no": "x", "not evaluated": "."}
    report.table(
        ("generator", "task", "sample", "dtypes", *TARGETS, "kernels", "R", "H", "uses", "s"),
        [
            (
                *(row[name] for name in ("generator", "task", "sample")),
                ",".join(row["dtypes"]),
                *(marks[target["compiles"]["answer"]] for target in targets),
                max(len(target["kernels"]) for target in targets),
                _levels(targets, "representation"),
                _levels(targets, "hardware"),
                ", ".join(_units(targets)) or "-",
                f"{sum(target['seconds'] for target in targets):.1f}",
            )
            for row, targets in by_row
        ],
    )
    each = [kernel["seconds"] for _, targets in by_row for target in targets for kernel in target["kernels"]]
    times = [s for s in each if s > 0.01]
    if len(times) > 1:
        quartiles = statistics.quantiles(times, n=4)
        report.say(
            f"a kernel for a target: {statistics.median(times):.2f} s in the median, quartiles {quartiles[0]:.2f} and "
            f"{quartiles[2]:.2f}, {len(times)} of them"
        )
    report.say("left out: " + (", ".join(f"{what} {count}" for what, count in left.items()) or "none"))
    seen: set[tuple[str, str]] = set()
    for row, targets in by_row:
        for target in targets:
            name = f"{row['generator']} {row['task']} #{row['sample']} {','.join(row['dtypes'])}"
            key = (name, target["compiles"]["why"][:300])
            if target["compiles"]["answer"] == "no" and key not in seen:
                seen.add(key)
                report.say(f"{name}, {target['target']}: {' '.join(key[1].split())}")
    report.data = {"candidates": list(rows)}
    report.write()


if __name__ == "__main__":
    main()
