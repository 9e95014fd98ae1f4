"""One candidate on many targets: compiled for each and judged on those that are here; and on several devices of this
machine by the same secret inputs: which is wrong, and how far the others differ.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import check_candidate, check_dtypes, open_task, read_source
from kerneleval.records import (
    AxisLevel,
    Candidate,
    CandidateSpec,
    Case,
    CaseAnswers,
    Differential,
    Failed,
    Matrix,
    MatrixRow,
    OnEvent,
    Passed,
    Protocol,
    Rung,
    Task,
    UsageError,
    Verdict,
    near,
    tell,
)
from kerneleval.scores.common.cells import by_key
from kerneleval.scores.p_hw import THRESHOLD

if TYPE_CHECKING:
    from kerneleval.analysis.rubric import Seen
    from kerneleval.judge.judge import Judge
    from kerneleval.languages.crosscompile.targets import Target


_BYTES, _FLOPS = 1 << 24, 1 << 28
_MOST_LINES = 16
_CASES = 4
"""At most tried for a direction and dtype."""


def matrix(
    spec: CandidateSpec,
    protocol: Protocol,
    *,
    targets: Sequence[str] = (),
    judged: bool = True,
    on_event: OnEvent | None = None,
) -> Matrix:
    """How far a candidate comes on each target.

    Targets are architectures (``sm_90``, ``gfx942``) and devices of this machine (``cpu``, ``cuda``); without any all
    architectures, and every device here on which the language runs. It is compiled in the protocol's dtypes, and
    (``judged``) run and judged on the devices that are here. Raises UsageError where the input is wrong, or this system
    cannot confine the candidate's code; InfrastructureError where the machine failed, or a compiler is missing.
    """
    from kerneleval import devices, languages
    from kerneleval.judge.binaries.portability import compile_for

    task = open_task(spec.task, protocol)
    candidate = read_source(spec, task)
    here = [name for name in devices.names() if not devices.find(name).available()]
    wanted = _wanted(targets, here)
    check_dtypes(task, protocol)
    tell(on_event, "compile", 0, len(wanted), f"{candidate.files[0][0]}: compiling")
    rows = list(compile_for(candidate, task, _to_compile(task, protocol), wanted)) if wanted else []
    runs_on = languages.find(candidate.language).devices
    places = [name for name in here if name in runs_on and (not targets or name in targets)] if judged else []
    for name in places:
        verdict = check_candidate(replace(spec, task=task, device=name), protocol, on_event=on_event)
        rows = _with(rows, verdict, candidate)
    for name in (name for name in here if name in targets and name not in places):
        why = f"{candidate.language} candidates do not run there: they run on {', '.join(runs_on)}"
        rung = Rung(answer="not evaluated", why="only compiled, as requested" if name in runs_on else why)
        rows.append(MatrixRow(target=name, product="", compiles=rung, runs=rung, correct=rung, fast=rung))
    rows = [_rated(row, candidate) for row in rows]
    return Matrix(task=task.name, candidate=candidate.hash, language=candidate.language, rows=tuple(rows))


def _wanted(targets: Sequence[str], here: Sequence[str]) -> Sequence[Target]:
    """The architectures among the targets; all of them where no target is named."""
    from kerneleval import devices
    from kerneleval.languages.crosscompile.targets import TARGETS, find_targets

    for name in targets:
        if name in TARGETS or name in here:
            continue
        if name in devices.names():
            raise UsageError(f"target {name!r} cannot be used here: {devices.find(name).available()}")
        hint = near(name, [*TARGETS, *here])
        known = f"known are {', '.join([*TARGETS, *here])}"
        raise UsageError(f"target {name!r:.80} is unknown; {hint if hint.startswith('did') else known}")
    return [TARGETS[name] for name in dict.fromkeys(targets) if name in TARGETS] if targets else find_targets(())


def _rated(row: MatrixRow, candidate: Candidate) -> MatrixRow:
    """With R and H of the rubric, by the source and what was compiled for the target; else unchanged."""
    from kerneleval.analysis.rubric import Seen

    if row.compiles.answer != "yes" or not row.kernels:
        return row
    code = tuple(kernel.code for kernel in row.kernels if kernel.code is not None)
    names = tuple(dict.fromkeys(kernel.name for kernel in row.kernels))
    saw = Seen(track="custom", launched=names, compiled=code, complete=len(code) == len(row.kernels))
    return _graded(row, candidate, saw)


def _graded(row: MatrixRow, candidate: Candidate, saw: Seen) -> MatrixRow:
    from kerneleval.analysis.rubric import Grade, source_grades

    def level(grade: Grade) -> AxisLevel:
        lines = (f"{mark.file}:{mark.line}: {mark.what} ({mark.says})" for mark in grade.marks[:_MOST_LINES])
        return AxisLevel(level=grade.level, reason=grade.reason, lines=tuple(lines))

    representation, hardware = source_grades(candidate, saw)
    return replace(row, representation=level(representation), hardware=level(hardware))


def _to_compile(task: Task, protocol: Protocol) -> list[Case]:
    """Contiguous cases of modest sizes for each direction and dtype, a medium one first, those after it for candidates
    that declare it unsupported.
    """
    from kerneleval.tasks import shapes

    planned = shapes.plan(task, protocol, shapes.Budget(memory_bytes=_BYTES, flops=_FLOPS))
    plain = (case for case in planned if case.layout == "contiguous" and case.distribution == "standard")
    found = by_key(((case.direction, case.dtype), case) for case in plain)
    for cases in found.values():
        cases.sort(key=lambda case: (case.shape_category != "medium", case.shape_category != "power_of_two"))
    return [case for cases in found.values() for case in cases[:_CASES]]


def _with(rows: Sequence[MatrixRow], verdict: Verdict, candidate: Candidate) -> list[MatrixRow]:
    """The rows with what was seen on a device that is here: in its architecture's row, or one of its own."""
    from kerneleval.analysis.rubric import seen

    machine = verdict.machine
    seen_here: dict[str, Any] = dict(zip(("runs", "correct", "fast", "speedup"), _rungs(verdict), strict=True))
    place = next((row for row in rows if row.target == machine.arch), None)
    if place is not None:
        row = replace(place, product=machine.name, **seen_here)
        return [row if one is place else one for one in rows]
    compiles = Rung(answer="no", why=verdict.message) if verdict.stage in ("build", "load") else Rung(answer="yes")
    row = MatrixRow(target=machine.device, product=machine.name, compiles=compiles, **seen_here)
    return [*rows, _graded(row, candidate, seen(verdict)) if verdict.track else row]


