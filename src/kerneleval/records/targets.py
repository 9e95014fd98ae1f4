"""One candidate on several devices: how much their outputs differ, and how far it came on each target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kerneleval.records.cells import Machine
from kerneleval.records.outcomes import CodeUse, Evidence
from kerneleval.records.tasks import Case

__all__ = [
    "Apart",
    "AxisLevel",
    "CaseAnswers",
    "CompiledKernel",
    "DeviceAnswer",
    "Differential",
    "Element",
    "Matrix",
    "MatrixRow",
    "Rung",
]


@dataclass(frozen=True, kw_only=True)
class Element:
    """One element of one output, as every device has it."""

    output: int
    """Position of the output; in backward cases of the gradient."""
    shape: tuple[int, ...]
    dtype: str
    index: tuple[int, ...]
    """Where; of a complex output with a last index for real (0) and imaginary (1) part."""
    oracle: float
    """What the fp64 oracle has there."""
    values: Mapping[str, float]
    """Device -> what it has there, of those that gave an output of this form."""


@dataclass(frozen=True, kw_only=True)
class DeviceAnswer:
    """What one device gave at one case, against the oracle."""

    device: str
    answer: Literal["right", "wrong", "unsupported"]
    """``right``: every output is within its bound; ``unsupported``: declared so, neither for nor against."""
    stage: str = ""
    """As of a verdict, where it is not right."""
    reason: str = ""
    """As of a verdict."""
    message: str = ""
    wrong_outputs: tuple[int, ...] = ()
    """Positions of the outputs that are beyond their bounds."""
    evidence: tuple[Evidence, ...] = ()
    """Figures of each of these, as of a failed cell."""
    elements: tuple[Element, ...] = ()
    """The worst element of each of these."""
    of_bound: float = 0.0
    """Greatest rms error over its bound among the floating outputs; 1 is the bound itself."""
    native: Literal["", "right", "wrong"] = ""
    """Whether PyTorch's own reference is right on that device on these inputs; empty: not tried."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How far apart one output is on two devices."""

    first: str
    second: str
    output: int
    """Position of the output."""
    equal: int
    """Elements that are the same, bit for bit but for the sign of zero and the kind of NaN."""
    of: int
    """Elements."""
    relative_rms: float
    """rms of the difference over the oracle's; NaN for outputs that are no floating numbers, or are zero but for
    rounding."""
    rms_of_bound: float
    """rms of the difference over the bound on the rms error: two outputs within their bounds are at most 2 apart."""
    max_abs: float
    max_of_bound: float
    """Largest difference of an element over that element's tolerance."""
    worst: Element
    """Where that is."""


@dataclass(frozen=True, kw_only=True)
class CaseAnswers:
    """One case: the same secret inputs on every device."""

    case: Case
    answers: tuple[DeviceAnswer, ...]
    apart: tuple[Apart, ...] = ()
    """One for each pair of devices that gave outputs of the right form, and each output."""


@dataclass(frozen=True, kw_only=True)
class Differential:
    """What a candidate, or PyTorch itself, gives on several devices."""

    task: str
    task_source: str
    """What was given as ``--task``: the name, or a problem file."""
    candidates: Mapping[str, str]
    """Device -> content hash of what ran there."""
    sources: Mapping[str, str]
    """Device -> its file; ``reference``: PyTorch's own operators."""
    machines: Mapping[str, Machine]
    cases: tuple[CaseAnswers, ...]
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    """Device -> why it is not here."""
    seconds: float = 0.0

    @property
    def wrong(self) -> dict[str, int]:
        """Device -> number of cases where it is wrong."""
        counts = dict.fromkeys(self.candidates, 0)
        for case in self.cases:
            for one in case.answers:
                counts[one.device] += one.answer == "wrong"
        return counts


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung on one target."""

    answer: Literal["yes", "no", "not evaluated"]
    """``not evaluated`` counts neither for nor against."""
    why: str = ""
    """The compiler's or the judge's words where the answer is no; why there is none."""


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A kernel as it was compiled for one target."""

    name: str
    """Of the function in the source."""
    error: str = ""
    """The compiler's words; empty: there is a binary for the target."""
    registers: int = -1
    """Registers of a thread; -1: the binary does not have the number. The same for the fields below."""
    spilled: int = -1
    """Bytes of local memory a thread on NVIDIA's, spilled vector registers on AMD's."""
    shared_bytes: int = -1
    """Shared memory of a block, static and dynamic."""
    seconds: float = 0.0
    instructions: tuple[tuple[str, int], ...] = ()
    """How many of each class of special instructions it has (``languages/crosscompile/instructions.py``)."""
    widest_bytes: int = -1
    """The most that one instruction of a thread moves to or from global memory; -1: it was not disassembled."""
    code: CodeUse | None = None
    """What its code uses, with the lines that show it; None: it was not disassembled."""


@dataclass(frozen=True, kw_only=True)
class AxisLevel:
    """The level of a candidate on one axis of the Standard Kernel Rubric, as compiled for one target."""

    level: int | None
    """1 to 4; None: no evidence."""
    reason: str
    """What it rests on, or why there is none."""
    lines: tuple[str, ...] = ()
    """The places in source and compiled code that show it."""


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """One target."""

    target: str
    """An architecture (``sm_90``, ``gfx942``), or a device of this machine (``cpu``)."""
    product: str
    """A GPU of it, or this machine's device."""
    compiles: Rung
    runs: Rung
    correct: Rung
    fast: Rung
    """At least 0.8 times as fast as the device's baseline."""
    speedup: float | None = None
    """Geometric mean against the baseline; None: not timed."""
    kernels: tuple[CompiledKernel, ...] = ()
    seconds: float = 0.0
    """Time that compiling for it took, launches found included."""
    only_for: str = ""
    """``sm_90a``: it compiles for this variant alone, whose binaries run on no later GPU; empty: it needs none."""
    representation: AxisLevel | None = None
    """R of the rubric; None: not rated."""
    hardware: AxisLevel | None = None
    """H of the rubric, as compiled for this target."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All targets of one candidate."""

    task: str
    candidate: str
    """Content hash."""
    language: str
    rows: tuple[MatrixRow, ...]
