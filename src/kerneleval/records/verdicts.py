"""What the judge says of one candidate on one task and device, and how far it could be contained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kerneleval.records.machines import Machine, Protocol
from kerneleval.records.outcomes import Evidence, Outcome, outcome_from_plain
from kerneleval.records.parsing import _checked, _fields, _float
from kerneleval.records.tasks import Case

__all__ = ["CellResult", "Trust", "Verdict"]


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How well the untrusted side was really contained."""

    level: str
    """``strong``, ``standard``, ``weak`` (``docs/threat-model.md``)."""
    layers: tuple[str, ...] = ()
    """Layers in force: ``process``, ``rlimits``, ``no_new_privs``, ``uid``, ``netns``, ``landlock`` ..."""
    missing: tuple[str, ...] = ()
    """``layer: why`` for each layer that could not be had."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Trust:
        """Inverse of :func:`to_plain`; raises UsageError for unknown fields or wrong types."""
        return _checked(cls, plain)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came out at one case."""

    case: Case
    """The point."""
    outcome: Outcome
    """What came out."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Everything that the judge says of one candidate on one task and device."""

    verdict: Literal["passed", "failed"]
    """``passed``: right in every supported case, honest, on an allowed track."""
    stage: str
    """Stage of the first failure, or of the last stage passed."""
    reason: str
    """Slug of the first failure; ``ok`` when passed."""
    message: str
    """One sentence for people."""
    task: str
    """Task name."""
    candidate: str
    """Content hash of the candidate."""
    track: str
    """One of :data:`TRACKS`; empty: not decided, because it failed before."""
    trust: Trust
    """Containment that was really reached."""
    machine: Machine
    """Where it was judged."""
    protocol: Protocol
    """How it was judged."""
    speedup: dict[str, Any] | None
    """``value``, ``low``, ``high``, ``claim``, ``cells`` over the timed forward cells; None: nothing was timed."""
    cells: tuple[CellResult, ...]
    """Every case judged."""
    findings: tuple[Evidence, ...] = ()
    """Warnings and evidence of the honesty checks, each with ``check``, ``level`` (``info``, ``warn``, ``fail``) and
    ``message``."""
    replay: str = ""
    """Command line that judges the failing cell (or the candidate) again."""
    seconds: float = 0.0
    """Wall time of judging."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """``first`` and ``last``: what the device reported of clocks, temperature, throttling and other work after the
    first and after the last timed cell; empty: nothing was timed."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Verdict:
        """Inverse of :func:`to_plain`; raises UsageError when a field is missing or unknown."""
        values = _fields(cls, plain)
        values["trust"] = Trust.from_plain(values["trust"])
        values["machine"] = Machine.from_plain(values["machine"])
        values["protocol"] = Protocol.from_plain(values["protocol"])
        if values["speedup"] is not None:
            values["speedup"] = {
                k: _float(v) if k in ("value", "low", "high") else v for k, v in values["speedup"].items()
            }
        values["cells"] = tuple(
            CellResult(case=Case.from_plain(c["case"]), outcome=outcome_from_plain(c["outcome"]))
            for c in values["cells"]
        )
        return cls(**values)
