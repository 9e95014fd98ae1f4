"""What the judge says of one candidate on one task and device, and how far it could be contained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kerneleval.records.findings import Finding
from kerneleval.records.machines import Machine, Protocol
from kerneleval.records.outcomes import Claim, Outcome
from kerneleval.records.plain import OPTIONAL
from kerneleval.records.tasks import Case
from kerneleval.records.vocabulary import Direction

__all__ = ["CellResult", "Conditions", "SpeedupSummary", "Trust", "Verdict"]


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How well the untrusted side was really contained."""

    level: str
    """``strong``, ``standard``, ``weak`` (``docs/threat-model.md``)."""
    layers: tuple[str, ...] = ()
    """Layers in force: ``process``, ``rlimits``, ``no_new_privs``, ``uid``, ``netns``, ``landlock`` ..."""
    missing: tuple[str, ...] = ()
    """``layer: why`` for each layer that could not be had."""


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came out at one case."""

    case: Case
    """The point."""
    outcome: Outcome
    """What came out."""


@dataclass(frozen=True, kw_only=True)
class SpeedupSummary:
    """Geometric mean of the speedups of the timed cells of one direction, with its 95 % interval."""

    value: float
    """Baseline time over candidate time."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    claim: Claim
    """As of a cell's timing."""
    cells: int
    """How many cells were timed."""
    direction: Direction = "forward"
    """``backward`` only where no forward cell was timed."""


Reading = Mapping[str, Any]
"""What a device told of its state by name: numbers, texts or lists of texts; which names depends on the device."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Clocks, temperature, power, throttling and other work on the machine, as the device told them."""

    first: Reading | None = field(default=None, metadata=OPTIONAL)
    """After the first timed cell; None: nothing was timed."""
    last: Reading | None = field(default=None, metadata=OPTIONAL)
    """After the last timed cell; None: nothing was timed."""


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
    speedup: SpeedupSummary | None
    """Over the timed cells; None: nothing was timed."""
    cells: tuple[CellResult, ...]
    """Every case judged."""
    findings: tuple[Finding, ...] = ()
    """What the checks saw."""
    replay: str = ""
    """Command line that judges the failing cell (or the candidate) again."""
    seconds: float = 0.0
    """Wall time of judging."""
    conditions: Conditions = field(default_factory=Conditions)
    """The state of the machine meanwhile."""
