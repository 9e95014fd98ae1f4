"""One computation on several devices: which of them is wrong, and how far those that are right lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kerneleval.records.machines import Machine
from kerneleval.records.outcomes import Evidence
from kerneleval.records.tasks import Case

__all__ = ["Apart", "CaseAnswers", "DeviceAnswer", "Differential", "Element"]


@dataclass(frozen=True, kw_only=True)
class Element:
    """One element of one output, as every device has it."""

    output: int
    """Position of the output; in backward cases of the gradient."""
    shape: tuple[int, ...]
    """Shape of the output."""
    dtype: str
    """Its element type."""
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
    """Device kind."""
    answer: Literal["right", "wrong", "unsupported"]
    """``right``: every output is within its bound; ``unsupported``: declared so, neither for nor against."""
    stage: str = ""
    """As of a verdict, where it is not right."""
    reason: str = ""
    """As of a verdict."""
    message: str = ""
    """One sentence for people."""
    wrong_outputs: tuple[int, ...] = ()
    """Positions of the outputs that are beyond their bounds."""
    evidence: tuple[Evidence, ...] = ()
    """Figures of each of these, as of a failed cell."""
    elements: tuple[Element, ...] = ()
    """The worst element of each of these."""
    of_bound: float = 0.0
    """Greatest rms error over its bound among the floating outputs; 1 is the bound itself."""
    native: Literal["", "right", "wrong"] = ""
    """Whether PyTorch's own reference is right on that device on these inputs; empty: not asked."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """How far apart one output is on two devices."""

    first: str
    """One device."""
    second: str
    """The other."""
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
    """Largest difference."""
    max_of_bound: float
    """Largest difference of an element over that element's tolerance."""
    worst: Element
    """Where that is."""


@dataclass(frozen=True, kw_only=True)
class CaseAnswers:
    """One case: the same secret inputs on every device."""

    case: Case
    """The point."""
    answers: tuple[DeviceAnswer, ...]
    """One for each device."""
    apart: tuple[Apart, ...] = ()
    """One for each pair of devices that gave outputs of the right form, and each output."""


@dataclass(frozen=True, kw_only=True)
class Differential:
    """What a candidate, or PyTorch itself, gives on several devices."""

    task: str
    """Task name."""
    task_source: str
    """What was given as ``--task``: the name, or a problem file."""
    candidates: Mapping[str, str]
    """Device -> content hash of what ran there."""
    sources: Mapping[str, str]
    """Device -> its file; ``reference``: PyTorch's own operators."""
    machines: Mapping[str, Machine]
    """Device -> what it is."""
    cases: tuple[CaseAnswers, ...]
    """In the order of the plan."""
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    """Device -> why it is not here."""
    seconds: float = 0.0
    """Wall time."""

    @property
    def wrong(self) -> dict[str, int]:
        """Device -> number of cases where it is wrong."""
        counts = dict.fromkeys(self.candidates, 0)
        for case in self.cases:
            for one in case.answers:
                counts[one.device] += one.answer == "wrong"
        return counts
