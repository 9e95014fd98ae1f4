"""P_hw of the three archetypes over several machines: run it on each of them, then once more where the stores are.

    python -m benchmarks.portable_archetypes --store gpu.db --seconds 500             # on one machine; again: goes on
    python -m benchmarks.portable_archetypes --store cpu.db --others gpu.db           # on another, which has gpu.db

The second command judges here as well, merges both stores into ``--merged`` and writes scores over all machines. With
``--seconds`` nothing more is begun after so long: what was judged is in the store, and the same command goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from benchmarks.report import Report, parser, until_ended
from kerneleval import pipeline
from kerneleval.judge import Judge
from kerneleval.records import Event, UsageError, to_plain
from kerneleval.reports import merge_view, scores_view
from kerneleval.reports.analysis_view import render_hardware
from kerneleval.reports.text import figure, number
from kerneleval.store import RunInfo, open_store

NAME = "portable_archetypes"
_LINE_S = 15.0
"""A line of progress comes no more often."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--store", required=True, help="store of this machine; an unfinished run in it goes on")
    made.add_argument("--others", default="", help="stores of other machines, with commas")
    made.add_argument("--merged", default="merged.db", help="store that takes all of them")
    made.add_argument("--tier", default="quick")
    made.add_argument("--dtypes", default="float32", help="names, with commas; empty: the tasks' own")
    made.add_argument("--tasks", default="", help="names, with commas; empty: the archetypes' suite")
    made.add_argument("--seconds", type=float, default=0.0, help="begin nothing more after so long; 0: never")
    options = made.parse_args()
    others = tuple(filter(None, options.others.split(",")))
    with Judge(options.device) as judge:
        report = Report(NAME, judge.machine, options.out)
        with until_ended():
            _judge(judge, options)
    with open_store(options.store, create=False, write=False) as store:
        own = store.run(NAME)
    report.say(f"{own.id} on {own.machines[0].name}: {own.finished} of {own.planned} attempts judged", "")
    if not own.complete:
        report.say("not complete, so nothing is scored: the same command goes on")
        report.write()
        return
    if others:
        _merge(report, own, others, options)
    else:
        _scores(report, options.store, [own])
    report.write()


def _judge(judge: Judge, options: Any) -> None:
    started = told = time.monotonic()

    def tell(event: Event) -> None:
        nonlocal told
        if time.monotonic() - told > _LINE_S:
            told = time.monotonic()
            print(f"{told - started:.0f} s: {event.kind} {event.done} of {event.total} {event.text}", flush=True)

    with open_store(options.store) as store:
        known = [info for info in store.runs() if info.name == NAME and judge.machine in info.machines]
    if known and known[0].complete:  # a complete one is not begun anew
        return
    pipeline.run(
        tasks=tuple(filter(None, options.tasks.split(","))),
        store_url=options.store,
        tier=options.tier,
        dtypes=tuple(filter(None, options.dtypes.split(","))),
        max_hours=options.seconds / 3600 if options.seconds else None,
        name=NAME,
        judge=judge,
        on_event=tell,
    )


def _merge(report: Report, own: RunInfo, others: Sequence[str], options: Any) -> None:
    found = pipeline.merge([*others, options.store], store_url=options.merged)
    report.say(_shown(lambda console: merge_view.render_merged(found, console)))
    with open_store(options.merged, create=False, write=False) as store:
        runs = [info for info in store.runs() if info.name == NAME]
    latest: dict[str, RunInfo] = {}
    for info in runs:
        latest.setdefault(info.machines[0].fingerprint, info)
    if unfinished := [info.id for info in latest.values() if not info.complete]:
        raise UsageError(f"not complete: {', '.join(unfinished)}; finish them on their machines first")
    chosen = sorted(latest.values(), key=lambda info: (info.machines[0].device == "cpu", info.created_unix_s))
    if own.id not in {info.id for info in chosen}:
        raise UsageError(f"run {own.id} is not the latest of its machine in {options.merged}; give another --merged")
    _scores(report, options.merged, chosen)


def _scores(report: Report, store: str, runs: Sequence[RunInfo]) -> None:
    """Scores over the runs, the first machine being the primary one, and how speedups vary over the machines."""
    ids = [info.id for info in runs]
    scores = pipeline.score(store, ids)
    rows = []
    for name, of in scores["scores"].items():
        one = of["p_hw"]
        speeds = [f"{device} {figure(number(score['value']), 'x')}" for device, score in of["device_speedup"].items()]
        held, s = (figure(number(score["value"])) for score in (one, of["composite"]))
        rows.append([name, held, one["n"], ", ".join(speeds), s])
    report.table(["generator", "P_hw", "devices", "speedup by which each device is judged", "S"], rows)
    report.say(_shown(lambda console: scores_view.render_scores(scores, console)))
    hardware = None
    if len(ids) > 1:  # of one machine nothing varies
        hardware = pipeline.analyse(ids, store_url=store)["hardware"]
        report.say(_shown(lambda console: render_hardware(hardware, console)))
    report.data = json.loads(json.dumps({"runs": ids, "scores": scores["scores"], "hardware": hardware}))
    report.data["machines"] = [to_plain(machine) for info in runs for machine in info.machines]


def _shown(render: Any) -> str:
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    render(console)
    return console.export_text()


if __name__ == "__main__":
    main()
