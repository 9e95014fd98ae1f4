"""Checks of honesty and meaning beyond single cases: one file each, found on first look-up.

A check is a function ``check(calls, cases, outcomes) -> Iterable[Finding]`` under ``@register``, with the name of its
module. A finding is plain data with ``check``, ``level`` (``info``, ``warn``, ``fail``), ``message`` and, where it
fails, ``reason``. Checks under ``@register(needs_worker=False)`` run last, and also where the worker died before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kerneleval.devices import Device
from kerneleval.judge import static_analysis
from kerneleval.judge.checks.common.registry import CHECKS
from kerneleval.judge.probes.calls import Calls
from kerneleval.records import Candidate, Case, Evidence, Outcome
from kerneleval.worker.host import WorkerError, WorkerFailure

__all__ = ["in_order", "launched_of", "of_sources", "run_all", "track_of", "why_untimed"]


def in_order() -> list[str]:
    """The names of all checks; those that need no worker come last."""
    return sorted(CHECKS.names(), key=lambda name: not CHECKS.option(name, "needs_worker"))


def run_all(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> list[Evidence]:
    """The findings of every check. A worker that dies during a check is a finding of that check."""
    findings: list[Evidence] = []
    gone = False
    for name in in_order():
        if gone and CHECKS.option(name, "needs_worker"):
            continue
        try:
            findings += [{"check": name, **finding} for finding in CHECKS.find(name)(calls, cases, outcomes)]
        except (WorkerError, WorkerFailure) as error:
            reason = error.reason if isinstance(error, WorkerFailure) else "exception"
            findings.append({"check": name, "level": "fail", "reason": reason, "message": str(error)[:500]})
            gone = gone or isinstance(error, WorkerFailure)
    return findings


def of_sources(candidate: Candidate) -> list[Evidence]:
    """The findings of the checks that read only the sources, for a candidate that never came to be loaded."""
    return [{"check": "static", **finding} for finding in static_analysis.findings(candidate)]


def track_of(findings: Sequence[Evidence]) -> str:
    """The track that the evidence supports; empty: none was found."""
    return next((str(f["track"]) for f in findings if "track" in f), "")


def launched_of(findings: Sequence[Evidence]) -> tuple[str, ...]:
    """Own kernels, or entry points of native code, that were seen launched."""
    return tuple(next((f["launches"] for f in findings if f.get("check") == "track" and "track" in f), {}))


def why_untimed(candidate: Candidate, device: Device) -> str:
    """Why a candidate's time would mean nothing here; empty: it is timed."""
    if candidate.language == "triton" and device.name == "cpu":
        return "not timed: on the CPU Triton runs in its interpreter, whose time says nothing of the kernel"
    return ""
