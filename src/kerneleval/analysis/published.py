"""Results that others published, as a store takes them: a machine, a protocol, planned attempts and their verdicts; and
what every format of ``analysis/formats`` needs to make them.

Nothing of them was judged here. So the device is ``published``, trust is ``weak``, every claim of speed is
``inconclusive``, and each verdict carries a warning that says so. See ``docs/published.md``.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.records import (
    GROUPS,
    PUBLISHED,
    TRACKS,
    Candidate,
    Case,
    CellResult,
    Failed,
    Finding,
    Machine,
    Origin,
    Outcome,
    Passed,
    Protocol,
    Samples,
    SpeedupSummary,
    Timing,
    Trust,
    UsageError,
    Verdict,
)
from kerneleval.records.registry import Registry
from kerneleval.store import NewRun, Planned

if TYPE_CHECKING:
    from kerneleval.store.store import Store


def load(path: str | os.PathLike[str], *, file_format: str = "kernelbench", **options: Any) -> Published:
    """Read what others published: an ``eval_results.json`` of KernelBench, or a ``.jsonl`` of KernelBench-X's
    corpus. The format is a module of ``analysis/formats``, the other options are the fields of :class:`PublishedFiles`.
    Raises UsageError for an unknown format, a file that is none, options that the format has not, a level that is not
    given, or hardware that differs from what the files state.
    """
    places = {name: Path(options[name]) if options.get(name) else None for name in ("baseline", "solutions")}
    files = PublishedFiles(**{**options, **places, "path": Path(path), "name": clean(options.get("name", ""), 200)})
    return FORMATS.find(file_format)(files)


def put(store: Store, published: Published) -> tuple[str, bool]:
    """Store it as a run; (identifier, whether anything was written). A complete run of the same name, machine and
    protocol, of any version, with the same attempts and candidates is left as it is and its identifier given; an
    interrupted one goes on. Raises UsageError where the store can't take it.
    """
    of = published
    wanted = {(p.generator, p.sample, p.task, p.candidate.hash if p.candidate else "") for p in of.planned}
    where = (of.name, (of.machine,), of.protocol)
    for info in store.runs():
        protocol = replace(info.protocol, version=of.protocol.version)  # others timed it, by no rule of ours
        alike = where == (info.name, info.machines, protocol) and info.complete and not info.audit
        if alike and wanted == {(a.generator, a.sample, a.task, a.candidate) for a in store.attempts(info.id)}:
            return info.id, False
    run = store.begin_run(
        NewRun(name=of.name, generators=of.generators, machines=(of.machine,), protocol=of.protocol, plan=of.planned),
        resume=True,
    )
    for planned, verdict in zip(of.planned, of.verdicts, strict=True):
        store.put_verdict(run, planned.generator, planned.sample, planned.candidate, verdict)
    return run, True


NOISE = 0.018
"""Noise floor of published times, as a ratio minus 1: in KernelBench-X's corpus the same code, byte for byte, is up to
1.79 % apart."""

NOT_JUDGED = "published by others, not judged here"

PROTOCOL = Protocol(tier="quick", directions=("forward",), allow=TRACKS)
"""What is known of every format's protocol."""

_MOST_BYTES = 2**30

