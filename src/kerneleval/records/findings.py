"""Findings: what the checks saw of a candidate as a whole, and the evidence on which something is decided.

A finding of level ``fail`` makes the verdict fail. Evidence that this program reads again has a record of its own here;
whatever else supports a finding is a mapping of plain data, which is shown and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from kerneleval.records.code_uses import CodeUse
from kerneleval.records.plain import INLINE, OPTIONAL, Open
from kerneleval.records.vocabulary import Reason, Track

__all__ = [
    "Finding",
    "Ghost",
    "KernelResources",
    "Level",
    "ResourcesEvidence",
    "TamperingEvidence",
    "TrackEvidence",
    "UsesEvidence",
]

Level = Literal["info", "warn", "fail"]
"""``fail`` makes the verdict fail; ``warn`` and ``info`` only tell."""

Ghost = Literal["", "needed", "little", "decoy"]
"""What came of calls with own kernels made no-ops: outputs are wrong without them, nearly right, or right. Empty: this
was not tried, or does not tell."""


@dataclass(frozen=True, kw_only=True)
class TrackEvidence:
    """Of the check ``track``: what the candidate did at the watched cases."""

    track: Track
    """The track that follows from it."""
    aten: Mapping[str, int] = field(default_factory=dict)
    """ATen operators that compute something, ``aten.name.overload`` -> calls."""
    launches: Mapping[str, int] = field(default_factory=dict)
    """Own kernels, or entry points of native code -> launches."""
    cases: int = 0
    """How many cases were watched."""
    ghost: Ghost = ""
    """The worst of them."""


@dataclass(frozen=True, kw_only=True)
class TamperingEvidence:
    """Of the check ``tampering``: when it was done."""

    when: Literal["load", "call"]
    """``load``: it was there when the candidate had been loaded, before any call."""


@dataclass(frozen=True, kw_only=True)
class KernelResources:
    """What one compiled kernel takes of a GPU: the least and the most over all binaries of its name."""

    kernel: str
    """Its name."""
    binaries: int
    """How many were compiled under it."""
    registers: tuple[int, int]
    """Of a thread."""
    local_bytes: tuple[int, int]
    """Local memory of a thread: spilled registers, arrays whose index is not constant."""
    shared_bytes: tuple[int, int]
    """Shared memory of a block, static and dynamic."""


@dataclass(frozen=True, kw_only=True)
class ResourcesEvidence:
    """Of the check ``resources``."""

    kernels: tuple[KernelResources, ...]
    """One a name."""


@dataclass(frozen=True, kw_only=True)
class UsesEvidence:
    """Of the finding ``uses``: what the compiled code of launched kernels uses of the processor."""

    kernels: tuple[CodeUse, ...]
    """One a kernel."""
    why: str = ""
    """What could not be told; empty: nothing."""
    complete: bool = False
    """Whether this is the code of all kernels that were launched."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check saw. In JSON the entries of its evidence stand beside the other fields."""

    check: str = ""
    """The check: a module of ``judge/checks``, whose name :func:`kerneleval.judge.checks.run_all` fills in, or
    ``conditions``, ``device``, ``limits``, ``reference``, ``secret_shapes``, ``shapes``, ``timing``, ``uses``."""
    level: Level
    """How much it weighs."""
    stage: str = field(default="", metadata=OPTIONAL)
    """Where it fails, one of :data:`STAGES`; empty: ``honesty``."""
    reason: Annotated[Reason | Literal[""], Open()] = field(default="", metadata=OPTIONAL)
    """Why it fails; empty: it does not. Another version may have stored a reason that this one does not know."""
    message: str
    """One sentence for people."""
    evidence: TrackEvidence | TamperingEvidence | UsesEvidence | ResourcesEvidence | Mapping[str, Any] = field(
        default_factory=dict, metadata=INLINE
    )
    """What supports it."""
    replay: str = field(default="", metadata=OPTIONAL)
    """The command line that shows it again, where it belongs to one case; else empty."""
