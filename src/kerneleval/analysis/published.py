"""Results that others published, as a store takes them: a machine, a protocol, planned attempts and their verdicts.

Nothing of them was judged here. So the device is ``published``, trust is ``weak``, every claim of speed is
``inconclusive``, and each verdict carries a warning that says so. See ``docs/published.md``.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.analysis.formats import kernelbench_results, kernelbenchx
from kerneleval.analysis.formats.kernelbench_results import Baseline, Sample
from kerneleval.analysis.steps import Step
from kerneleval.records import (
    GROUPS,
    PUBLISHED,
    TRACKS,
    Candidate,
    Case,
    CellResult,
    Failed,
    Machine,
    Origin,
    Outcome,
    Passed,
    Protocol,
    Samples,
    Timing,
    Trust,
    UsageError,
    Verdict,
    digest,
    near,
)
from kerneleval.store import NewRun, Planned

if TYPE_CHECKING:
    from kerneleval.store.store import Store

__all__ = ["FORMATS", "NOISE", "Published", "load", "put"]

FORMATS = ("kernelbench", "kernelbenchx")

NOISE = 0.018
"""Noise floor of published times, as a ratio minus 1: in KernelBench-X's corpus the same code, byte for byte, is up to
1.79 % apart."""

NOT_JUDGED = "published by others, not judged here"

_PROTOCOL = Protocol(tier="quick", directions=("forward",), allow=TRACKS)

_MOST_CHARACTERS, _MOST_ENTRIES, _MOST_DEPTH = 2000, 50, 4
"""What is kept of texts, of lists and objects, and of their nesting that was published beside a result."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """What others published, ready for :func:`put`."""

    name: str
    """Name of the run."""
    generators: tuple[str, ...]
    """Names of the generators."""
    machine: Machine
    """The hardware as published; its driver names the baseline."""
    protocol: Protocol
    """What is known of how it was judged."""
    planned: tuple[Planned, ...]
    """Every attempt, with its candidate; without one where a problem has no result."""
    verdicts: tuple[Verdict, ...]
    """Their verdicts, in the same order."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """``problems``, ``samples``, ``passed``, ``timed``, ``missing`` (attempts without a result), ``sources``."""
    remarks: tuple[str, ...] = ()
    """What the reader must know: what was left out or assumed, a sentence each."""


def load(
    path: str | os.PathLike[str],
    *,
    file_format: str = "kernelbench",
    baseline: str | os.PathLike[str] | None = None,
    solutions: str | os.PathLike[str] | None = None,
    name: str = "",
    hardware: str = "",
    level: int | None = None,
) -> Published:
    """Read what others published.

    Args:
        path: an ``eval_results.json`` of KernelBench, or a ``.jsonl`` of KernelBench-X's corpus.
        file_format: one of :data:`FORMATS`.
        baseline: of KernelBench: the times of the reference, ``baseline_time_torch.json``; None: those taken with each
            sample, if any.
        solutions: of KernelBench: folder with the sources, ``level_L_problem_P_sample_S_kernel.py``; None: none.
        name: name of run and generator; empty: the results' folder or file, or ``KernelBench-X``.
        hardware: name of the device, where the files don't state it.
        level: KernelBench's level; None: the only one that the baseline has.

    Raises:
        UsageError: an unknown format, a file that is none, options that the format has not, a level that is not given,
            or hardware that differs from what the files state.
    """
    if file_format not in FORMATS:
        raise UsageError(f"format {file_format!r} is unknown; {near(file_format, FORMATS)}")
    name = _clean(name, 200)
    if file_format == "kernelbench":
        return _kernelbench(Path(path), baseline, solutions, name, hardware, level)
    given = {"--baseline": baseline, "--solutions": solutions, "--level": level}
    if wrong := [option for option, value in given.items() if value is not None]:
        raise UsageError(f"{wrong[0]} is for the format kernelbench; a corpus of KernelBench-X has all in one file")
    return _kernelbenchx(Path(path), name, hardware)


def put(store: Store, published: Published) -> tuple[str, bool]:
    """Store it as a run; (identifier, whether anything was written).

    A complete run of the same name, machine and protocol with the same attempts and candidates is left as it is and
    its identifier given; an interrupted one goes on.

    Raises:
        UsageError: the store can't take it.
    """
    of = published
    wanted = {(p.generator, p.sample, p.task, p.candidate.hash if p.candidate else "") for p in of.planned}
    where = (of.name, (of.machine,), of.protocol)
    for info in store.runs():
        alike = where == (info.name, info.machines, info.protocol) and info.complete and not info.audit
        if alike and wanted == {(a.generator, a.sample, a.task, a.candidate) for a in store.attempts(info.id)}:
            return info.id, False
    run = store.begin_run(
        NewRun(
            name=of.name,
            generators=of.generators,
            machines=(of.machine,),
            protocol=of.protocol,
            plan=of.planned,
        ),
        resume=True,
    )
    for planned, verdict in zip(of.planned, of.verdicts, strict=True):
        store.put_verdict(run, planned.generator, planned.sample, planned.candidate, verdict)
    return run, True


def _kernelbench(
    file: Path,
    baseline: str | os.PathLike[str] | None,
    solutions: str | os.PathLike[str] | None,
    name: str,
    hardware: str,
    level: int | None,
) -> Published:
    from kerneleval.tasks import peers

    samples = kernelbench_results.read(file)
    times = None if baseline is None else kernelbench_results.read_baseline(baseline, level)
    level = times.level if times is not None else level
    if level is None:
        raise UsageError(f"{file} does not say which level it is of; give --level, or --baseline with one level")
    if not 1 <= level < 1000:
        raise UsageError(f"--level {level}: KernelBench's levels begin with 1")
    hardware, remarks = kernelbench_results.hardware(samples, times, hardware)
    name = name or _clean(file.resolve().parent.name if file.stem == "eval_results" else file.stem, 200) or "published"
    machine = _machine(_clean(hardware, 200), _named_baseline(samples, times))
    against = "compile" if baseline is not None and "compile" in Path(baseline).stem else "eager"
    protocol = replace(_PROTOCOL, baseline=against, dtypes=("float32",))
    results = digest(file.read_bytes())[:16]
    source = kernelbench_results.sources(solutions, level)
    known = [row.name for row in peers.names("KernelBench") if row.group == f"level{level}"]
    known += [] if times is None else [of for of, _ in times.problems.values()]
    names = {int(of.partition("_")[0]): of for of in known}
    made, sources = [], 0
    for one in samples:
        task = f"KernelBench/level{level}/{names.get(one.problem, one.problem)}"
        text = source(one.problem, one.sample)
        sources += text is not None
        if text is None:
            stated = f"level {level}, problem {one.problem}, sample {one.sample}"
            text = f"# KernelBench, results {results}: {stated}. Its source was not published with it.\n"
        origin = Origin(generator=name, sample=one.sample)
        place = f"{results}/level_{level}_problem_{one.problem}_sample_{one.sample}_kernel.py"
        planned = _planned(task, level, "float32", origin, _candidate(place, text, origin))
        timing, facts = _timed(one, times, hardware)
        facts |= {"system": "KernelBench", "metadata": one.metadata}
        outcome = _outcome(one.passed, timing, facts, kernelbench_results.failure(one))
        made.append((planned, _verdict(planned, outcome, machine, protocol)))
    if times is not None:
        made += _missing(samples, times, name, machine, protocol)
    return _all(made, name, machine, protocol, sources, remarks)


def _timed(one: Sample, times: Baseline | None, hardware: str) -> tuple[Timing | None, dict[str, Any]]:
    """Its timing, None where there is none that counts; and what was published of it."""
    base = one.reference if times is None else times.problems.get(one.problem, ("", None))[1]
    both = {name: time for name, time in (("candidate", one.time), ("baseline", base)) if time is not None}
    facts = {name: {"mean_ms": t.mean_ms, "std_ms": t.std_ms, "trials": t.trials} for name, t in both.items()}
    if not one.passed or one.time is None or base is None or {one.hardware, base.hardware} - {"", hardware}:
        return None, facts
    found = kernelbench_results.speedup(one.time, base)
    return None if found is None else _timing(*found), facts


def _named_baseline(samples: Sequence[Sample], times: Baseline | None) -> str:
    """The baseline in a few words; results against different ones must not be taken for one another."""
    if times is not None:
        return f"level {times.level} of {digest(repr(sorted(times.problems.items())))[:12]}"
    return "measured with each sample" if any(s.reference is not None for s in samples) else "none"


def _missing(
    samples: Sequence[Sample], times: Baseline, name: str, machine: Machine, protocol: Protocol
) -> Iterator[tuple[Planned, Verdict]]:
    """Problems of the baseline without a result: they count as failed, as in KernelBench's own analysis."""
    most = max(Counter(s.problem for s in samples).values())
    tried = {s.problem for s in samples}
    for number, (of, _) in times.problems.items():
        for sample in range(most if number not in tried else 0):
            task = f"KernelBench/level{times.level}/{of}"
            origin = Origin(generator=name, sample=sample)
            planned = _planned(task, times.level, "float32", origin, None)
            failed = Failed(stage="generate", reason="missing", message="the published results have none for it")
            yield planned, _verdict(planned, failed, machine, protocol)


