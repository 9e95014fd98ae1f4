"""KernelBench-X's corpus: lines of JSON, each a candidate before and after a round of refinement."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneleval.analysis.steps import Step
from kerneleval.records import UsageError

__all__ = ["Record", "read"]

_MOST_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of the corpus."""

    before: Step
    """The candidate of the round before."""
    after: Step
    """That of the round after it."""
    kinds: tuple[str, ...]
    """The corpus's own labels of the change: ``speedup_increase``, ``exe_fail_to_pass`` ..."""


def read(path: str | os.PathLike[str]) -> list[Record]:
    """Every record of a file.

    A "call" of KernelBench-X is building and calling together, an "execution" the comparison of outputs; speedups have
    no interval.

    Raises:
        UsageError: naming file, line and field where it is no such file.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{file} is larger than 1 GiB, more than the corpus; give another file")
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}; give a .jsonl file of the corpus") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start})") from error
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
    kinds = tuple(kind for kind in _text(plain, "kind", where).split(",") if kind)
    return Record(before=before, after=after, kinds=kinds)


def _step(plain: Mapping[str, Any], side: str, where: str) -> Step:
    of = plain.get(side)
    if not isinstance(of, Mapping):
        raise UsageError(f"{where}: {side} must be an object, got {of!r:.60}")
    called, correct = _flag(of, "call_ok", f"{where}, {side}"), _flag(of, "exe_ok", f"{where}, {side}")
    place = _text(plain, "from_round" if side == "before" else "to_round", where)
    number = place.rpartition("_")[2]
    if not (number.isascii() and number.isdigit() and len(number) < 9):
        raise UsageError(f"{where}: a round is called round_N, got {place!r:.60}")
    stage = "" if correct else "correctness" if called else "call"
    return Step(
        task=_text(plain, "task_id", where),
        chain="KernelBench-X",
        round=int(number),
        code=_text(plain, f"{side}_code", where),
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


def _text(plain: Mapping[str, Any], name: str, where: str) -> str:
    value = plain.get(name)
    if not isinstance(value, str):
        raise UsageError(f"{where}: {name} must be a text, got {value!r:.60}")
    return value


def _flag(plain: Mapping[str, Any], name: str, where: str) -> bool:
    value = plain.get(name)
    if not isinstance(value, bool):
        raise UsageError(f"{where}: {name} must be true or false, got {value!r:.60}")
    return value


def _speedup(plain: Mapping[str, Any], where: str) -> float:
    value = plain.get("speedup")
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"{where}: speedup must be a positive number or null, got {value!r:.60}")
    return float(value)
