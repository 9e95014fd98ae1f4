"""What a generator is: anything with a name that gives candidates for a task, all at once or one for each request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from kerneleval.records import Answer, Candidate, Request, Task

_LANGUAGES = {"cpu": "numba", "opencl": "opencl", "metal": "metal", "xpu": "torch"}
_SUFFIXES = {"cuda": ".cu", "hip": ".hip", "cpp": ".cpp", "opencl": ".cl", "metal": ".metal"}


def usual_language(device: str) -> str:
    """The language of candidates for a device kind, where nothing names another: Triton where it runs."""
    return _LANGUAGES.get(device, "triton")


def candidate_name(language: str) -> str:
    """Name of a candidate's file where it has none of its own: ``candidate`` with the suffix of its language."""
    return f"candidate{_SUFFIXES.get(language, '.py')}"


class _Named(Protocol):
    @property
    def name(self) -> str:
        """Under which its results are stored."""

    @property
    def summary(self) -> str:
        """One line about it."""


@runtime_checkable
class Generator(_Named, Protocol):
    """A source of candidates: a model, an agent, a compiler, a library, a directory of files."""

    def candidates(self, task: Task, device: str) -> Iterable[Candidate]:
        """Samples for one task, best first where there is an order; none: the generator does not solve the task.

        They are to run on a device kind: ``cpu``, ``cuda``, ``rocm`` ... Their ``origin`` names this generator, the
        sample's index and what it cost. Raises UsageError where the generator's own input (a file, a setting) is wrong.
        """


@runtime_checkable
class Asked(_Named, Protocol):
    """A generator that makes a candidate for each request, which may have feedback on earlier ones (model, agent)."""

    samples: int
    rounds: int
    """Rounds for each sample at most; 1: no refinement."""
    concurrency: int
    """How many requests it can take at once; :meth:`ask` is then called from as many threads."""

    @property
    def identity(self) -> str:
        """Digest of the settings that its answers depend on: a run with others is another run."""

    def ask(self, request: Request) -> Answer:
        """One answer; what goes wrong on the way is an answer too (:data:`~kerneleval.records.PROBLEMS`). Raises
        UsageError: the generator's own settings are wrong, so that no request can succeed.
        """


@runtime_checkable
class Stoppable(Protocol):
    """A generator with work under way that can be given up."""

    def stop(self) -> None:
        """Give up what is under way, from any thread: the answer is not wanted. Processes that it started end."""


class Cache(Protocol):
    """Where answers are kept, so that nothing is paid for twice; a store is one."""

    def response(self, key: str) -> dict[str, Any] | None:
        """What was kept under that key; None: nothing."""

    def put_response(self, key: str, body: dict[str, Any]) -> None:
        """Keep plain data under a key, safely on disk when this returns; what is there already stays."""
