"""Runs every specimen and tells, for each, what the judge made of it and which layer caught it.

``python -m tests.attacks [--device cuda] [--repeats 5] [--only caching]``; exits 1 if any specimen did not get its due.
"""

from __future__ import annotations

import re
import sys
import time

from benchmarks.report import Report, parser
from tests.attacks.specimens import collect, elsewhere, got_its_due, judged

from kerneleval.judge import Judge
from kerneleval.records import Failed, Verdict, caught_by


def main() -> int:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--repeats", type=int, default=1, help="how often every honest specimen is judged")
    made.add_argument("--attack-repeats", type=int, default=1, help="how often every attack is")
    made.add_argument("--only", default="", help="only specimens with this in folder/name (a regular expression)")
    made.add_argument("--skip", type=int, default=0, help="begin with this specimen")
    made.add_argument("--step", type=int, default=1, help="of those, only every so many: parts side by side")
    made.add_argument("--seconds", type=float, default=1e9, help="stop beginning new specimens after this long")
    options = made.parse_args()
    wrong: list[str] = []
    rows = []
    with Judge(options.device) as judge:
        report = Report("attacks", judge.machine, options.out)
        specimens = [s for s in collect(judge.device.name) if re.search(options.only, s.name)]
        specimens = specimens[options.skip :: options.step]
        started = time.monotonic()
        seen = []
        for specimen in specimens:
            if time.monotonic() - started > options.seconds:
                break
            seen.append(specimen)
            for _ in range(options.repeats if specimen.verdict == "passed" else options.attack_repeats):
                begun = time.monotonic()
                verdict = judged(judge, specimen)
                due = got_its_due(specimen, verdict)
                seconds = f"{time.monotonic() - begun:.1f}"
                layer = caught_by(verdict)
                rows.append(
                    (specimen.kind, specimen.name, verdict.verdict, verdict.stage, verdict.reason, layer, seconds)
                )
                if not due:
                    got = f"{verdict.verdict} {verdict.stage} {verdict.reason}"
                    wrong.append(f"{specimen.name}: {got}: {_why(verdict)}")
                print(*rows[-1], "" if due else "NOT ITS DUE", flush=True)
        report.table(("class", "specimen", "verdict", "stage", "reason", "layer", "seconds"), rows)
        left, others = len(specimens) - len(seen), elsewhere(judge.device.name)
        attacks = [s for s in seen if s.verdict == "failed"]
        report.say(
            f"{len(attacks)} attacks of {len({s.kind for s in attacks})} classes, "
            f"{len(seen) - len(attacks)} honest specimens judged {options.repeats} times, "
            f"attacks {options.attack_repeats}; "
            f"{len(wrong)} did not get their due; {left} not run for lack of time",
            *(f"not run here: {count} for {name} (--device {name})" for name, count in others.items()),
            *wrong,
        )
        report.data = {"rows": rows, "wrong": wrong, "not_run": left, "for_other_devices": others}
        report.write()
    return 1 if wrong else 0


def _why(verdict: Verdict) -> str:
    failed = next((c for c in verdict.cells if isinstance(c.outcome, Failed)), None)
    return f"{verdict.message} ({failed.case.key})"[:400] if failed else verdict.message[:400]


if __name__ == "__main__":
    sys.exit(main())
