"""Generators over built-in tasks, by ``kerneleval run``'s own way: what each covers forward and backward, S, and time.

    python -m benchmarks.generators --generators liger --own --store F
    python -m benchmarks.generators --generators compile --seconds 400 --store F

    python -m benchmarks.generators --generators compile --tasks conv2d/backward,conv2d/forward --processes 2 --store F
    python -m benchmarks.generators --generators compile --tasks core --dtypes float32 --processes 8 --store F
    python -m benchmarks.generators --generators compile --store F --told run-a,run-b

Stops cleanly after ``--seconds``, and at Ctrl-C or SIGTERM; the same command with the same store goes on. ``--own``:
the tasks that the first generator solves, a library's; else ``--tasks``, else the archetypes' suite. ``--told``:
nothing is judged; these runs of the store are told as one, on the machine of the first, and what none of them reached
is left out and named.

``--processes``: so many judges side by side on the device, each task, or direction of one, a run of its own, in the
order of ``--tasks`` (``core``: the 28 core operators, the longest first); a store takes them all together at the end.
They take turns at measuring, but what one compiles and checks goes on while another measures: such verdicts warn of an
unsteady machine. What finds no room on the device is tried again by a third of them.
"""

from __future__ import annotations

import functools
import math
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import work_through
from benchmarks.report import Report, parser, until_ended
from kerneleval import generators, pipeline, tasks
from kerneleval.generators.library import Library
from kerneleval.judge import Judge
from kerneleval.pipeline import stored
from kerneleval.pipeline.running import in_float32, known_limits
from kerneleval.records import (
    TRACKS,
    Event,
    InfrastructureError,
    Machine,
    Protocol,
    SpeedupSummary,
    UsageError,
    filled,
    to_plain,
)
from kerneleval.store import open_store

_DAY_S = 86400.0

_LONG = (
    "conv_transpose2d",
    "causal_attention",
    "conv2d",
    "grouped_query_attention",
    "group_norm",
    "masked_attention",
    "depthwise_conv2d",
    "attention",
    "conv1d",
    "batch_norm",
)
"""Of the core operators those for which ``torch.compile`` makes most graphs: one direction took up to five minutes on
an H200, beside eleven other judges."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--generators", default="liger", help="names, with commas")
    made.add_argument("--tasks", default="", help="names, or name/direction, with commas")
    made.add_argument("--processes", type=int, default=1, help="judges side by side")
    made.add_argument("--own", action="store_true", help="the tasks of the first generator, a library")
    made.add_argument("--tier", default="quick")
    made.add_argument("--dtypes", default="", help="names, with commas; empty: the tasks' own")
    made.add_argument("--seconds", type=float, default=0.0, help="stop after so long; 0: never")
    made.add_argument("--store", required=True)
    made.add_argument("--name", default="", help="of the results' file, behind 'generators'")
    made.add_argument("--told", default="", help="runs that are only told, with commas")
    options = made.parse_args()
    names = tuple(options.generators.split(","))
    title = f"generators_{options.name or '+'.join(names)}"
    if options.told:
        runs = tuple(options.told.split(","))
        with open_store(options.store, write=False) as store:
            machine = store.run(runs[0]).machines[0]
        report = Report(title, machine, options.out)
        _tell(report, options.store, runs, "", reached=True, asked=None)
        return
    chosen = tuple(task for task in options.tasks.split(",") if task)
    if options.own:
        library = generators.find(names[0])
        if not isinstance(library, Library):
            raise UsageError(f"{names[0]} is no library: name its tasks")
        chosen = library.tasks
    started = time.monotonic()
    if options.processes > 1 or any("/" in task or task == "core" for task in chosen):
        _side_by_side(options, names, _parts(chosen or generators.SUITE), title, started)
        return
    with Judge(options.device) as judge:
        report = Report(title, judge.machine, options.out)
        with until_ended():
            pipeline.run(
                names,
                chosen,
                tier=options.tier,
                dtypes=tuple(dtype for dtype in options.dtypes.split(",") if dtype),
                store_url=options.store,
                max_hours=options.seconds / 3600 if options.seconds else None,
                name=title,
                judge=judge,
                on_event=_say,
            )
    _tell(report, options.store, (title,), f" in {time.monotonic() - started:.0f} s")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task, or one direction of it, for one of several judges."""

    task: str
    direction: str
    """Empty: all of the task's."""
    generators: tuple[str, ...]
    device: str | None
    tier: str
    dtypes: tuple[str, ...]
    folder: str
    """Each process has a store of its own in it."""
    name: str
    """Of the run."""

    def __str__(self) -> str:
        return f"{self.task}/{self.direction}" if self.direction else self.task


def _parts(chosen: Sequence[str]) -> list[tuple[str, str]]:
    """(task, direction) of what was named; an empty direction: all."""
    found: list[tuple[str, str]] = []
    if list(chosen) == ["core"]:
        halves = [f"{name}/{direction}" for direction in ("backward", "forward") for name in _LONG]
        chosen = [*halves, *(name for name in tasks.CORE if name not in _LONG)]
    for part in chosen:
        name, _, direction = part.partition("/")
        task = tasks.find(name)
        if direction and direction not in task.directions:
            raise UsageError(f"{part}: task {name} has the directions {', '.join(task.directions)}")
        found.append((task.name, direction))
    return found


