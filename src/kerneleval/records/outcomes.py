"""What came out at one cell (passed, with its timing, or failed, with the reason), and what the checks saw.

A finding of level ``fail`` makes the verdict fail. Evidence that this program reads again has a record of its own here;
whatever else supports a finding is a mapping of plain data, which is shown and decides nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from kerneleval.records.plain import INLINE, OPTIONAL, Open, Within
from kerneleval.records.vocabulary import Reason, Track

__all__ = [
    "ISAS",
    "Claim",
    "ClockBound",
    "CodeUse",
    "Evidence",
    "Failed",
    "Finding",
    "Ghost",
    "InstructionLine",
    "KernelResources",
    "Level",
    "Outcome",
    "Passed",
    "ResourcesEvidence",
    "Samples",
    "TamperingEvidence",
    "TimeKind",
    "Timing",
    "TrackEvidence",
    "UsesEvidence",
]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Raw timing samples of one cell; statistics are computed on reading.

    The i-th entries of all tuples belong to the same window pair: two windows over inputs of equal content, one in the
    candidate's worker, one in the baseline's. A block has two entries; where the baseline has two processes, both
    entries have the same window of the candidate's.
    """

    candidate_ns: tuple[float, ...] = ()
    """Verified time of one call, by the judge's clock, empty-window time taken off."""
    baseline_ns: tuple[float, ...] = ()
    """The same of the baseline."""
    candidate_event_ns: tuple[float, ...] = ()
    """Device time of one call as the candidate's worker claims it; empty where the device has no events."""
    baseline_event_ns: tuple[float, ...] = ()
    """The same of the baseline's worker."""
    calls: int = 0
    """Calls in one window."""
    sessions: tuple[int, ...] = ()
    """Session index of each entry (every session has fresh processes)."""
    empty_ns: float = 0.0
    """What a window costs beyond its calls (median, measured on the baseline), taken off each window."""
    empty_spread_ns: float = 0.0
    """How far that cost scattered over the baseline's windows (standard deviation)."""
    cache: str = "cold"
    """``cold``: a window's inputs exceed three times the last-level cache; ``warm`` otherwise."""

    unclocked_ns: float = 0.0
    """How long a window's inputs lay open outside of the clock (median): the most that early or late work could hide.
    0: the worker was paused meanwhile."""
    processes: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    """Which of the baseline's two processes each pair was timed against, 0 or 1; empty: there was one."""
    launches: float = field(default=0.0, metadata=OPTIONAL)
    """Kernels that one recorded call launches, of either side the larger number; 0: calls were not recorded."""


_SURE_OF_CLOCK = 1.64

TOLD_APART = 0.02
"""From here on (log ratio) what could be forged of a device time is a part of its interval."""

TimeKind = Literal["call", "device"]
"""``call``: what a call costs its caller, launching from the host included. ``device``: what its work on the device
takes, launched as it was recorded before (CUDA graphs); the host has no part in it."""


@dataclass(frozen=True, kw_only=True)
class ClockBound:
    """What the judge's clock says of the events on which a speedup rests: log ratios, of both found alike."""

    larger: float
    """By how much the speedup is larger by events."""
    of_windows: float
    """Standard error of the clock's: of windows, which is independent from cell to cell."""
    of_processes: float
    """The same of processes, which all cells of a verdict have in common."""

    @property
    def error(self) -> float:
        """How far the clock's speedup may be off: 1.64 standard errors (95 %, one side)."""
        return _SURE_OF_CLOCK * math.hypot(self.of_windows, self.of_processes)

    @property
    def margin(self) -> float:
        """How far a candidate may have forged the speedup."""
        return max(self.larger, 0.0) + self.error

    @staticmethod
    def mean(bounds: Sequence[ClockBound | None]) -> ClockBound:
        """That of the mean of some speedups, with None for those that rest on no events."""
        n, known = max(len(bounds), 1), [bound for bound in bounds if bound is not None]
        return ClockBound(
            larger=sum(b.larger for b in known) / n,
            of_windows=math.hypot(*(b.of_windows for b in known)) / n,
            of_processes=sum(b.of_processes for b in known) / n,
        )


Claim = Literal["faster", "slower", "equal", "inconclusive"]
"""What may be said of a speedup: see :attr:`Timing.claim`."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A cell's time: the raw samples and what is claimed from them."""

    samples: Samples
    speedup: float
    """Geometric mean of baseline over candidate time."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    noise: float
    """Noise floor of this machine and duration class, as a ratio minus 1 (0.01 is 1 %)."""
    claim: Claim
    """``faster``/``slower``: a much surer interval excludes 1 and the effect exceeds the noise floor; ``equal``: the
    interval is within the noise floor around 1; else ``inconclusive``."""
    device_time: str = "none"
    """What became of the time by the worker's own events: ``accepted``, ``rejected: why`` or ``none``."""
    time: TimeKind = field(default="call", metadata=OPTIONAL)
    """Which time of a call all these figures are of."""
    margin: float = field(default=0.0, metadata=OPTIONAL)
    """How far (as a ratio minus 1) a candidate could have forged the events on which the speedup rests: by what the
    judge's own clock leaves open. From :data:`TOLD_APART` on it is a part of the interval. Claims hold with it."""
    clock: ClockBound | None = field(default=None, metadata=OPTIONAL)
    """Why the margin is that; None: the speedup rests on no events, or this was not kept."""
    freedom: float = field(default=math.inf, metadata=OPTIONAL)
    """Degrees of freedom of the interval, which is Student's; infinite: not kept."""
    other: Timing | None = field(default=None, metadata=OPTIONAL)
    """The other time of the same cell; None: it was not measured."""
    no_device_time: str = field(default="", metadata=OPTIONAL)
    """Why there is no device time, where the device can record calls; empty: there is, or it cannot."""

    @property
    def medians_ns(self) -> tuple[float, float]:
        """Median times of a call of candidate and baseline on which the speedup rests, by events or by the judge's
        clock; NaN: none are kept.
        """
        by_events = self.time == "device" and self.device_time == "accepted"
        of = self.samples
        sides = (of.candidate_event_ns, of.baseline_event_ns) if by_events else (of.candidate_ns, of.baseline_ns)
        own, base = (statistics.median(side) if side else math.nan for side in sides)
        return own, base


