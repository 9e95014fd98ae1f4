"""Checks of honesty and meaning beyond single cases: found on first look-up.

A check is a function ``check(calls, cases, outcomes) -> Iterable[Finding]`` under ``@register``. Its findings
get its name. Evidence on which something is decided is a record of ``records/outcomes.py``.
Checks under ``@register(needs_worker=False)`` run last, and also where the worker died before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kerneleval.judge.checks import code, track
from kerneleval.judge.checks.common.registry import CHECKS
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.windows.worker_pool import BuildFailed
from kerneleval.records import TRACKS, Candidate, Case, Finding, Outcome, Reason, TrackEvidence
from kerneleval.worker.host import WorkerError, WorkerFailure


def in_order() -> list[str]:
    """The names of all checks; those that need no worker come last."""
    return sorted(CHECKS.names(), key=lambda name: not CHECKS.option(name, "needs_worker"))


def run_all(
    calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome], *, without_worker: bool = False
) -> list[Finding]:
    """The findings of every check, or of those that need no worker. A worker that dies during a check is a finding of
    that check, as is a new one that the candidate does not load into.
    """
    findings: list[Finding] = []
    gone = without_worker or not calls.loaded.runner.worker.alive
    for name in in_order():
        if gone and CHECKS.option(name, "needs_worker"):
            continue
        try:
            findings += [replace(finding, check=name) for finding in CHECKS.find(name)(calls, cases, outcomes)]
        except (WorkerError, WorkerFailure, BuildFailed) as error:
            reason: Reason = "exception" if isinstance(error, WorkerError) else error.reason
            findings.append(Finding(check=name, level="fail", reason=reason, message=str(error)[:500]))
            gone = gone or not isinstance(error, WorkerError)
    return findings


def once_timed(calls: Calls, cases: Sequence[Case], findings: Sequence[Finding]) -> list[Finding]:
    """The findings on cases that were timed: whether what computes there is still what was seen before."""
    before = tracked(findings)
    if before is None or not calls.loaded.runner.worker.alive:
        return []
    try:
        return [replace(finding, check="track") for finding in track.again(calls, cases, before.track)]
    except (WorkerError, WorkerFailure, BuildFailed) as error:
        reason: Reason = "exception" if isinstance(error, WorkerError) else error.reason
        return [Finding(check="track", level="fail", reason=reason, message=str(error)[:500])]


def of_sources(candidate: Candidate) -> list[Finding]:
    """The findings of the checks that read only the sources, for a candidate that never came to be loaded."""
    return [replace(finding, check="static") for finding in code.of_sources(candidate)]


def tracked(findings: Sequence[Finding]) -> TrackEvidence | None:
    """What the check ``track`` saw of the candidate; None: nothing, or no case could be watched."""
    seen = [f.evidence for f in findings if isinstance(f.evidence, TrackEvidence)]
    return max(seen, key=lambda one: TRACKS.index(one.track), default=None)
