"""What stands out when the candidate's sources are read. It warns; what the candidate does decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kerneleval.judge import static_analysis
from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.probes.calls import Calls
from kerneleval.records import Case, Finding, Outcome


@register(needs_worker=False)
def _check(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    if calls.loaded.trusted:  # a task's own reference, which may name this program
        return ()
    return static_analysis.findings(calls.loaded.candidate)