Evidence = dict[str, Any]
"""Plain data that supports an outcome: error figures, bounds, the worst element, findings."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The candidate was right here."""

    TAG: ClassVar[tuple[str, bool]] = ("passed", True)

    timing: Timing | None = None
    evidence: Evidence = field(default_factory=dict)
    """Error against the oracle, the native error, the bound."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The candidate failed here."""

    TAG: ClassVar[tuple[str, bool]] = ("passed", False)

    stage: str
    """One of :data:`STAGES`."""
    reason: str
    """Slug: ``wrong_output``, ``timeout``, ``crash`` ... (``docs/verdicts.md``)."""
    message: str = ""
    """One sentence for people: what, where, how much."""
    evidence: Evidence = field(default_factory=dict)
    replay: str = ""
    """The command line that judges just this cell again."""


Outcome = Passed | Failed


ISAS = ("sass", "amdgcn", "x86", "arm")
"""Instruction sets that are read: NVIDIA's, AMD's, x86-64, AArch64."""

Count = Annotated[int, Within(0, (1 << 53) - 1)]
"""How many; a float holds each of them exactly."""


@dataclass(frozen=True, kw_only=True)
class InstructionLine:
    """Evidence: one mnemonic of a class that is looked for."""

    unit: str
    """The class (``wgmma``, ``TMA``, ``AVX-512`` ...; ``languages/binaries/instructions.py``)."""
    mnemonic: str
    """As the disassembler prints it, with its modifiers."""
    count: int
    """How many instructions have it."""
    line: int
    """Line of the first in the kernel's text, from 1."""
    text: str
    """That line."""

    def __str__(self) -> str:
        return f"{self.count} {self.mnemonic} (line {self.line}: {self.text})"


@dataclass(frozen=True, kw_only=True)
class CodeUse:
    """One kernel's compiled code. Where several binaries are one kernel's, each figure is that of the greatest."""

    kernel: str
    """Its name in the binary; empty: not known."""
    isa: str
    """One of :data:`ISAS`."""
    instructions: Count = 0
    classes: tuple[tuple[str, Count], ...] = ()
    """(class, instructions) of the classes that there are any of."""
    widest_bytes: Count = 0
    """The most that one instruction of one thread moves to or from global memory (on CPUs memory); 0: nothing does."""
    accesses: Count = 0
    """Instructions that access global memory (on CPUs memory, from floating-point and vector registers)."""
    wide_accesses: Count = 0
    """Those of them that move more than one element of a thread: eight bytes or more (on CPUs packed ones)."""
    lines: tuple[InstructionLine, ...] = ()
    """Evidence for the classes."""

    @property
    def vectorised(self) -> float | None:
        """Share of the accesses that are wide, 0 to 1; None: there are none."""
        return self.wide_accesses / self.accesses if self.accesses else None


Level = Literal["info", "warn", "fail"]
"""``fail`` makes the verdict fail; ``warn`` and ``info`` are only reported."""

Ghost = Literal["", "needed", "little", "decoy"]
"""What came of calls with own kernels made no-ops: outputs are wrong without them, nearly right, or right. Empty: this
was not tried, or shows nothing."""


@dataclass(frozen=True, kw_only=True)
class TrackEvidence:
    """Of the check ``track``: what the candidate did at the watched cases."""

    track: Track
    """The track that follows from it."""
    aten: Mapping[str, int] = field(default_factory=dict)
    """What of libraries computes: ATen operators, ``aten.name.overload`` -> calls, and functions of others,
    ``numpy.matmul`` -> calls."""
    launches: Mapping[str, int] = field(default_factory=dict)
    """Own kernels, or entry points of native code -> launches."""
    cases: int = 0
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


@dataclass(frozen=True, kw_only=True)
class UsesEvidence:
    """Of the finding ``uses``: what the compiled code of launched kernels uses of the processor."""

    kernels: tuple[CodeUse, ...]
    why: str = ""
    """What could not be found out; empty: nothing."""
    complete: bool = False
    """Whether this is the code of all kernels that were launched."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check saw. In JSON the entries of its evidence stand beside the other fields."""

    check: str = ""
    """The check: a module of ``judge/checks``, whose name :func:`kerneleval.judge.checks.run_all` fills in, or
    ``conditions``, ``device``, ``far_offsets``, ``limits``, ``reference``, ``secret_shapes``, ``shapes``, ``timing``,
    ``uses``."""
    level: Level
    stage: str = field(default="", metadata=OPTIONAL)
    """Where it fails, one of :data:`STAGES`; empty: ``honesty``."""
    reason: Annotated[Reason | Literal[""], Open()] = field(default="", metadata=OPTIONAL)
    """Why it fails; empty: it does not. Another version may have stored a reason that this one does not know."""
    message: str
    evidence: TrackEvidence | TamperingEvidence | UsesEvidence | ResourcesEvidence | Mapping[str, Any] = field(
        default_factory=dict, metadata=INLINE
    )
    replay: str = field(default="", metadata=OPTIONAL)
    """The command line that shows it again, where it belongs to one case; else empty."""