_MOST_CHARACTERS, _MOST_ENTRIES, _MOST_DEPTH = 2000, 50, 4
"""What is kept of texts, of lists and objects, and of their nesting that was published with a result."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """What others published, ready for :func:`put`."""

    name: str
    generators: tuple[str, ...]
    machine: Machine
    """The hardware as published; its driver names the baseline."""
    protocol: Protocol
    planned: tuple[Planned, ...]
    """Every attempt, with its candidate; without one where a problem has no result."""
    verdicts: tuple[Verdict, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    """``problems``, ``samples``, ``passed``, ``timed``, ``missing`` (attempts without a result), ``sources``."""
    remarks: tuple[str, ...] = ()
    """What the reader must know: what was left out or assumed, a sentence each."""


def planned_of(task: str, level: int, dtype: str, origin: Origin, candidate: Candidate | None) -> Planned:
    """The attempt at a task of these results, with one case."""
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


def candidate_of(place: str, text: str, origin: Origin) -> Candidate:
    """The candidate of a source text."""
    from kerneleval.languages import detect

    text = text.encode("utf-8", errors="replace").decode()
    return Candidate(files=((place, text),), language=detect(place, text), origin=origin)


def machine_of(hardware: str, baseline: str) -> Machine:
    """The hardware as published."""
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


def timing_of(ratio: float, low: float = 0.0, high: float = math.inf) -> Timing:
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


def outcome_of(passed: bool, timing: Timing | None, facts: Mapping[str, Any], failed: tuple[str, str, str]) -> Outcome:
    """The outcome of the one case."""
    evidence = {"published": _plain(facts)}
    stage, reason, message = failed
    if passed:
        return Passed(timing=timing, evidence=evidence)
    return Failed(stage=stage, reason=reason, message=clean(message, 500), evidence=evidence)


def verdict_of(planned: Planned, outcome: Outcome, machine: Machine, protocol: Protocol) -> Verdict:
    """The verdict on an attempt, with the note that nothing was judged here."""
    timing, speedup = outcome.timing if isinstance(outcome, Passed) else None, None
    if timing is not None:
        low, high = timing.low, timing.high
        speedup = SpeedupSummary(value=timing.speedup, low=low, high=high, claim="inconclusive", cells=1)
    stage, reason, message = "correctness" if timing is None else "timing", "ok", ""
    if isinstance(outcome, Failed):
        stage, reason, message = outcome.stage, outcome.reason, outcome.message
    return Verdict(
        verdict="failed" if isinstance(outcome, Failed) else "passed",
        stage=stage,
        reason=reason,
        message=message or NOT_JUDGED,
        task=planned.task,
        candidate="" if planned.candidate is None else planned.candidate.hash,
        track="",
        trust=Trust(level="weak", missing=(f"judge: {NOT_JUDGED}",)),
        machine=machine,
        protocol=protocol,
        speedup=speedup,
        cells=(CellResult(case=planned.cases[0], outcome=outcome),),
        findings=(Finding(check="published", level="warn", message=NOT_JUDGED),),
    )


def collected(
    made: Sequence[tuple[Planned, Verdict]],
    name: str,
    machine: Machine,
    protocol: Protocol,
    sources: int,
    remarks: Sequence[str],
) -> Published:
    """Everything together, with its counts and remarks."""
    verdicts = tuple(verdict for _, verdict in made)
    passed = sum(v.verdict == "passed" for v in verdicts)
    timed = sum(v.speedup is not None for v in verdicts)
    missing = sum(v.stage == "generate" for v in verdicts)
    problems, samples = len({v.task for v in verdicts}), len(verdicts) - missing
    counts = {"problems": problems, "samples": samples, "passed": passed, "timed": timed, "missing": missing}
    notes = [f"{NOT_JUDGED}: correctness and speed are as stated in the file", *remarks]
    if passed > timed:
        notes.append(f"correct without a speedup: {passed - timed} (no time, or no baseline on the same hardware)")
    if missing:
        notes.append(f"attempts without a result, which count as failed: {missing} (the baseline has their problems)")
    if sources < samples:
        notes.append(f"samples without a source: {samples - sources} (a comment takes the place of each)")
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


def clean(text: str, limit: int) -> str:
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
        return {clean(str(k), 100): _plain(v, depth + 1) for k, v in list(value.items())[:_MOST_ENTRIES]}
    if isinstance(value, list | tuple) and depth < _MOST_DEPTH:
        return [_plain(v, depth + 1) for v in value[:_MOST_ENTRIES]]
    text = value if isinstance(value, str) else f"(a {type(value).__name__}, left out)"
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " ..."


def text_of(file: Path, fix: str) -> str:
    """The text of a published file. Raises UsageError, which ends with what to do (``fix``), where it cannot be read,
    is too large or is no UTF-8.
    """
    try:
        if not file.is_file():
            why = "not a regular file" if file.exists() else "no such file"
            raise UsageError(f"{file} can't be read: {why}; {fix}")
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{file} is larger than 1 GiB; {fix}")
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}; {fix}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start}); {fix}") from error


@dataclass(frozen=True, kw_only=True)
class PublishedFiles:
    """What is to be read, and what the caller says of it."""

    path: Path
    baseline: Path | None = None
    """Times of the reference, ``baseline_time_torch.json``; None: those taken with each sample, if any."""
    solutions: Path | None = None
    """Folder with the sources, ``level_L_problem_P_sample_S_kernel.py``; None: none."""
    name: str = ""
    """Name of run and generator; empty: the results' folder or file, or ``KernelBench-X``."""
    hardware: str = ""
    """Name of the device, where the files do not state it."""
    level: int | None = None
    """Level of KernelBench's problems; None: the only one that the baseline has."""


FORMATS: Registry[Callable[[PublishedFiles], Published]] = Registry(
    "format",
    "kerneleval.analysis.formats",
    problem=lambda plugin: "" if callable(plugin) else "it must be a function",
    module_is_name=True,
)

register = FORMATS.register