def _side_by_side(
    options: Any, names: tuple[str, ...], parts: Sequence[tuple[str, str]], title: str, started: float
) -> None:
    dtypes = tuple(dtype for dtype in options.dtypes.split(",") if dtype)
    folder = tempfile.mkdtemp(prefix="kerneleval-generators-")
    made = functools.partial(Job, generators=names, device=options.device, tier=options.tier, dtypes=dtypes)
    jobs = [made(task=task, direction=direction, folder=folder, name=title) for task, direction in parts]
    # in a process of its own: what a judge has measured with stays in its memory, and of a GPU there is none to spare
    ((_, machine, why_not),) = work_through([(options.device, options.tier, dtypes)], measured, 1, seconds_each=_DAY_S)
    if why_not:
        raise InfrastructureError(why_not)
    report = Report(title, machine, options.out)
    like = functools.partial(_runs, options.store, title, names, machine, (options.tier, dtypes))
    known = {part for run in like().values() for part in run}
    jobs = [job for job in jobs if not known.issuperset(_pairs([(job.task, job.direction)]))]
    ends = started + (options.seconds or _DAY_S)
    lost: dict[Job, str] = {}
    try:
        with until_ended():
            left, processes = list(jobs), options.processes
            while left:
                work = work_through(left, judged, processes, seconds_each=_DAY_S, go_on=lambda: time.monotonic() < ends)
                again: list[Job] = []
                for job, _, error in work:
                    print(f"{time.monotonic() - started:.0f} s: {job} {error or 'done'}", flush=True)
                    lost.pop(job, None)
                    if error:
                        lost[job] = error
                        again.append(job)
                left = again if processes > 1 else []  # many judges together may have filled the device's memory
                processes = max(1, processes // 3)
    finally:
        _keep(folder, options.store)
    for job, error in lost.items():
        report.say(f"{job}: {error}")
    runs = like()
    if not runs:
        report.say("nothing was judged")
        return
    taken = f"; {len(jobs) - len(lost)} of the jobs in {time.monotonic() - started:.0f} s"
    taken += f", {options.processes} judges side by side on the device" if options.processes > 1 else ""
    _tell(report, options.store, list(runs), taken, reached=True, asked=_pairs(parts))


def _keep(folder: str, place: str) -> None:
    """Every process's store into one. The folder stays, and is named, if that fails."""
    found = sorted(str(path) for path in Path(folder).glob("*.db"))
    try:
        if found:
            pipeline.merge(found, store_url=place)
    except BaseException:
        print(f"not merged into {place}: the verdicts are in {folder} (kerneleval merge)", flush=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _pairs(parts: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """(task, direction) of parts, of which an empty direction means all."""
    return {(task, one) for task, named in parts for one in ((named,) if named else tasks.find(task).directions)}


def _runs(
    place: str, title: str, names: tuple[str, ...], machine: Machine, how: tuple[str, tuple[str, ...]]
) -> dict[str, set[tuple[str, str]]]:
    """What a store has whole, judged in this way on this machine: runs, and (task, direction) of each. Where two have
    the same, the later one.
    """
    if not Path(place).exists():
        return {}
    with open_store(place, write=False) as store:
        infos = sorted(store.runs(), key=lambda info: info.created_unix_s, reverse=True)
    tier, dtypes = how
    found: dict[str, set[tuple[str, str]]] = {}
    for info in infos:
        alike = info.protocol == _protocol(tier, dtypes, directions=info.protocol.directions)
        here = [one.fingerprint for one in info.machines] == [machine.fingerprint]
        if not (info.complete and info.name == title and info.generators == names and alike and here):
            continue
        has = _pairs((task, one) for task in info.tasks for one in info.protocol.directions or ("",))
        if not any(has & other for other in found.values()):
            found[info.id] = has
    return found


def _protocol(tier: str, dtypes: tuple[str, ...], **options: Any) -> Protocol:
    """How the generators are judged."""
    return in_float32(filled(Protocol, {"tier": tier, "dtypes": dtypes, "allow": TRACKS, **options}))


def measured(how: tuple[str | None, str, tuple[str, ...]]) -> Machine:
    """Measure what every judge of the machine would ask for, once for all of them; which machine it is."""
    device, tier, dtypes = how
    with Judge(device) as judge:
        protocol = _protocol(tier, dtypes)
        judge.noise(protocol)
        known_limits(None, judge, protocol)
        return judge.machine


@functools.cache
def _own_judge(device: str | None) -> Judge:
    """Of this process, warm from its second job on; gone with the process."""
    return Judge(device)


def judged(job: Job) -> None:
    """Judge it, in a process that does nothing else."""
    pipeline.run(
        job.generators,
        (job.task,),
        tier=job.tier,
        dtypes=job.dtypes,
        directions=(job.direction,) if job.direction else (),
        store_url=str(Path(job.folder) / f"{os.getpid()}.db"),
        name=job.name,
        judge=_own_judge(job.device),
    )


def _tell(
    report: Report,
    place: str,
    runs: Sequence[str],
    taken: str,
    *,
    reached: bool = False,
    asked: set[tuple[str, str]] | None = None,
) -> None:
    """Every verdict of the runs, and scores over all of them, or over what was ``reached`` alone of these; what was
    ``asked`` for and not reached is named. None: what the runs were to judge.
    """
    with open_store(place, write=False) as store:
        infos = [store.run(run) for run in runs]
        of_run = {info.id: tuple(store.verdicts(info.id, cells=False)) for info in infos}
    verdicts = [both for of in of_run.values() for both in of]
    planned, finished = sum(i.planned for i in infos), sum(i.finished for i in infos)
    how = f"{infos[0].protocol.tier} tier, {', '.join(infos[0].protocol.dtypes) or 'all dtypes'}"
    report.say(f"{finished} of {planned} candidates judged, {how}{taken}")
    report.table(
        ("generator", "task", "direction", "sample", "verdict", "reason", "speedup", "track", "s"),
        [
            (
                a.generator,
                a.task,
                "+".join(v.protocol.directions) or "both",
                a.sample,
                v.verdict,
                v.reason,
                _speed(v.speedup),
                v.track,
                f"{v.seconds:.1f}",
            )
            for a, v in sorted(
                verdicts, key=lambda of: (of[0].generator, of[0].task, of[1].protocol.directions, of[0].sample)
            )
        ],
    )
    judged = {(run, a.generator, a.task, a.sample) for run, of in of_run.items() for a, _ in of}
    found = _scores(place, runs, judged if reached else None)
    if asked is None:
        asked = _pairs((task, one) for i in infos for task in i.tasks for one in i.protocol.directions or ("",))
    for maker in sorted({name for i in infos for name in i.generators}) if reached else ():
        done = _pairs(
            (a.task, one) for a, v in verdicts if a.generator == maker for one in v.protocol.directions or ("",)
        )
        if asked - done:
            report.say(f"{maker}: not reached, and left out of the scores: {', '.join(_named(asked - done))}")
    for name, scores in found.items():
        report.say("", f"{name}:")
        for score, key in _SHOWN:
            if (figure := _figure(scores, score, key)) is not None:
                report.say(f"  {score}{f' {key}' if key else ''}: {_told(figure)}")
        report.say(f"  failures: {scores.get('failures')}")
    failed = [(a, v) for a, v in verdicts if v.verdict == "failed"]
    for a, v in failed:
        report.say("", f"{a.generator} {a.task} #{a.sample}: {v.stage}/{v.reason}: {v.message[:600]}")
    report.data = {"runs": list(runs), "scores": found, "planned": planned, "finished": finished}
    report.write()


def _named(pairs: Collection[tuple[str, str]]) -> list[str]:
    """Tasks where all directions are among them, else directions of tasks."""
    found = []
    for task in sorted({task for task, _ in pairs}):
        directions = tasks.find(task).directions
        of_task = [f"{task}/{one}" for one in directions if (task, one) in pairs]
        found += [task] if len(of_task) == len(directions) else of_task
    return found


def _scores(place: str, runs: Sequence[str], only: set[tuple[str, str, str, int]] | None) -> dict[str, Any]:
    """Scores of each generator, over these attempts of runs alone; None: over all."""
    if only is None:
        return dict(pipeline.score(place, runs)["scores"])
    found = stored.StoredRuns(place, runs)
    found.results = [r for r in found.results if (r.run, r.generator, r.task, r.sample) in only]
    return dict(to_plain(found.scores))


_SHOWN = (
    ("c_op", ""),
    ("c_op_by_category", "all/forward"),
    ("c_op_by_category", "all/backward"),
    ("speedup_med", ""),
    ("peak", ""),
    ("cv_shape", ""),
    ("p_hw", ""),
    ("composite", ""),
    ("geometric_mean", ""),
    ("pass_at_k", "1"),
    ("fast_p", "1"),
)


def _figure(scores: dict[str, Any], name: str, key: str) -> dict[str, Any] | None:
    found = scores.get(name)
    if found is not None and key:
        found = found.get(key)
    return found if isinstance(found, dict) and "value" in found else None


def _told(figure: dict[str, Any]) -> str:
    value, low, high = (float(figure[k]) for k in ("value", "low", "high"))
    note = f" ({figure['note']})" if figure.get("note") else ""
    return f"{value:.3f} [{low:.3f}, {high:.3f}], n = {figure['n']}{note}"


def _speed(speedup: SpeedupSummary | None) -> str:
    value = speedup.value if speedup else math.nan
    return "" if math.isnan(value) else f"{value:.2f}"


def _say(event: Event) -> None:
    if event.kind in ("run", "note"):
        print(f"{time.strftime('%H:%M:%S')} {event.done}/{event.total} {event.text}", flush=True)


if __name__ == "__main__":
    main()
