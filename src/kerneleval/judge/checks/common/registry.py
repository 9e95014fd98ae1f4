"""The registry of checks. See :class:`~kerneleval.records.registry.Registry`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kerneleval.judge.probes.calls import Calls
from kerneleval.records import Case, Finding, Outcome
from kerneleval.records.registry import Registry

Check = Callable[[Calls, Sequence[Case], Mapping[Case, Outcome]], Iterable[Finding]]
"""(calls, cases, their outcomes so far) -> findings."""

CHECKS: Registry[Check] = Registry(
    "check",
    "kerneleval.judge.checks",
    problem=lambda plugin: "" if callable(plugin) else "it must be a function",
    options={"needs_worker": True},
)
"""``needs_worker=False``: the check is asked last, and also where the worker died in a check before it."""

register = CHECKS.register
