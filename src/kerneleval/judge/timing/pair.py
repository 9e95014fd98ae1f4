"""Candidate and baseline side by side: windows of one while the other stands still.

It chooses no number of windows and reads no times: ``clock.py`` does.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kerneleval.judge.timing.timed_outputs import Arbiter, TimedBounds, verify
from kerneleval.judge.windows.buffers import WindowBuffer, WindowLayout
from kerneleval.judge.windows.protocol import Cut, Runner, Window
from kerneleval.worker.host import WorkerError, WorkerFailure

__all__ = ["BaselineError", "BaselineSide", "Pair"]


class BaselineError(Exception):
    """The trusted baseline failed in a window: the machine is at fault, not the candidate."""


class BaselineSide:
    """The runner of the baseline's worker; a failure in it becomes a BaselineError."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def prepare(self, layout: WindowLayout) -> None:
        """As :meth:`Runner.prepare`."""
        with _blamed_on_the_machine():
            self._runner.prepare(layout)

    def window(self, buffer: WindowBuffer, **options: Any) -> Window:
        """As :meth:`Runner.window`."""
        with _blamed_on_the_machine():
            return self._runner.window(buffer, **options)

    def still(self) -> contextlib.AbstractContextManager[None]:
        """Nothing: it stays idle by itself, and to stop it takes time."""
        return contextlib.nullcontext()


@contextlib.contextmanager
def _blamed_on_the_machine() -> Iterator[None]:
    try:
        yield
    except (WorkerError, WorkerFailure) as error:
        raise BaselineError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two workers of one session."""

    candidate: Runner
    """Runner of the candidate's worker, loaded."""
    baseline: Runner | BaselineSide
    """Runner of the trusted baseline's worker, loaded."""
    candidate_first: bool
    """Whose memory is allocated first: where it lies decides up to 1 % of a kernel's time."""
    generator: torch.Generator
    """What buffers are refreshed with."""
    timeout_s: float
    """Limit of one window."""

    @property
    def sides(self) -> tuple[Runner | BaselineSide, Runner | BaselineSide]:
        """Both, in the order in which they allocate."""
        return (self.candidate, self.baseline) if self.candidate_first else (self.baseline, self.candidate)

    def _by_role(self, windows: tuple[Window, Window]) -> tuple[Window, Window]:
        """(candidate's, baseline's) of two windows in the order of :attr:`sides`."""
        return windows if self.candidate_first else (windows[1], windows[0])

    def alone(self, runner: Runner | BaselineSide, buffer: WindowBuffer, **options: Any) -> Window:
        """A window of one side while the other stands still: its threads could slow this one down."""
        other = self.baseline if runner is self.candidate else self.candidate
        with other.still():
            return runner.window(
                buffer, timeout_s=self.timeout_s, **({"check_mutation": False, "timed": True} | options)
            )

    def once(self, runner: Runner | BaselineSide, buffer: WindowBuffer, **options: Any) -> Window:
        """A window on new content."""
        buffer.refresh(self.generator)
        return self.alone(runner, buffer, **options)

    def one_each(self, buffer: WindowBuffer) -> tuple[Window, Window]:
        """(candidate's, baseline's) window on new content, the same for both."""
        buffer.refresh(self.generator)
        one, other = [self.alone(runner, buffer) for runner in self.sides]
        return self._by_role((one, other))

    def first_calls(self, buffer: WindowBuffer) -> tuple[Window, Window]:
        """A window of either side, which may compile, load or tune. The candidate's worker holds its outputs from now
        on.
        """
        mine, theirs = [self.alone(runner, buffer, keep=0 if runner is self.candidate else -1) for runner in self.sides]
        return self._by_role((mine, theirs))

    def both(
        self, buffer: WindowBuffer, *, candidate_first: bool, look: bool = False, keep: int = -1
    ) -> tuple[Window, Window]:
        """(candidate's, baseline's) window on the same content, run in the order asked for; ``look``: whether the
        candidate changes its inputs is looked at; ``keep``: the call whose outputs its worker holds from now on.
        """
        options = {"check_mutation": look, "keep": keep}
        if candidate_first:
            mine = self.alone(self.candidate, buffer, **options)
            return mine, self.alone(self.baseline, buffer)
        theirs = self.alone(self.baseline, buffer)
        return self.alone(self.candidate, buffer, **options), theirs

    def warm(self, buffer: WindowBuffer, windows: int, seconds: float, offer: Callable[[], float]) -> None:
        """Windows of both until two consecutive ones of each agree within 1 %, or there were so many, or for so long
        each; ``offer`` is called between them, and its seconds are not counted.
        """
        for runner in (self.candidate, self.baseline):
            last, ends = 0.0, time.monotonic() + seconds
            for _ in range(windows):
                ends += offer()
                if time.monotonic() > ends:
                    break
                now = self.once(runner, buffer).elapsed_ns
                if last and abs(now / last - 1) < 0.01:
                    break
                last = now

    def cut(self, buffer: WindowBuffer, bounds: TimedBounds, arbiter: Arbiter) -> None:
        """A window cut at a secret call, not timed: a candidate that computes calls ahead of their turn is wrong there.

        It cannot see that before the cut: what lies in the place of the later calls' inputs is as new as any.

        Raises:
            TimedMismatch: an output was wrong.
        """
        count = len(buffer.layout.calls)
        if count < 2:
            return
        at = 1 + secrets.randbelow(count - 1)
        buffer.refresh(self.generator)
        decoys = buffer.later(at).clone()
        buffer.refresh(self.generator, at)
        theirs = self.alone(self.baseline, buffer, timed=False)
        mine = self.alone(self.candidate, buffer, timed=False, cut=Cut(at=at, decoys=decoys))
        verify((mine, theirs), buffer, bounds, arbiter)
