"""What compiled code uses of a processor, counted in its instructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from kerneleval.records.plain import Within

__all__ = ["ISAS", "CodeUse", "InstructionLine"]

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
    """Instructions in it."""
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
