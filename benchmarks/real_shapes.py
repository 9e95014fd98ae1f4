"""The robust archetype at the shapes of models (``--shapes real``): verdict, and its speedup at each of them.

What a real shape asks of a machine is judged as any other case: right on standard data at every shape that fits, timed
at each, right in other layouts and on other data at the smallest.
"""

from __future__ import annotations

import time

from benchmarks.report import Report, parser, until_ended
from kerneleval import tasks
from kerneleval.generators.archetypes import ARCHETYPES, SUITE, Archetype
from kerneleval.judge import Judge
from kerneleval.records import DTYPES, Passed, Protocol, UsageError
from kerneleval.tasks.real_shapes import real_shapes


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tasks", default="softmax_cross_entropy,rms_norm,swiglu", help="of the archetypes' suite")
    made.add_argument("--dtypes", default="bfloat16", help="dtypes, comma separated")
    made.add_argument("--archetype", default="robust", choices=ARCHETYPES)
    options = made.parse_args()
    names, dtypes = options.tasks.split(","), tuple(options.dtypes.split(","))
    if unknown := [name for name in names if name not in SUITE or not real_shapes(tasks.find(name))]:
        raise UsageError(f"no archetype with shapes of models for {', '.join(unknown)}; known are {', '.join(SUITE)}")
    if unknown := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise UsageError(f"unknown dtypes {', '.join(unknown)}; known are {', '.join(DTYPES)}")
    archetype = Archetype(name=options.archetype, summary=ARCHETYPES[options.archetype])
    protocol = Protocol(tier="quick", dtypes=dtypes, directions=("forward",), shapes="real")
    with Judge(options.device) as judge:
        report = Report("real_shapes", judge.machine, options.out)
        judge.noise(protocol)
        report.data = {"verdicts": []}
        with until_ended():
            for name in names:
                task = tasks.find(name)
                (candidate,) = archetype.candidates(task, judge.device.name)
                started = time.perf_counter()
                verdict = judge.check(candidate, task, protocol)
                seconds = time.perf_counter() - started
                rows = []
                for cell in verdict.cells:
                    if isinstance(cell.outcome, Passed) and (timing := cell.outcome.timing) is not None:
                        shape = cell.case.shape_category.partition(":")[2]
                        dims = " ".join(f"{name}={size}" for name, size in cell.case.dims)
                        interval = f"{timing.low:.3f} to {timing.high:.3f}"
                        rows.append((shape, dims, cell.case.dtype, f"{timing.speedup:.3f}", interval))
                report.say(
                    f"{name}, {archetype.name}: {verdict.verdict} {verdict.message}, {len(verdict.cells)} cells, "
                    f"{len(rows)} timed, {seconds:.1f} s"
                )
                report.table(("shape", "dims", "dtype", "speedup", "interval"), rows)
                for line in judge.left_out(task, protocol):
                    report.say(line)
                report.data["verdicts"].append({"task": name, "verdict": verdict.verdict, "rows": rows})
    report.write()


if __name__ == "__main__":
    main()
