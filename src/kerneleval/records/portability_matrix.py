"""How far a candidate came on each target: compiled, run, right, fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kerneleval.records.code_uses import CodeUse

__all__ = ["AxisLevel", "CompiledKernel", "Matrix", "MatrixRow", "Rung"]

Answer = Literal["yes", "no", "not evaluated"]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung on one target."""

    answer: Answer
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
    """Time of compiling."""
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
    """What was compiled, each once."""
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
