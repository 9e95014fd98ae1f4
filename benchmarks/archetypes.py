"""The three archetypes over the suite on one device: the paper's Table 1 with measured figures."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from rich.console import Console

from benchmarks.report import Report, parser
from kerneleval import pipeline
from kerneleval.judge import Judge
from kerneleval.reports import terminal


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tier", default="standard")
    options = made.parse_args()
    with Judge(options.device) as judge, tempfile.TemporaryDirectory() as scratch:
        report = Report("archetypes", judge.machine, options.out)
        store = str(Path(scratch) / "run.db")
        started = time.monotonic()
        run = pipeline.run(store_url=store, tier=options.tier, judge=judge)
        report.say(f"judged in {time.monotonic() - started:.0f} s", "")
        scores = pipeline.score(store, run)
        console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
        terminal.render_scores(scores, console)
        report.say(console.export_text())
        report.data = json.loads(json.dumps(scores))
        report.write()


if __name__ == "__main__":
    main()
