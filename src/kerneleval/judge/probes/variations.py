"""The same case varied: other strides of its arguments, or other weights of its module.

A candidate may have a path for one argument's strides that is wrong for another's, and a module may keep what it folded
or packed of its first weights. ``repeats.py`` varies the values of the inputs; ``cells.py`` says when each is asked.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kerneleval.judge.probes.bound_case import BoundCase, Drawn
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.probes.repeats import Repeats
from kerneleval.judge.windows.answers import raised
from kerneleval.judge.windows.buffers import CallLayout
from kerneleval.judge.windows.modules import alike, moved, reveal_weights, split
from kerneleval.records import Case, Failed, Finding, Outcome, Passed, new_secret
from kerneleval.worker.host import WorkerError

__all__ = ["OTHERWISE", "OtherLayouts", "OtherWeights", "native_failures"]

OTHERWISE = "otherwise"
"""Value of ``strides`` in the evidence of an outcome that came in calls of :meth:`BoundCase.other_layouts`."""

_LARGE_BYTES = 1 << 30
"""Calls that take more bytes together get a window each."""

_LEAST_ALONE, _MOST_ALONE, _ALONE_S = 16, 128, 10.0
"""Weights of a module that change alone, secret ones where it has more. Those beyond the first number are tried only
until this many seconds have passed."""

_SMALL_WEIGHTS_BYTES = 256 << 20
"""Of module problems whose weights take no more bytes, two modules live at one time."""


def native_failures(outcomes: Mapping[Case, Outcome]) -> list[Finding]:
    """A finding about the calls in which PyTorch itself is wrong, or raises; none where there are none."""
    found = {case: int(o.evidence.get("native_is_wrong", 0)) for case, o in outcomes.items()}
    where = [case.key for case, count in found.items() if count]
    if not where:
        return []
    calls, cells = sum(found.values()), len(where)
    text = f"{calls} calls in {cells} cells say nothing about the candidate: PyTorch itself is wrong there, or raises"
    return [Finding(check="reference", level="info", message=f"{text}; first at {where[0]}")]


class OtherLayouts:
    """The windows in which one candidate gets arguments in the other strides that a case's layout has.

    Args:
        calls: calls the candidate.
        repeats: says for which cases inputs are exchanged too.
    """

    def __init__(self, calls: Calls, repeats: Repeats) -> None:
        self._calls, self._repeats = calls, repeats
        self._exchanged: set[tuple[str, str, str]] = set()  # kinds of ``Repeats.kind``
        self.under_way = False
        """Whether the case that is judged now has come to these windows."""

    def judge(self, bound: BoundCase, first: Drawn, outcome: Passed) -> Outcome:
        """The outcome after these windows. For the first case of each kind (``Repeats.kind``) they come twice,
        neighbours on unlike inputs and then on each other's, so that nothing kept by address lasts in any; not where
        one call takes more than ten seconds.

        Calls in which PyTorch itself is wrong, or raises, say nothing: ``native_is_wrong`` in the evidence counts them.
        """
        layouts = bound.other_layouts(first)
        if not layouts:
            return outcome
        affordable = self._calls.affordable(len(layouts))
        layouts = secrets.SystemRandom().sample(layouts, max(1, affordable))
        self.under_way = True
        kind = self._repeats.kind(bound.case)
        known = kind is None or kind in self._exchanged
        pair = self._repeats.pair(bound, first) if affordable and not known else None
        windows = [(bound, [first])] if pair is None or pair[0] is not bound else []
        if pair is not None and kind is not None:
            self._exchanged.add(kind)
            there, one, other = pair
            windows += [(there, [one, other]), (there, [other, one])]
        left_out = 0
        for there, drawn in windows:
            calls = [(drawn[index % len(drawn)], layout) for index, layout in enumerate(layouts)]
            found = self._windows(there, calls)
            if isinstance(found, Failed) and found.reason == "exception":
                telling = [(one, layout) for one, layout in calls if there.native_is_right(one, layout)]
                if len(telling) < len(calls):
                    left_out = max(left_out, len(calls) - len(telling))
                    found = self._windows(there, telling)
            if isinstance(found, Failed):
                return self.explained(found)
            left_out = max(left_out, found.evidence.get("native_is_wrong", 0))
        return _with(outcome, left_out)

    def explained(self, failed: Failed) -> Failed:
        """The outcome with a message, and evidence, that it came in these windows, if it did."""
        if not self.under_way:
            return failed
        words = f"{failed.message}; only where a part of the arguments is contiguous, or strided in another way"
        return replace(failed, message=words, evidence=dict(failed.evidence) | {"strides": OTHERWISE})

    def _windows(self, bound: BoundCase, calls: Sequence[tuple[Drawn, CallLayout]]) -> Passed | Failed:
        """The outcome of these calls, one window for all or, where they are large, for each."""
        large = sum(layout.nbytes for _, layout in calls) > _LARGE_BYTES
        left_out = 0
        for part in [[call] for call in calls] if large else [calls][: len(calls)]:
            drawn, layouts = [one for one, _ in part], [layout for _, layout in part]

            def excused(index: int, part: Sequence[tuple[Drawn, CallLayout]] = part) -> bool:
                return not bound.native_is_right(*part[index])

            try:
                outcome = self._calls.window(bound, drawn, layouts=layouts, excused=excused)
            except WorkerError as error:
                if error.unsupported:
                    raise
                return raised(error)
            if isinstance(outcome, Failed):
                return outcome
            left_out += outcome.evidence.get("native_is_wrong", 0)
        return _with(Passed(evidence={}), left_out)


def _with(outcome: Passed, left_out: int) -> Passed:
    return replace(outcome, evidence=dict(outcome.evidence) | {"native_is_wrong": left_out}) if left_out else outcome


class OtherWeights:
    """The windows under other weights that one candidate gets.

    Args:
        calls: calls the candidate.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._was_rebuilt = False

    def judge(self, case: Case, bound: BoundCase) -> Outcome:
        """The outcome under other weights, where what the module folded or packed before is stale.

        A secret half of the weights changes; at ordinary cases then the other half, so that no weight shows that
        another changed; then elements are exchanged within weights, so that neither ends nor sums show it. Once, each
        weight or buffer changes alone (tied ones together), and the module is built again: its weights go through the
        same versions as the first one's did. The first module is kept, and both are called alternately.
        """
        assert bound.weights is not None
        outcome: Outcome
        problem, ordinary = self._calls.problem(case), case.distribution == "standard"
        steps, alone = [], []
        for half in split(bound.weights)[: 2 if ordinary else 1]:
            fresh = problem.weights(new_secret(), case.distribution)
            steps.append({name: fresh[name] for name in half})
        if ordinary and not self._was_rebuilt:
            groups = alike(bound.weights)
            telling = "trained" if "trained" in self._calls.task.distributions else case.distribution
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
            reveal_weights(self._calls.loaded, bound.weights, list(step))
            outcome = self._calls.window(bound, [bound.draw(same)])
            if not isinstance(outcome, Passed):
                return outcome
        if bound.weights and not self._was_rebuilt:
            self._was_rebuilt = True
            outcome = self._rebuilt(case, bound)
        return outcome

    def _rebuilt(self, case: Case, first: BoundCase) -> Outcome:
        """The outcome of a second module, then of the first one again, which is kept, and of the second once more."""
        beside = sum(w.numel() * w.element_size() for w in (first.weights or {}).values()) <= _SMALL_WEIGHTS_BYTES
        self._calls.loaded.make_module(self._calls.problem(case).init_args, new_secret(), beside=beside)
        second = self._calls.bind(case)
        outcome = self._calls.window(second, [second.draw(new_secret())])
        for bound in (first, second) if beside else ():
            if not isinstance(outcome, Passed):
                break
            self._calls.loaded.swap_modules(drop=bound is second)
            outcome = self._calls.window(bound, [bound.draw(new_secret())])
            if isinstance(outcome, Failed):
                words = f"{outcome.message}; only where two modules are called in turn"
                outcome = replace(outcome, message=words)
        return outcome
