"""One candidate on many targets: compiled for each, and judged on those that are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kerneleval.pipeline.checking import check_candidate, check_dtypes, open_task, read_source
from kerneleval.records import (
    AxisLevel,
    Candidate,
    CandidateSpec,
    Case,
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

if TYPE_CHECKING:
    from kerneleval.analysis.rubric import Seen
    from kerneleval.languages.crosscompile.targets import Target

FAST = 0.8
"""Share of the baseline's speed from which a device counts (DESIGN, P_hw)."""

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

    Args:
        spec: the candidate and the task; its ``device`` is not used.
        protocol: in which dtypes it is compiled, and how it is judged.
        targets: architectures (``sm_90``, ``gfx942``) and devices of this machine (``cpu``, ``cuda``); empty: all
            architectures, and every device here on which the language runs.
        judged: whether it is also run and judged on the devices that are here.
        on_event: called as the work proceeds.

    Raises:
        UsageError: the input is wrong, or this system cannot confine the candidate's code.
        InfrastructureError: the machine failed, or a compiler is missing.
    """
    from kerneleval import devices, languages
    from kerneleval.judge.binaries.portability import compile_for

    task = open_task(spec.task, protocol)
    candidate = read_source(spec, task)
    here = [name for name in devices.names() if not devices.find(name).available()]
    wanted = _wanted(targets, here)
    check_dtypes(task, protocol)
    tell(on_event, "compile", 0, len(wanted), f"{candidate.files[0][0]}: compiling")
    rows = list(compile_for(candidate, task, _cases(task, protocol), wanted)) if wanted else []
    runs_on = languages.find(candidate.language).devices
    places = [name for name in here if name in runs_on and (not targets or name in targets)] if judged else []
    for name in places:
        verdict = check_candidate(replace(spec, task=task, device=name), protocol, on_event=on_event)
        rows = _with(rows, verdict, candidate)
    rows += [_left_out(name, runs_on, candidate.language) for name in here if name in targets and name not in places]
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


def _left_out(device: str, runs_on: Sequence[str], language: str) -> MatrixRow:
    """A device that was named, and on which nothing was judged."""
    why = f"{language} candidates do not run there: they run on {', '.join(runs_on)}"
    rung = Rung(answer="not evaluated", why="only compiled, as was asked for" if device in runs_on else why)
    return MatrixRow(target=device, product="", compiles=rung, runs=rung, correct=rung, fast=rung)


def _rated(row: MatrixRow, candidate: Candidate) -> MatrixRow:
    """With R and H of the rubric, by the source and what was compiled for the target; else as it stands."""
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


def _cases(task: Task, protocol: Protocol) -> list[Case]:
    """Contiguous cases of modest sizes for each direction and dtype, a medium one first, those after it for candidates
    that declare it unsupported.
    """
    from kerneleval.tasks import shapes

    found: dict[tuple[str, str], list[Case]] = {}
    for case in shapes.plan(task, protocol, shapes.Budget(memory_bytes=_BYTES, flops=_FLOPS)):
        if case.layout == "contiguous" and case.distribution == "standard":
            found.setdefault((case.direction, case.dtype), []).append(case)
    for cases in found.values():
        cases.sort(key=lambda case: (case.shape_category != "medium", case.shape_category != "power_of_two"))
    return [case for cases in found.values() for case in cases[:_CASES]]


def _with(rows: Sequence[MatrixRow], verdict: Verdict, candidate: Candidate) -> list[MatrixRow]:
    """The rows with what was seen on a device that is here: in its architecture's row, or one of its own."""
    from kerneleval.analysis.rubric import seen

    machine = verdict.machine
    runs, correct, fast, speedup = _rungs(verdict, candidate)
    place = next((row for row in rows if row.target == machine.arch), None)
    if place is not None:
        row = replace(place, product=machine.name, runs=runs, correct=correct, fast=fast, speedup=speedup)
        return [row if one is place else one for one in rows]
    compiles = Rung(answer="no", why=verdict.message) if verdict.stage in ("build", "load") else Rung(answer="yes")
    row = MatrixRow(
        target=machine.device,
        product=machine.name,
        compiles=compiles,
        runs=runs,
        correct=correct,
        fast=fast,
        speedup=speedup,
    )
    return [*rows, _graded(row, candidate, seen(verdict)) if verdict.track else row]


def _rungs(verdict: Verdict, candidate: Candidate) -> tuple[Rung, Rung, Rung, float | None]:
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
    told = f"{value:.2f} times the speed of the baseline"
    return runs, correct, Rung(answer="yes" if value >= FAST else "no", why="" if value >= FAST else told), value
