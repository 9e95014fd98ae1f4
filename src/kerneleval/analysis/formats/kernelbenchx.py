"""KernelBench-X's corpus: lines of JSON, each a candidate before and after a round of refinement."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kerneleval.analysis import published
from kerneleval.analysis.published import Published, PublishedFiles, clean, register
from kerneleval.analysis.transitions import Step
from kerneleval.records import Origin, UsageError, digest


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of the corpus."""

    before: Step
    after: Step
    kinds: tuple[str, ...]
    """The corpus's own labels of the change: ``speedup_increase``, ``exe_fail_to_pass`` ..."""


def read(path: str | os.PathLike[str]) -> list[Record]:
    """Every record of a file. A "call" of KernelBench-X is building and calling together, an "execution" the
    comparison of outputs; speedups have no interval. Raises UsageError, naming file, line and field, where it is no
    such file.
    """
    file = Path(path)
    lines = published.text_of(file, "give a .jsonl file of the corpus").split("\n")
    found = [_record(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"{file} holds no record")
    return found


def _record(line: str, where: str) -> Record:
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: this is not JSON: {error}; give a .jsonl file of the corpus") from error
    if not isinstance(plain, Mapping):
        raise UsageError(f"{where}: a record is an object, got {type(plain).__name__}")
    before, after = (_step(plain, side, where) for side in ("before", "after"))
    kinds = tuple(kind for kind in _value(plain, "kind", where).split(",") if kind)
    return Record(before=before, after=after, kinds=kinds)


def _step(plain: Mapping[str, Any], side: str, where: str) -> Step:
    of = plain.get(side)
    if not isinstance(of, Mapping):
        raise UsageError(f"{where}: {side} must be an object, got {of!r:.60}")
    called, correct = (_value(of, k, f"{where}, {side}", bool, "true or false") for k in ("call_ok", "exe_ok"))
    place = _value(plain, "from_round" if side == "before" else "to_round", where)
    number = place.rpartition("_")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 9):
        raise UsageError(f"{where}: a round is called round_N, got {place!r:.60}")
    stage = "" if correct else "correctness" if called else "call"
    return Step(
        task=_value(plain, "task_id", where),
        chain="KernelBench-X",
        round=int(number),
        code=_value(plain, f"{side}_code", where),
        built=None,
        called=called,
        correct=correct,
        stage=stage,
        reason={"correctness": "wrong_output", "call": "exception"}.get(stage, ""),
        message=str(of.get("error") or "") if stage else "",
        speedup=_speedup(of, f"{where}, {side}"),
        generator="KernelBench-X",
        source="KernelBench-X",
    )


def _value(plain: Mapping[str, Any], name: str, where: str, kind: type = str, what: str = "a text") -> Any:
    value = plain.get(name)
    if not isinstance(value, kind):
        raise UsageError(f"{where}: {name} must be {what}, got {value!r:.60}")
    return value


def _speedup(plain: Mapping[str, Any], where: str) -> float:
    value = plain.get("speedup")
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"{where}: speedup must be a positive number or null, got {value!r:.60}")
    return float(value)


@register
def _published(files: PublishedFiles) -> Published:
    """The corpus: each round of refinement is a sample."""
    given = {"--baseline": files.baseline, "--solutions": files.solutions, "--level": files.level}
    if wrong := [option for option, value in given.items() if value is not None]:
        raise UsageError(f"{wrong[0]} is for the format kernelbench; a corpus of KernelBench-X has all in one file")
    file = files.path
    steps: dict[str, dict[int, Step]] = {}
    for record in read(file):
        for step in (record.before, record.after):
            known = steps.setdefault(step.task, {}).setdefault(step.round, step)
            if repr(known) != repr(step):  # of NaN too
                raise UsageError(f"{file}: task {step.task!r:.80}, round {step.round} is there twice and differs")
    name = files.name or "KernelBench-X"
    halves = {"bf16": "bfloat16", "fp16": "float16"}
    dtypes = {task: halves.get(task.removesuffix(".py").rpartition("_")[2], "float32") for task in steps}
    machine = published.machine_of(clean(files.hardware, 200), "of KernelBench-X")
    protocol = replace(published.PROTOCOL, dtypes=tuple(dict.fromkeys(dtypes.values())))
    results = digest(file.read_bytes())[:16]
    made = []
    for task, rounds in steps.items():
        parents: dict[int, str] = {}
        stem = clean(task, 200).removesuffix(".py")
        for number, step in sorted(rounds.items()):
            origin = Origin(generator=name, sample=number, round=number, parent=parents.get(number - 1, ""))
            place = re.sub(r"[^\w.-]", "_", stem)
            candidate = published.candidate_of(f"{results}/round_{number}_{place}.py", step.code, origin)
            parents[number] = candidate.hash
            planned = published.planned_of(f"KernelBench-X/{stem}", 0, dtypes[task], origin, candidate)
            timing = published.timing_of(step.speedup) if step.timed else None
            facts = {"system": "KernelBench-X", "round": number}
            outcome = published.outcome_of(step.correct, timing, facts, (step.stage, step.reason, step.message))
            made.append((planned, published.verdict_of(planned, outcome, machine, protocol)))
    remarks = ["a sample is a round of refinement", "the data type follows from a task's name alone"]
    return published.collected(made, name, machine, protocol, len(made), remarks)