def _kernelbenchx(file: Path, name: str, hardware: str) -> Published:
    steps: dict[str, dict[int, Step]] = {}
    for record in kernelbenchx.read(file):
        for step in (record.before, record.after):
            known = steps.setdefault(step.task, {}).setdefault(step.round, step)
            if repr(known) != repr(step):  # of NaN too
                raise UsageError(f"{file}: task {step.task!r:.80}, round {step.round} is there twice and differs")
    name = name or "KernelBench-X"
    halves = {"bf16": "bfloat16", "fp16": "float16"}
    dtypes = {task: halves.get(task.removesuffix(".py").rpartition("_")[2], "float32") for task in steps}
    machine = _machine(_clean(hardware, 200), "of KernelBench-X")
    protocol = replace(_PROTOCOL, dtypes=tuple(dict.fromkeys(dtypes.values())))
    results = digest(file.read_bytes())[:16]
    made = []
    for task, rounds in steps.items():
        parents: dict[int, str] = {}
        stem = _clean(task, 200).removesuffix(".py")
        for number, step in sorted(rounds.items()):
            origin = Origin(generator=name, sample=number, round=number, parent=parents.get(number - 1, ""))
            place = re.sub(r"[^\w.-]", "_", stem)
            candidate = _candidate(f"{results}/round_{number}_{place}.py", step.code, origin)
            parents[number] = candidate.hash
            planned = _planned(f"KernelBench-X/{stem}", 0, dtypes[task], origin, candidate)
            timing = _timing(step.speedup) if step.timed else None
            facts = {"system": "KernelBench-X", "round": number}
            outcome = _outcome(step.correct, timing, facts, (step.stage, step.reason, step.message))
            made.append((planned, _verdict(planned, outcome, machine, protocol)))
    remarks = ["a sample is a round of refinement", "the data type follows from a task's name alone"]
    return _all(made, name, machine, protocol, len(made), remarks)


