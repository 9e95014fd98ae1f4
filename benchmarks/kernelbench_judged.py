"""KernelBench's own references as candidates, through the whole judge, at the files' own sizes or shrunk.

Every problem of the levels named must pass on the library track; what does not is listed with its reason.
"""

from __future__ import annotations

import collections
import re
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Report, parser
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.records import Candidate, KernelEvalError, Protocol, ReplaySource
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import shrink

_FLOPS_A_BYTE = 64
"""Operations of a shrunk problem for each byte."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--repo", type=Path, required=True, help="checkout of KernelBench")
    made.add_argument("--levels", default="1,2")
    made.add_argument("--every", type=int, default=1, help="only every n-th problem")
    made.add_argument("--skip", type=int, default=0, help="begin with this problem of the list")
    made.add_argument("--only", default="", help="regular expression on the files' names")
    made.add_argument("--mebibytes", type=int, default=0, help="size to which problems are shrunk; 0: their own")
    made.add_argument("--timed", action="store_true")
    made.add_argument("--seconds", type=float, default=540.0, help="stop beginning new problems after this long")
    options = made.parse_args()
    files = []
    for level in options.levels.split(","):
        found = (options.repo / "KernelBench" / f"level{level}").glob("*.py")
        files += sorted(found, key=lambda p: int(p.name.split("_")[0]))
    files = [f for f in files[options.skip :: options.every] if re.search(options.only, f.name)]
    protocol = Protocol(tier="quick", timed=options.timed, allow=("custom", "mixed", "library"))
    rows, left = [], []
    with Judge(options.device) as judge:
        report = Report("kernelbench_judged", judge.machine, options.out)
        began = time.monotonic()
        for path in files:
            if time.monotonic() - began > options.seconds:
                left.append(path.name)
                continue
            rows.append(_row(judge, path, protocol, options.mebibytes << 20))
            print(*rows[-1], flush=True)
        failed = [r for r in rows if r[2] != "passed"]
        report.table(("level", "problem", "verdict", "reason", "seconds", "message"), failed)
        counts = collections.Counter(r[2] for r in rows)
        report.say(
            f"{counts['passed']} of {len(rows)} passed in {time.monotonic() - began:.0f} s; "
            f"median {sorted(r[4] for r in rows)[len(rows) // 2]:.2f} s a problem; not run, no time: {len(left)}"
        )
        report.data = {"rows": rows, "not_run": left}
        report.write()


def _row(judge: Judge, path: Path, protocol: Protocol, most_bytes: int) -> tuple[str, str, str, str, float, str]:
    started = time.perf_counter()
    level = path.parent.name
    try:
        task = tasks.open_task(str(path))
        if most_bytes:
            category, own = task.case_dims[0]
            dims = own | shrink(Surveys(ProblemFile(path)), most_bytes, most_bytes * _FLOPS_A_BYTE)
            task = replace(task, case_dims=((category, dims),))
        source = path.read_text()
        candidate = Candidate(files=((path.name, source),), language="torch", entry="Model")
        verdict = judge.check(candidate, task, protocol, replay=ReplaySource(source=str(path), task=str(path)))
    except KernelEvalError as error:
        return level, path.name, "error", type(error).__name__, time.perf_counter() - started, str(error)[:200]
    seconds = time.perf_counter() - started
    return level, path.name, verdict.verdict, verdict.reason, round(seconds, 2), verdict.message[:200]


if __name__ == "__main__":
    main()
