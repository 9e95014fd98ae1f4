"""Candidate and baseline side by side: windows of one while the other stands still."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kerneleval.judge.timing.timed_outputs import Arbiter, Bounds, verify
from kerneleval.judge.windows.buffers import WindowBuffer
from kerneleval.judge.windows.protocol import Runner, Window

__all__ = ["Pair"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two workers of one session."""

    candidate: Runner
    """Runner of the candidate's worker, loaded."""
    baseline: Runner
    """Runner of the trusted baseline's worker, loaded."""
    candidate_first: bool
    """Whose memory is allocated first: where it lies decides up to 1 % of a kernel's time."""
    generator: torch.Generator
    """What images are refreshed with."""
    timeout_s: float
    """Limit of one window."""

    @property
    def sides(self) -> tuple[Runner, Runner]:
        """Both, in the order in which they allocate."""
        return (self.candidate, self.baseline) if self.candidate_first else (self.baseline, self.candidate)

    def told_apart(self, windows: tuple[Window, Window]) -> tuple[Window, Window]:
        """(candidate's, baseline's) of two windows in the order of :attr:`sides`."""
        return windows if self.candidate_first else (windows[1], windows[0])

    def alone(self, runner: Runner, image: WindowBuffer, **options: Any) -> Window:
        """A window of one side while the other stands still: its threads could slow this one down."""
        other = self.baseline if runner is self.candidate else self.candidate
        with other.still():
            return runner.window(
                image, timeout_s=self.timeout_s, **({"check_mutation": False, "timed": True} | options)
            )

    def once(self, runner: Runner, image: WindowBuffer, **options: Any) -> Window:
        """A window on new content."""
        image.refresh(self.generator)
        return self.alone(runner, image, **options)

    def one_each(self, image: WindowBuffer) -> tuple[Window, Window]:
        """(candidate's, baseline's) window on new content, the same for both."""
        image.refresh(self.generator)
        one, other = [self.alone(runner, image) for runner in self.sides]
        return self.told_apart((one, other))

    def first_calls(self, image: WindowBuffer) -> tuple[Window, Window]:
        """A window of either side, which may compile, load or tune. The candidate's worker holds its outputs from now
        on.
        """
        mine, theirs = [self.alone(runner, image, keep=0 if runner is self.candidate else -1) for runner in self.sides]
        return self.told_apart((mine, theirs))

    def both(
        self, image: WindowBuffer, *, candidate_first: bool, look: bool = False, keep: int = -1
    ) -> tuple[Window, Window]:
        """(candidate's, baseline's) window on the same content, run in the order asked for; ``look``: whether the
        candidate changes its inputs is looked at; ``keep``: the call whose outputs its worker holds from now on.
        """
        options = {"check_mutation": look, "keep": keep}
        if candidate_first:
            mine = self.alone(self.candidate, image, **options)
            return mine, self.alone(self.baseline, image)
        theirs = self.alone(self.baseline, image)
        return self.alone(self.candidate, image, **options), theirs

    def warm(self, image: WindowBuffer, windows: int, seconds: float, offer: Callable[[], float]) -> None:
        """Windows of both until two consecutive ones of each agree within 1 %, or there were so many, or for so long
        each; ``offer`` is called between them, and its seconds are not counted.
        """
        for runner in (self.candidate, self.baseline):
            last, ends = 0.0, time.monotonic() + seconds
            for _ in range(windows):
                ends += offer()
                if time.monotonic() > ends:
                    break
                now = self.once(runner, image).elapsed_ns
                if last and abs(now / last - 1) < 0.01:
                    break
                last = now

    def cut(self, image: WindowBuffer, bounds: Bounds, arbiter: Arbiter) -> None:
        """A window cut at a secret call, not timed: a candidate that computes calls ahead of their turn is wrong there.

        It cannot see that before the cut: what lies in the place of the later calls' inputs is as new as any.

        Raises:
            TimedMismatch: an output was wrong.
        """
        count = len(image.plan.calls)
        if count < 2:
            return
        cut = 1 + secrets.randbelow(count - 1)
        image.refresh(self.generator)
        decoys = image.later(cut).clone()
        image.refresh(self.generator, cut)
        theirs = self.alone(self.baseline, image, timed=False)
        mine = self.alone(self.candidate, image, timed=False, cut=cut, decoys=decoys)
        verify((mine, theirs), image, bounds, arbiter)
