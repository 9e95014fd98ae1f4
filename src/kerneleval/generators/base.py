"""What a generator is: anything with a name that gives candidates for a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, runtime_checkable

from kerneleval.records import Candidate, Task

__all__ = ["Generator", "Reader"]

Reader = Callable[[Path], Candidate]
"""Reads one source file; ``kerneleval.languages.read_candidate`` is one. It is handed in, because languages are a later
stage than generators."""


@runtime_checkable
class Generator(Protocol):
    """A source of candidates: a model, an agent, a compiler, a library, a directory of files."""

    @property
    def name(self) -> str:
        """Under which its results are stored."""

    @property
    def summary(self) -> str:
        """One line about it."""

    def candidates(self, task: Task, device: str) -> Iterable[Candidate]:
        """Samples for one task, best first where there is an order; none: the generator does not solve the task.

        Args:
            task: what to solve; a generator that asks a model may show all of it.
            device: device kind on which the candidates are to run: ``cpu``, ``cuda``, ``rocm`` ...

        Returns:
            Candidates whose ``origin`` names this generator, the sample's index and what it cost.

        Raises:
            UsageError: the generator's own input (a file, a setting) is wrong.
        """
