"""What compiled code uses of a processor, counted in its instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneleval.records.errors import UsageError
from kerneleval.records.parsing import _checked

__all__ = ["ISAS", "CodeUse", "InstructionLine"]

ISAS = ("sass", "amdgcn", "x86", "arm")
"""Instruction sets that are read: NVIDIA's, AMD's, x86-64, AArch64."""

_MOST = 1 << 53


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

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> InstructionLine:
        """Raises UsageError on unknown, missing or invalid fields."""
        return _checked(cls, plain)


@dataclass(frozen=True, kw_only=True)
class CodeUse:
    """One kernel's compiled code. Where several binaries are one kernel's, each figure is that of the greatest."""

    kernel: str
    """Its name in the binary; empty: not known."""
    isa: str
    """One of :data:`ISAS`."""
    instructions: int = 0
    """Instructions in it."""
    classes: tuple[tuple[str, int], ...] = ()
    """(class, instructions) of the classes that there are any of."""
    widest_bytes: int = 0
    """The most that one instruction of one thread moves to or from global memory (on CPUs memory); 0: nothing does."""
    accesses: int = 0
    """Instructions that access global memory (on CPUs memory, from floating-point and vector registers)."""
    wide_accesses: int = 0
    """Those of them that move more than one element of a thread: eight bytes or more (on CPUs packed ones)."""
    lines: tuple[InstructionLine, ...] = ()
    """Evidence for the classes."""

    @property
    def vectorised(self) -> float | None:
        """Share of the accesses that are wide, 0 to 1; None: there are none."""
        return self.wide_accesses / self.accesses if self.accesses else None

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> CodeUse:
        """Raises UsageError on unknown, missing or invalid fields."""
        found: Any = plain
        if not isinstance(found, Mapping):
            raise UsageError(f"CodeUse: expected an object, got {found!r:.80}")
        found = dict(found)
        classes, lines = found.pop("classes", []), found.pop("lines", [])
        if not isinstance(classes, list) or not isinstance(lines, list):
            raise UsageError("CodeUse: classes and lines must be lists")
        if any(not (isinstance(c, list) and len(c) == 2 and type(c[0]) is str and type(c[1]) is int) for c in classes):
            raise UsageError(f"CodeUse: classes must be pairs of a name and a number, got {classes!r:.80}")
        counts = [c for _, c in classes] + [c for c in found.values() if isinstance(c, int)]
        if any(not 0 <= c < _MOST for c in counts):
            raise UsageError(f"CodeUse: counts must be 0 to 2^53, got {counts!r:.80}")
        known = {"classes": tuple((name, count) for name, count in classes)}
        return _checked(cls, found | known | {"lines": tuple(map(InstructionLine.from_plain, lines))})
