"""What a run gives: progress while it lasts, results to store, scores over them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kerneleval.records.candidates import Origin
from kerneleval.records.outcomes import Outcome
from kerneleval.records.tasks import Case

__all__ = ["Event", "OnEvent", "Result", "Score", "tell"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One step of a long job, for progress displays."""

    kind: str
    """The bar that it belongs to: ``generate``, ``build``, ``judge`` ...; ``note``: to none, its text is a line
    that stays."""
    done: int
    """Steps done so far."""
    total: int
    """Steps in all; 0: not known."""
    text: str = ""
    """What is being done now, one line."""


OnEvent = Callable[[Event], None]
"""Called as a job proceeds."""


def tell(on_event: OnEvent | None, kind: str, done: int, total: int, text: str) -> None:
    """Report progress, if anyone listens."""
    if on_event is not None:
        on_event(Event(kind=kind, done=done, total=total, text=text))


@dataclass(frozen=True, kw_only=True)
class Result:
    """One stored outcome with all that scores group by."""

    run: str
    """Run identifier."""
    generator: str
    """Generator name."""
    sample: int
    """Sample index of the candidate for its task."""
    candidate: str
    """Content hash; empty: the generator gave no candidate."""
    task: str
    """Task name."""
    category: str
    """Operator category of the task."""
    level: int
    """Level of the task."""
    device: str
    """Device kind."""
    machine: str
    """Fingerprint of the machine."""
    case: Case
    """The point."""
    outcome: Outcome
    """What came out."""
    group: str = ""
    """The task's category in KernelBench-X's taxonomy, one of :data:`GROUPS`; empty: none, or not known."""
    origin: Origin = field(default_factory=Origin)
    """Where the candidate came from and what it cost to make; of all cells of one sample the same."""
    judged_s: float = math.nan
    """Wall time of judging the whole sample, seconds; NaN: not judged."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number with its uncertainty."""

    value: float
    """The estimate; NaN where there is too little data."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    n: int
    """Number of units (cells, groups, tasks) it rests on."""
    note: str = ""
    """What the reader must know: which devices were not evaluated, what was left out."""
