"""The same secret inputs on several devices of this machine: which is wrong, and how far the others lie apart."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from kerneleval.pipeline.checking import check_dtypes, open_task, read_source
from kerneleval.records import (
    Candidate,
    CandidateSpec,
    Case,
    CaseAnswers,
    Differential,
    OnEvent,
    Protocol,
    Task,
    UsageError,
    tell,
)

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge

REFERENCE = "reference"
"""What stands for a source where PyTorch's own operators run."""


def differ(
    spec: CandidateSpec,
    protocol: Protocol,
    *,
    paths: Sequence[str] = (),
    devices: Sequence[str] = (),
    reference: bool = False,
    judges: Mapping[str, Judge] | None = None,
    on_event: OnEvent | None = None,
) -> Differential:
    """What a candidate gives on several devices, on the same secret inputs; nothing is timed.

    Args:
        spec: the task, the language and entry points of the files, and the only case; its ``source`` and ``device`` are
            not used.
        protocol: how the cases are planned.
        paths: files of one operator: one that runs on several devices, or one for each device; none with ``reference``.
        devices: device kinds; empty: all that are here and that a file runs on. At least two.
        reference: PyTorch's own operators instead of a candidate.
        judges: warm judges to use, by device kind; others are started for this call.
        on_event: called as the work proceeds.

    Raises:
        UsageError: no file, or files beside ``reference``; a device that is unknown or not usable here, for which there
            is no file or more than one; fewer than two devices; else as :func:`kerneleval.check`.
        InfrastructureError: the machine failed, not what ran on it.
    """
    from kerneleval.judge import Judge

    if reference and paths:
        raise UsageError(
            f"{paths[0]}: a file and --reference (PyTorch's own operators) exclude each other; leave one out"
        )
    if not reference and not paths:
        raise UsageError("no file is given; give those of a candidate, or --reference for PyTorch's own operators")
    started = time.perf_counter()
    protocol = replace(protocol, tier="quick", timed=False)
    task = open_task(spec.task, protocol)
    given = {path: read_source(replace(spec, source=path), task) for path in paths}
    chosen, absent = _places(given, tuple(devices))
    check_dtypes(task, protocol)
    with ExitStack() as stack:
        mine = {name: (judges or {}).get(name) or stack.enter_context(Judge(name)) for name in chosen}
        found = Differential(
            task=task.name,
            task_source=spec.task_source,
            candidates={},
            sources={name: chosen[name] or REFERENCE for name in chosen},
            machines={name: judge.machine for name, judge in mine.items()},
            cases=(),
            not_evaluated=absent,
            seconds=0.0,
        )
        cases = _cases(spec.case, task, protocol, list(mine.values()))
        candidates = {name: given[path] if path else None for name, path in chosen.items()}
        hashes, answers = _answers(mine, candidates, task, protocol, cases, on_event)
        return replace(found, candidates=hashes, cases=answers, seconds=time.perf_counter() - started)


def _answers(
    judges: Mapping[str, Judge],
    candidates: Mapping[str, Candidate | None],
    task: Task,
    protocol: Protocol,
    cases: Sequence[Case],
    on_event: OnEvent | None,
) -> tuple[dict[str, str], tuple[CaseAnswers, ...]]:
    """(device -> hash of the candidate that ran there; what the devices gave in each case)."""
    from kerneleval.judge.differential import Side
    from kerneleval.judge.differential import differ as answers_of

    with ExitStack() as stack:
        tell(on_event, "differ", 0, len(cases), f"{task.name}: loading on {', '.join(judges)}")
        sides = [stack.enter_context(Side(j, candidates[name], task, protocol)) for name, j in judges.items()]
        found = []
        for one in answers_of(sides, task, cases, tf32=protocol.tf32):
            found.append(one)
            tell(on_event, "differ", len(found), len(cases), one.case.key)
        return {side.name: side.candidate.hash for side in sides}, tuple(found)


def _places(given: Mapping[str, Candidate], asked: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(device -> file that runs there, empty for the reference; device -> why it is left out)."""
    from kerneleval import devices as stage
    from kerneleval import languages

    for name in asked:
        why = stage.find(name).available()
        if why:
            raise UsageError(f"device {name!r} cannot be used here: {why}")
    absent: dict[str, str] = {}
    fitting: dict[str, list[str]] = {}
    runs_on = {path: languages.find(candidate.language).devices for path, candidate in given.items()}
    for name in dict.fromkeys(asked) or stage.names():
        paths = [path for path, kinds in runs_on.items() if name in kinds]
        if why := stage.find(name).available():
            absent[name] = why
        elif given and not paths:
            absent[name] = f"none of the files runs there ({', '.join(runs_on)})"
        elif not given and name not in languages.find("torch").devices:
            absent[name] = "PyTorch has no operators there"
        else:
            fitting[name] = paths or [""]
        if name in absent and name in asked:
            raise UsageError(f"device {name!r}: {absent[name]}; give a file for it, or leave the device out")
    if len(fitting) < 2:
        raise UsageError(f"differential testing needs two devices, {_too_few(list(fitting), asked, bool(given))}")
    return _shared_out(fitting, runs_on), absent


def _too_few(fitting: Sequence[str], asked: Sequence[str], files: bool) -> str:
    """What there is instead of two devices, and what to do."""
    from kerneleval import devices as stage

    alone = f"{fitting[0]} alone" if fitting else "none"
    if asked:
        return f"and --devices names {alone}; name another one too"
    here = [name for name in stage.names() if name in fitting or not stage.find(name).available()]
    what = "the files run" if files else "PyTorch's own operators run"
    if len(here) > 1 and files:
        return f"and of those that are here ({', '.join(here)}) {what} on {alone}; give a file for another one"
    if len(here) > 1:
        return f"and of those that are here ({', '.join(here)}) {what} on {alone}; give files of a candidate instead"
    return f"and only {here[0] if here else 'none'} is here; kerneleval doctor tells what the others need"


def _shared_out(fitting: Mapping[str, Sequence[str]], runs_on: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Device -> file, so that every file runs somewhere; raises UsageError where there are several ways, or none."""
    ways = [way for way in itertools.product(*fitting.values()) if set(way) >= set(runs_on)]
    if not ways:
        where = "; ".join(f"{path} on {', '.join(kinds)}" for path, kinds in runs_on.items())
        raise UsageError(f"not every file can run on one of {', '.join(fitting)} ({where}); leave one out")
    if len(ways) > 1:
        name = next(name for name, of in zip(fitting, zip(*ways, strict=True), strict=True) if len(set(of)) > 1)
        raise UsageError(f"{' and '.join(fitting[name])} can both run on {name}; give one file for each device")
    return dict(zip(fitting, ways[0], strict=True))


def _cases(key: str, task: Task, protocol: Protocol, judges: Sequence[Judge]) -> tuple[Case, ...]:
    """The cases that every device has room for; with a key that one alone."""
    from kerneleval.judge.differential import common_plan
    from kerneleval.tasks.case_keys import read_case

    planned = common_plan(judges, task, protocol)
    if not planned:
        raise UsageError(f"task {task.name!r}: no case is left; loosen --dtype, --direction or --distribution")
    if not key:
        return planned
    return (read_case(key, task, protocol, planned, min(judge.device.largest_case_bytes() for judge in judges)),)
