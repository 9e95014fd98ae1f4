"""Candidates: source files that claim to solve a task, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from kerneleval.records.hashing import digest
from kerneleval.records.plain import FiniteFloat, OneOf

__all__ = ["GUIDANCE", "STORED", "Candidate", "Origin"]

GUIDANCE = ("none", "strategy", "detailed")
"""``none``: the task alone; ``strategy``: the approach (tiling, parallelisation, techniques); ``detailed``: how to
implement it, step by step."""

STORED = "store:"
"""Begins the name of a candidate that is taken from the store, where a file's path could stand; its hash follows."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a candidate came from and what it cost to make."""

    generator: str = "file"
    """Name of the generator."""
    model: str = ""
    """Model behind the generator, if any."""
    prompt_hash: str = ""
    """Hash of the rendered prompt, if any."""
    sample: int = 0
    """Index among the samples for the same task."""
    parent: str = ""
    """Content hash of the candidate that this one refines, if any."""
    tokens_in: int = 0
    """Prompt tokens."""
    tokens_out: int = 0
    """Completion tokens, those of reasoning included."""
    tokens_cached: int = 0
    """Prompt tokens that the endpoint had in its cache, among ``tokens_in``."""
    tokens_reasoning: int = 0
    """Tokens of reasoning, among ``tokens_out``."""
    money_usd: FiniteFloat = 0.0
    """Price of making it, in US dollars."""
    prices: str = ""
    """List that the price is from, with its date; empty: it was not computed."""
    seconds: FiniteFloat = 0.0
    """Wall time of making it."""
    human_edits: int = -1
    """Lines that a human changed; -1: not known."""
    guidance: Annotated[str, OneOf(("", *GUIDANCE))] = ""
    """What guidance a human gave the generator beyond the task: one of :data:`GUIDANCE`; empty: not recorded."""
    licence: str = ""
    """Licence of the source, an SPDX identifier; empty: not known."""
    round: int = 0
    """Round of refinement in which it was made: 0 is the first answer."""
    path: str = ""
    """Where its file lay when it was read, for replay lines; empty: it was in no file of its own."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Source files that claim to solve a task. Identity is the content, the language and the entry point."""

    files: tuple[tuple[str, str], ...]
    """(relative path, text) pairs, the main file first."""
    language: str
    """A name under ``languages/``."""
    entry: str = ""
    """Name of the forward entry point; empty: found by convention (``docs/candidates.md``)."""
    backward_entry: str = ""
    """Name of the explicit backward entry point; empty: found by convention, else autograd through forward."""
    origin: Origin = field(default_factory=Origin)
    """Where it came from; not part of the identity."""

    @property
    def hash(self) -> str:
        """SHA-256 over language, entry points and files."""
        parts = [self.language, self.entry, self.backward_entry]
        for path, text in self.files:
            parts += [path, text]
        return digest(*parts)

    @property
    def stored_name(self) -> str:
        """How a command line names it when it is in a store."""
        return f"{STORED}{self.hash[:16]}"

    @property
    def main(self) -> str:
        """Text of the main file."""
        return self.files[0][1]
