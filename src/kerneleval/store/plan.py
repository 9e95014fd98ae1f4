"""What a store takes and gives besides the shared records: planned attempts and descriptions of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kerneleval.records import Candidate, Case, Limits, Machine, Origin, Protocol


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One generator's sample for one task on one machine, with every case at which it will be judged.

    Plans are stored before anything is judged, so that what was never finished still counts against the generator.
    """

    generator: str
    task: str
    category: str
    level: int
    cases: tuple[Case, ...]
    """The cases, in the order of judging; at least one."""
    group: str = ""
    """The task's category in KernelBench-X's taxonomy; empty: none."""
    sample: int = 0
    """Index among the generator's samples for this task."""
    machine: str = ""
    """Fingerprint of the machine; empty: the run's only machine."""
    candidate: Candidate | None = None
    """The candidate, where it is known already (see :meth:`Store.put_candidate`)."""
    origin: Origin | None = None
    """The generator and what its answer cost, where there is no candidate; else the candidate's counts."""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run that is about to begin, with everything that it is going to judge."""

    name: str
    """For people; need not be unique."""
    generators: tuple[str, ...]
    """Names of the generators, in the order of reports."""
    machines: tuple[Machine, ...]
    """Where it judges, the primary machine first."""
    protocol: Protocol
    plan: tuple[Planned, ...]
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    """Requested devices that were not available: kind -> why."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Where tasks were found: name -> what was given as ``--task``."""
    audit: Mapping[str, Any] = field(default_factory=dict)
    """The request of an audit, its ``of`` the run that it judges again; empty: this is no audit."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """What the machines can do at best: fingerprint -> limits."""
    identity: tuple[str, ...] = ()
    """What else makes two runs the same: settings of generators whose candidates are not known yet."""
    rounds_of: str = ""
    """Identifier of the run that this one's attempts are rounds of refinement for; empty: of none."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A planned attempt as stored in a run. Fields that :class:`Planned` has too mean the same."""

    run: str
    generator: str
    sample: int
    task: str
    category: str
    level: int
    device: str
    machine: str
    """Fingerprint of the machine."""
    candidate: str
    """Content hash of the candidate; empty: none so far."""
    origin: Origin | None
    """Where the candidate came from; None: no candidate so far."""
    finished: bool
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One run: what it set out to do and how far it got. Fields that :class:`NewRun` has too mean the same."""

    id: str
    """Identifier: UTC date and time of its beginning, and six random digits."""
    name: str
    created_unix_s: float
    """Beginning, seconds since 1970 (UTC)."""
    generators: tuple[str, ...]
    machines: tuple[Machine, ...]
    protocol: Protocol
    planned: int
    finished: int
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    audit: Mapping[str, Any] = field(default_factory=dict)
    """Of an audit: ``of`` (the run that it judges again) and the rest of its request; empty: no audit."""
    rounds_of: str = ""

    groups: Mapping[str, str] = field(default_factory=dict)
    """Task name -> its category in KernelBench-X's taxonomy, where it has one."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    not_judged: Mapping[str, str] = field(default_factory=dict)
    """Tasks that do not settle what is right, and count nowhere: name -> why."""

    @property
    def complete(self) -> bool:
        """Whether every planned attempt has its verdict."""
        return self.finished == self.planned