def _planned(task: str, level: int, dtype: str, origin: Origin, candidate: Candidate | None) -> Planned:
    category, group = _kind(task, level)
    case = Case(task=task, direction="forward", dims=(), dtype=dtype, shape_category="given")
    return Planned(
        generator=origin.generator,
        task=task,
        category=category,
        level=level,
        cases=(case,),
        group=group,
        sample=origin.sample,
        candidate=candidate,
    )


@functools.cache
def _kind(task: str, level: int) -> tuple[str, str]:
    """Operator category and KernelBench-X's category of a task, by the map of peers; where it is not in the map, by the
    built-in task of its name and the corpus's folder; else ``fused`` from level 2 on, where KernelBench joins
    operators, or ``unknown``.
    """
    from kerneleval.tasks import all_tasks, peers

    system, folder, name = task.split("/", 2) if task.count("/") > 1 else (task.partition("/")[0], "", task)
    rows = [r for r in peers.names(system) if r.name == name and (not level or r.group == folder)]
    known = all_tasks().get(rows[0].tasks[0] if rows and rows[0].tasks else name)
    category = known.category if known is not None else "fused" if level > 1 else "unknown"
    if system == "KernelBench-X":
        return category, rows[0].group if rows else folder if folder in GROUPS else ""
    return category, known.group if known is not None else ""


def _candidate(place: str, text: str, origin: Origin) -> Candidate:
    from kerneleval.languages import detect

    text = text.encode("utf-8", errors="replace").decode()
    return Candidate(files=((place, text),), language=detect(place, text), origin=origin)


