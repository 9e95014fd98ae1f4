"""Checks of honesty and meaning beyond single cases: one file each, found on first look-up.

A check is a function ``check(judge, cases, outcomes) -> Iterable[Finding]`` named ``CHECK`` in its module. A finding is
plain data with ``check``, ``level`` (``info``, ``warn``, ``fail``), ``message`` and, where it fails, ``reason``.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kerneleval.devices import Device
from kerneleval.judge.cells import CellJudge
from kerneleval.records import Candidate, Case, Evidence, Outcome
from kerneleval.worker.host import WorkerError, WorkerFailure

__all__ = ["run_all", "track_of", "why_untimed"]

Check = Callable[[CellJudge, Sequence[Case], Mapping[Case, Outcome]], Iterable[Evidence]]


@functools.cache
def _registry() -> dict[str, Check]:
    found: dict[str, Check] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name):
        module: Any = importlib.import_module(f"{__name__}.{info.name}")
        found[info.name] = module.CHECK
    return found


def run_all(judge: CellJudge, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> list[Evidence]:
    """The findings of every check. A worker that dies during a check is a finding of that check."""
    findings: list[Evidence] = []
    for name, check in _registry().items():
        try:
            findings += [{"check": name, **finding} for finding in check(judge, cases, outcomes)]
        except (WorkerError, WorkerFailure) as error:
            reason = error.reason if isinstance(error, WorkerFailure) else "exception"
            findings.append({"check": name, "level": "fail", "reason": reason, "message": str(error)[:500]})
            if isinstance(error, WorkerFailure):
                break
    return findings


def track_of(findings: Sequence[Evidence]) -> str:
    """The track that the evidence supports; empty: none was found."""
    return next((str(f["track"]) for f in findings if "track" in f), "")


def why_untimed(candidate: Candidate, device: Device) -> str:
    """Why a candidate's time would mean nothing here; empty: it is timed."""
    if candidate.language == "triton" and device.name == "cpu":
        return "not timed: on the CPU Triton runs in its interpreter, whose time says nothing of the kernel"
    return ""
