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
from kerneleval.records import Event
from kerneleval.reports import scores_view

_LINE_S = 15.0
"""A line of progress comes no more often."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tier", default="standard")
    made.add_argument("--store", default="", help="SQLite file that an interrupted run goes on from; empty: a new one")
    options = made.parse_args()
    with Judge(options.device) as judge, tempfile.TemporaryDirectory() as scratch:
        report = Report("archetypes", judge.machine, options.out)
        store = options.store or str(Path(scratch) / "run.db")
        started = time.monotonic()
        told = started

        def tell(event: Event) -> None:
            nonlocal told
            if time.monotonic() - told > _LINE_S:
                told = time.monotonic()
                print(f"{told - started:.0f} s: {event.kind} {event.done} of {event.total} {event.text}", flush=True)

        run = pipeline.run(store_url=store, tier=options.tier, judge=judge, on_event=tell)
        report.say(f"judged in {time.monotonic() - started:.0f} s", "")
        scores = pipeline.score(store, run)
        console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
        scores_view.render_scores(scores, console)
        report.say(console.export_text())
        report.data = json.loads(json.dumps(scores))
        report.write()


if __name__ == "__main__":
    main()
