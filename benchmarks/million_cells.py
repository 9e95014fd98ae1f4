"""A store of many cells: its size, and the time and memory of writing it, of score, compare, report and export.

The cells are made up (synthetic): no candidate was judged. They have the form of real ones: generators, tasks, samples,
shapes of eight categories, one cell in ten failed with message and evidence, two in five of the others timed.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.report import Report, parser, until_ended
from kerneleval import devices
from kerneleval.records import (
    CATEGORIES,
    GROUPS,
    SHAPE_CATEGORIES,
    Candidate,
    Case,
    CellResult,
    Failed,
    Origin,
    Passed,
    Protocol,
    Samples,
    Timing,
    Trust,
    Verdict,
)
from kerneleval.store import NewRun, Planned, open_store

GENERATORS, SAMPLES, CASES, PAIRS = 5, 2, 100, 20
_PROTOCOL = Protocol(dtypes=("float32", "bfloat16"))


def cases(task: str, generator: np.random.Generator) -> tuple[Case, ...]:
    """A hundred cases: two directions, two types, eight categories of shape."""
    sizes = generator.integers(1, 8192, (CASES, 2))
    return tuple(
        Case(
            task=task,
            direction="backward" if i % 2 else "forward",
            dims=(("M", int(sizes[i, 0])), ("N", int(sizes[i, 1]) * CASES + i)),
            dtype=_PROTOCOL.dtypes[i // 2 % 2],
            layout=("contiguous", "transposed", "sliced")[i % 3],
            shape_category=SHAPE_CATEGORIES[i % 8],
        )
        for i in range(CASES)
    )


def outcome(generator: np.random.Generator) -> Passed | Failed:
    """One made-up outcome."""
    error = float(generator.exponential(1e-7))
    if generator.random() < 0.1:
        evidence = {"relative_rms_error": error * 1e5, "relative_rms_bound": 1e-6, "worst_index": [3, 5], "got": 1.5}
        message = "output 0: relative rms error 0.01, bound 1e-06; element [3, 5] is 1.5, expected 1.25"
        return Failed(stage="correctness", reason="wrong_output", message=message, evidence=evidence, replay="x" * 150)
    timing = None
    if generator.random() < 0.4:
        speedup = float(np.exp(generator.normal(0.1, 0.3)))
        times = generator.normal(1e5, 1e3, PAIRS)
        samples = Samples(
            candidate_ns=tuple(times), baseline_ns=tuple(times * speedup), calls=10, sessions=(0,) * PAIRS
        )
        claim = "faster" if speedup > 1.03 else "slower" if speedup < 0.97 else "equal"
        timing = Timing(
            samples=samples, speedup=speedup, low=speedup * 0.98, high=speedup * 1.02, noise=0.01, claim=claim
        )
    return Passed(timing=timing, evidence={"relative_rms_error": error, "relative_rms_bound": 1e-6})


def fill(url: str, cells: int) -> int:
    """A store of one run with at least so many cells; their number."""
    machine = devices.find("cpu").machine()
    tasks = max(1, -(-cells // (GENERATORS * SAMPLES * CASES)))
    draw = np.random.default_rng(1)
    names = [f"g{g}" for g in range(GENERATORS)]
    plan = [
        Planned(
            generator=name,
            sample=sample,
            task=f"task{t:04d}",
            category=CATEGORIES[t % len(CATEGORIES)],
            group=GROUPS[t % len(GROUPS)],
            level=1 + t % 2,
            cases=of,
            candidate=Candidate(
                files=(("kernel.py", f"# {name} {sample} {t}\n" + "def run(x):\n    return x\n" * 40),),
                language="triton",
                origin=Origin(generator=name, sample=sample, tokens_out=1000, money_usd=0.01, seconds=3.0),
            ),
        )
        for t in range(tasks)
        for of in [cases(f"task{t:04d}", draw)]
        for name in names
        for sample in range(SAMPLES)
    ]
    trust = Trust(level="standard", layers=("process",))
    with open_store(url) as store:
        run = store.begin_run(
            NewRun(name="many", generators=tuple(names), machines=(machine,), protocol=_PROTOCOL, plan=tuple(plan))
        )
        for one in plan:
            assert one.candidate is not None
            found = tuple(CellResult(case=case, outcome=outcome(draw)) for case in one.cases)
            verdict = Verdict(
                verdict="failed",
                stage="correctness",
                reason="wrong_output",
                message="made up",
                task=one.task,
                candidate=one.candidate.hash,
                track="custom",
                trust=trust,
                machine=machine,
                protocol=_PROTOCOL,
                speedup=None,
                cells=found,
                seconds=1.0,
            )
            store.put_verdict(run, one.generator, one.sample, one.candidate, verdict)
    return len(plan) * CASES


def commands(url: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """What is measured, each in a process of its own."""
    yield "score", ["score", "--json"]
    yield "compare g0 g1", ["compare", "g0", "g1", "--json"]
    yield "report --html", ["report", "--html", str(folder / "report.html")]
    yield "export, Parquet", ["export", str(folder / "tables")]


def measured(arguments: list[str], url: str) -> tuple[float, float]:
    """(seconds, peak memory in GiB) of one command; raises where it fails."""
    program = (
        "import resource, sys; from kerneleval.cli import main; code = main(sys.argv[1:]); "
        "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--store", url], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr[-500:]}")
    peak_kib = float(done.stderr.rsplit("peak", 1)[1])
    return time.monotonic() - began, peak_kib / 2**20


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--cells", type=int, default=1_000_000)
    options = made.parse_args()
    report = Report("million_cells", devices.find("cpu").machine(), options.out)
    rows: list[tuple[str, ...]] = []
    with until_ended(), tempfile.TemporaryDirectory() as scratch:
        url = str(Path(scratch) / "many.db")
        began = time.monotonic()
        cells = fill(url, options.cells)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(("write", f"{time.monotonic() - began:.0f}", f"{peak:.2f}"))
        nbytes = Path(url).stat().st_size
        for name, arguments in commands(url, Path(scratch)):
            seconds, peak = measured(arguments, url)
            rows.append((name, f"{seconds:.0f}", f"{peak:.2f}"))
            print(json.dumps(rows[-1]), flush=True)
        page = (Path(scratch) / "report.html").stat().st_size
        report.say(
            f"{cells} synthetic cells of one run; store {nbytes / 2**20:.0f} MiB, {nbytes / cells:.0f} bytes a cell; "
            f"HTML report {page / 2**20:.1f} MiB"
        )
    report.table(("command", "seconds", "peak memory, GiB"), rows)
    report.data = {"cells": cells, "store_bytes": nbytes, "rows": rows}
    report.write()


if __name__ == "__main__":
    main()
