"""Every built-in task tested on this device: all dtypes, both directions, its reference through the whole judge.

As ``kerneleval selftest``, with a line for each task as it is done and the machine in the heading.
"""

from __future__ import annotations

import time

from benchmarks.report import Report, parser
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.pipeline import selftest


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tasks", default="", help="comma separated; empty: four of each category; all: all")
    made.add_argument("--seconds", type=float, default=500.0, help="stop beginning new tasks after this long")
    options = made.parse_args()
    names = [n for n in options.tasks.split(",") if n] or list(tasks.CORE)
    if names == ["all"]:
        names = list(tasks.all_tasks())
    with Judge(options.device) as judge:
        report = Report("selftest", judge.machine, options.out)
        started, found = time.monotonic(), []
        for name in names:
            if time.monotonic() - started > options.seconds:
                break
            (one,) = selftest([name], judge=judge)
            found.append(one)
            state = "passed" if one["passed"] else "FAILED"
            report.say(f"{name:24} {state}  {one['cases']:4} cases  {one['seconds']:6.1f} s")
            for finding in one["findings"]:
                report.say(f"    {finding['test']}: {finding['case']}: {finding['message']}")
            report.data = {"tasks": found, "not_run": names[len(found) :]}
            report.write()  # a run that is stopped keeps what it has
        passed, cases = sum(one["passed"] for one in found), sum(one["cases"] for one in found)
        left = names[len(found) :]
        report.say(
            "",
            f"{passed} of {len(found)} tasks passed, {cases} cases, {time.monotonic() - started:.0f} s; "
            f"not run for lack of time: {', '.join(left) or 'none'}",
        )
        report.write()


if __name__ == "__main__":
    main()
