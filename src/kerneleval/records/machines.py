"""The unit that is judged: on which machine, under which protocol, at which cell."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from kerneleval.records.hashing import digest
from kerneleval.records.tasks import Case

__all__ = ["Cell", "Machine", "Protocol"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device and host on which a result holds."""

    device: str
    """Device kind: a name under ``devices/``."""
    name: str
    """Product name of the device."""
    arch: str
    """Architecture: ``sm_90``, ``gfx942``, ``x86_64``."""
    memory_bytes: int
    """Device memory."""
    cache_bytes: int
    """Last-level cache."""
    units: int
    """Multiprocessors, or cores."""
    driver: str
    """Driver or kernel version."""
    torch: str
    """PyTorch version."""
    triton: str = ""
    """Triton version; empty: absent."""
    host: str = ""
    """Host processor."""

    @property
    def fingerprint(self) -> str:
        """Short hash (16 hex digits) over every field."""
        return digest(*(str(getattr(self, f.name)) for f in dataclasses.fields(self)))[:16]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything the judge may vary; part of a result's identity, so results under different protocols never mix."""

    tier: Literal["quick", "standard", "precise"] = "standard"
    """Timing effort (``docs/timing.md``)."""
    baseline: str = "eager"
    """What speedup is measured against: ``eager`` or ``compile``."""
    shapes: Literal["default", "sweep", "real"] = "default"
    """``sweep`` varies a peer problem's own sizes too; ``real``: at the shapes of models alone."""
    dtypes: tuple[str, ...] = ()
    """Restrict to these dtypes; empty: the task's."""
    directions: tuple[str, ...] = ()
    """Restrict to these directions; empty: the task's."""
    categories: tuple[str, ...] = ()
    """Restrict to these shape categories; empty: all."""
    distributions: tuple[str, ...] = ()
    """Restrict to these distributions; empty: the planner's choice."""
    timed: bool = True
    """Whether correct candidates are timed."""
    timed_dtypes: tuple[str, ...] = ()
    """Dtypes in which cells are timed; empty: the first dtype judged."""
    allow: tuple[str, ...] = ("custom", "mixed")
    """Tracks that may pass."""
    tf32: bool = False
    """Whether TF32 is allowed in fp32 tasks, for the baseline and in the tolerance."""
    suite_seed: int = 0
    """Public seed of the sampled shapes, so that all candidates of a run meet the same cells. Inputs use secrets."""
    version: int = 1
    """Raised whenever the meaning of a stored result changes."""
    audit: str = ""
    """Token of the audit that judges under it, so that what an audit finds neither meets nor replaces the outcomes that
    it is to check; empty: no audit."""

    @property
    def key(self) -> str:
        """Hash (16 hex digits) of every field; ``audit`` counts where there is one, so that older keys stay."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "audit" or self.audit]
        return digest(*(f"{name}={getattr(self, name)!r}" for name in names))[:16]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Candidate x case x machine x protocol: the unit that is judged, stored and cached."""

    candidate: str
    """Content hash of the candidate."""
    case: Case
    """The point."""
    machine: str
    """Fingerprint of the machine."""
    protocol: str
    """Key of the protocol."""

    @property
    def key(self) -> str:
        """SHA-256 of all parts."""
        return digest(self.candidate, self.case.key, self.case.shape_category, self.machine, self.protocol)