def _machine(hardware: str, baseline: str) -> Machine:
    return Machine(
        device=PUBLISHED,
        name=hardware or "hardware not stated",
        arch="",
        memory_bytes=0,
        cache_bytes=0,
        units=0,
        driver=f"published, baseline {baseline}",
        torch="",
    )


def _timing(ratio: float, low: float = 0.0, high: float = math.inf) -> Timing:
    """A published ratio; without an interval nothing is known of how uncertain it is."""
    return Timing(
        samples=Samples(),
        speedup=ratio,
        low=low,
        high=high,
        noise=NOISE,
        claim="inconclusive",
        device_time="published, not verified",
    )


def _outcome(passed: bool, timing: Timing | None, facts: Mapping[str, Any], failed: tuple[str, str, str]) -> Outcome:
    evidence = {"published": _plain(facts)}
    stage, reason, message = failed
    if passed:
        return Passed(timing=timing, evidence=evidence)
    return Failed(stage=stage, reason=reason, message=_clean(message, 500), evidence=evidence)


def _verdict(planned: Planned, outcome: Outcome, machine: Machine, protocol: Protocol) -> Verdict:
    timing = outcome.timing if isinstance(outcome, Passed) else None
    figures = {} if timing is None else {"value": timing.speedup, "low": timing.low, "high": timing.high}
    return Verdict(
        verdict="passed" if isinstance(outcome, Passed) else "failed",
        stage=outcome.stage if isinstance(outcome, Failed) else "correctness" if timing is None else "timing",
        reason=outcome.reason if isinstance(outcome, Failed) else "ok",
        message=(outcome.message if isinstance(outcome, Failed) else "") or NOT_JUDGED,
        task=planned.task,
        candidate="" if planned.candidate is None else planned.candidate.hash,
        track="",
        trust=Trust(level="weak", missing=(f"judge: {NOT_JUDGED}",)),
        machine=machine,
        protocol=protocol,
        speedup={**figures, "claim": "inconclusive", "cells": 1, "direction": "forward"} if figures else None,
        cells=(CellResult(case=planned.cases[0], outcome=outcome),),
        findings=({"check": "published", "level": "warn", "message": NOT_JUDGED},),
    )


def _all(
    made: Sequence[tuple[Planned, Verdict]],
    name: str,
    machine: Machine,
    protocol: Protocol,
    sources: int,
    remarks: Sequence[str],
) -> Published:
    verdicts = tuple(verdict for _, verdict in made)
    passed = sum(v.verdict == "passed" for v in verdicts)
    timed = sum(v.speedup is not None for v in verdicts)
    missing = sum(v.stage == "generate" for v in verdicts)
    problems, samples = len({v.task for v in verdicts}), len(verdicts) - missing
    counts = {"problems": problems, "samples": samples, "passed": passed, "timed": timed, "missing": missing}
    notes = [f"{NOT_JUDGED}: correctness and speed are as they stand in the file", *remarks]
    if passed > timed:
        notes.append(f"correct without a speedup: {passed - timed} (no time, or no baseline on the same hardware)")
    if missing:
        notes.append(f"attempts without a result, which count as failed: {missing} (the baseline has their problems)")
    if sources < samples:
        notes.append(f"samples without a source: {samples - sources} (a comment stands for each)")
    return Published(
        name=name,
        generators=(name,),
        machine=machine,
        protocol=protocol,
        planned=tuple(planned for planned, _ in made),
        verdicts=verdicts,
        counts={**counts, "sources": sources},
        remarks=tuple(notes),
    )


def _clean(text: str, limit: int) -> str:
    """The text in one line, with what can't be printed shown by its code, and cut at ``limit``."""
    cut = text if len(text) <= limit else f"{text[:limit]} ... ({len(text) - limit} more characters)"
    line = " ".join(cut.split())
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line)


def _plain(value: Any, depth: int = 0) -> Any:
    """Plain data of bounded size: long texts, lists and objects are cut, deep ones become text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else float("inf") if value > 0 else float("-inf")
    if isinstance(value, Mapping) and depth < _MOST_DEPTH:
        return {_clean(str(k), 100): _plain(v, depth + 1) for k, v in list(value.items())[:_MOST_ENTRIES]}
    if isinstance(value, list | tuple) and depth < _MOST_DEPTH:
        return [_plain(v, depth + 1) for v in value[:_MOST_ENTRIES]]
    text = value if isinstance(value, str) else f"(a {type(value).__name__}, left out)"
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " ..."
