"""Requests to a generator and its answers: a task with the feedback on earlier rounds, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kerneleval.records.cells import Candidate, Limits, Machine, Origin
from kerneleval.records.tasks import Task

__all__ = ["PROBLEMS", "Answer", "EarlierRound", "Problem", "Request"]

Problem = Literal["", "no_code", "refused", "truncated", "endpoint", "budget"]

PROBLEMS: tuple[Problem, ...] = ("", "no_code", "refused", "truncated", "endpoint", "budget")
"""Why an answer holds no candidate. ``no_code``: it holds no source in the wanted language; ``refused``: the model
declined; ``truncated``: the source is cut off; ``endpoint``: nothing came, after all retries; ``budget``: a cap was
reached before the request. Empty: it holds one."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of asking once."""

    candidate: Candidate | None
    origin: Origin
    """Where it came from and what it cost, also where there is no candidate; that of the candidate is the same."""
    problem: Problem = ""
    """Why there is no candidate; empty: there is one."""
    message: str = ""
    """One sentence on the problem, for people."""
    text: str = ""
    """The whole answer as it came: a completion, a transcript."""

    @classmethod
    def without(cls, problem: Problem, message: str, origin: Origin, text: str = "") -> Answer:
        """An answer that holds no candidate."""
        return cls(candidate=None, origin=origin, problem=problem, message=message, text=text)


@dataclass(frozen=True, kw_only=True)
class EarlierRound:
    """An earlier round of the same sample."""

    answer: Answer
    feedback: str
    """What was said of it; it holds no secret of the judge."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question: a sample for a task in one round."""

    task: Task
    device: str
    """Device kind on which the candidate is to run."""
    machine: Machine | None = None
    limits: Limits | None = None
    """What it can do at best; None: not measured."""
    sample: int = 0
    """Index among the samples of the task."""
    history: tuple[EarlierRound, ...] = field(default=())
    """The rounds before this one, the first one first."""
    check: Callable[[Candidate], tuple[bool, str]] | None = field(default=None, compare=False, repr=False)
    """Judges a draft: whether it passes, and the feedback that a refinement would get, for generators that try before
    they answer; from any thread, one draft at a time. None: there is no judge.
    """

    @property
    def round(self) -> int:
        """Index of this round."""
        return len(self.history)

    @property
    def parent(self) -> str:
        """Hash of the latest candidate of the earlier rounds; empty: they have none."""
        return next((r.answer.candidate.hash for r in reversed(self.history) if r.answer.candidate is not None), "")
