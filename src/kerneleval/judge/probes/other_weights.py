"""A module problem's candidate under other weights: what it folded, packed or kept of the old ones is stale."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from kerneleval.judge.probes.bound_case import BoundCase
from kerneleval.judge.windows.modules import alike, moved, reveal_weights, split
from kerneleval.records import Case, Failed, Outcome, Passed, new_secret

if TYPE_CHECKING:
    from kerneleval.judge.probes.cells import CellJudge

__all__ = ["OtherWeights"]

_LEAST_ALONE, _MOST_ALONE, _ALONE_S = 16, 128, 10.0
"""Weights of a module that change alone, secret ones where it has more; beyond the first of these numbers only while
they have taken less than so many seconds."""

_SMALL_WEIGHTS_BYTES = 256 << 20
"""Module problems whose weights take no more are made twice at one time."""


class OtherWeights:
    """The windows under other weights that one candidate gets.

    Args:
        cells: judges the candidate.
    """

    def __init__(self, cells: CellJudge) -> None:
        self._cells = cells
        self._made_anew = False

    def judge(self, case: Case, bound: BoundCase) -> Outcome:
        """Under other weights, what the module folded or packed once is stale: after a secret half of the weights has
        changed and, at ordinary cases, after the rest has, so that no one weight tells of the others, and after their
        elements have changed places, so that neither ends nor sums tell of a weight. Once, each weight or buffer has
        changed alone (tied ones together), and the module is made anew, whose weights have the history of those of the
        first one had; the first one lives on beside it, and both are called in turn.
        """
        assert bound.weights is not None
        outcome: Outcome
        problem, ordinary = self._cells.problem(case), case.distribution == "standard"
        steps, alone = [], []
        for half in split(bound.weights)[: 2 if ordinary else 1]:
            fresh = problem.weights(new_secret(), case.distribution)
            steps.append({name: fresh[name] for name in half})
        if ordinary and not self._made_anew:
            groups = alike(bound.weights)
            telling = "trained" if "trained" in self._cells.task.distributions else case.distribution
            steps.append(problem.weights(new_secret(), telling))
            for group in secrets.SystemRandom().sample(groups, min(len(groups), _MOST_ALONE)):
                fresh = problem.weights(new_secret(), telling)
                alone.append({name: fresh[name] for name in group})
            steps += alone[:_LEAST_ALONE]
        if ordinary:
            known = {name: w for step in (bound.weights, *steps) for name, w in step.items()}
            steps.append(moved({name: w for name, w in known.items() if name in problem.parameters}, new_secret()))
        same, until = new_secret(), time.monotonic() + _ALONE_S  # other weights: the same inputs give other outputs
        for number, step in enumerate((*steps, *alone[_LEAST_ALONE:])):
            if number >= len(steps) and time.monotonic() > until:
                break
            bound.weights = bound.weights | step
            reveal_weights(self._cells.loaded, bound.weights, list(step))
            outcome = self._cells.window(bound, [bound.draw(same)])
            if not isinstance(outcome, Passed):
                return outcome
        if bound.weights and not self._made_anew:
            self._made_anew = True
            outcome = self._anew(case, bound)
        return outcome

    def _anew(self, case: Case, first: BoundCase) -> Outcome:
        """The module made anew, then the first one again, which lives on beside it, and the new one once more."""
        beside = sum(w.numel() * w.element_size() for w in (first.weights or {}).values()) <= _SMALL_WEIGHTS_BYTES
        self._cells.loaded.make_module(self._cells.problem(case).init_args, new_secret(), beside=beside)
        second = self._cells.bind(case)
        outcome = self._cells.window(second, [second.draw(new_secret())])
        for bound in (first, second) if beside else ():
            if not isinstance(outcome, Passed):
                break
            self._cells.loaded.swap_modules(drop=bound is second)
            outcome = self._cells.window(bound, [bound.draw(new_secret())])
            if isinstance(outcome, Failed):
                words = f"{outcome.message}; only where two modules are called in turn"
                outcome = replace(outcome, message=words)
        return outcome