def _rungs(verdict: Verdict) -> tuple[Rung, Rung, Rung, float | None]:
    ran = [
        c for c in verdict.cells if isinstance(c.outcome, Passed) or c.outcome.stage not in ("build", "load", "call")
    ]
    broken = [c.outcome for c in verdict.cells if isinstance(c.outcome, Failed) and c.outcome.stage == "call"]
    broken = [outcome for outcome in broken if outcome.reason != "unsupported"]
    if not ran:
        none = Rung(answer="no", why=verdict.message)
        return none, none, none, None
    runs = Rung(answer="no", why=broken[0].message) if broken else Rung(answer="yes")
    passed = verdict.verdict == "passed"
    correct = Rung(answer="yes") if passed else Rung(answer="no", why=f"{verdict.reason}: {verdict.message}")
    value = verdict.speedup.value if verdict.speedup else None
    if not passed:
        return runs, correct, Rung(answer="no", why="it is not right"), value
    if value is None:
        untimed = next((f.message for f in verdict.findings if f.check == "timing"), "it was not timed")
        return runs, correct, Rung(answer="not evaluated", why=untimed), None
    slow = Rung(answer="no", why=f"{value:.2f} times the speed of the baseline")
    return runs, correct, Rung(answer="yes") if value >= THRESHOLD else slow, value


REFERENCE = "reference"
"""Name in place of a source where PyTorch's own operators run."""


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
        spec: the task, the language and entry points of the files, and the only case; no other field is used.
        protocol: how the cases are planned.
        paths: files of one operator: one that runs on several devices, or one for each device; none with ``reference``.
        devices: device kinds; empty: all that are here and that a file runs on. At least two.
        reference: PyTorch's own operators instead of a candidate.
        judges: warm judges to use, by device kind; others are started for this call.
        on_event: called as the work proceeds.

    Raises UsageError for no file, or files together with ``reference``; a device that is unknown or not usable here,
    for which there is no file or more than one; fewer than two devices; else as :func:`kerneleval.check`.
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
        cases = _cases(spec.case, task, protocol, list(mine.values()))
        candidates = {name: given[path] if path else None for name, path in chosen.items()}
        hashes, answers = _answers(mine, candidates, task, protocol, cases, on_event)
        return Differential(
            task=task.name,
            task_source=spec.task_source,
            candidates=hashes,
            sources={name: chosen[name] or REFERENCE for name in chosen},
            machines={name: judge.machine for name, judge in mine.items()},
            cases=answers,
            not_evaluated=absent,
            seconds=time.perf_counter() - started,
        )


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
    if len(here) > 1:
        instead = "a file for another one" if files else "files of a candidate instead"
        return f"and of those that are here ({', '.join(here)}) {what} on {alone}; give {instead}"
    return f"and only {here[0] if here else 'none'} is here; kerneleval doctor shows what the others need"


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
