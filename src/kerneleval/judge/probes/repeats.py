"""Windows that call a case again with something changed: few elements, strides of arguments, weights of a module.

What a candidate keeps of one call is wrong for another: results kept by address, by few elements or in a ring of
buffers, a path for one argument's strides, weights that were folded or packed once. ``cells.py`` says when each is
asked; timed windows exchange elements too, by ``windows/buffers.py``.
"""

from __future__ import annotations

import functools
import math
import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.probes.calls import BoundCase, Calls, Drawn, number_of_all_types, other_scalars
from kerneleval.judge.windows import inputs
from kerneleval.judge.windows.buffers import CallLayout, TensorSlot
from kerneleval.judge.windows.modules import alike, moved, reveal_weights, split
from kerneleval.judge.windows.protocol import raised
from kerneleval.records import (
    LAYOUTS,
    Case,
    Failed,
    InfrastructureError,
    NotJudgedError,
    Outcome,
    Passed,
    UsageError,
    new_secret,
)
from kerneleval.worker.host import WorkerError

_MANY, _MANY_BYTES = 10, 1 << 20
"""Further calls in a window of one small case for each direction and dtype, and the bytes that such a case may take."""

_MANY_STRIDED = 6
"""Further calls in a window of one strided case for each direction, dtype and layout."""

_MOST, _MOST_BYTES = 30, 256 << 20
"""Further calls in a window of one larger case for each direction; of one dtype that is chosen in secret, whatever the
case takes; and of one strided case, whose dtype and layout are chosen in secret. The bytes that all calls of such a
window may take together."""

_SMALL_MODULE_BYTES = 64 << 20
"""Bytes of inputs and outputs up to which a module problem is called twice in a window."""

_MOVING_PARTS = (1 / 256, 0.5)
"""Parts of the elements that are exchanged: as few as in timed windows, or half where that changes no output."""


class Repeats:
    """The windows of repeated and exchanged calls that one candidate gets."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._many: set[tuple[str, str, bool]] = set()  # direction, dtype, whether large
        self._strided: set[tuple[str, str, str]] = set()  # direction, dtype, layout
        self._alone: set[tuple[str, str]] = set()  # directions and dtypes in which every argument has changed alone
        judged = [dtype for dtype in calls.task.dtypes if not calls.protocol.dtypes or dtype in calls.protocol.dtypes]
        self._long_dtype = secrets.choice(judged[1:] or [""])
        """Of the dtypes that are not timed, the one that gets windows of ``_MOST`` further calls."""
        self._long_strided = secrets.choice(judged or [""]), secrets.choice([a for a in LAYOUTS if a != "contiguous"])
        """Dtype and layout of the strided case that gets as many."""

    def ordinary(self, case: Case, call_layout: CallLayout) -> bool:
        """Whether a case is for :meth:`judge`.

        A module problem may fill the device with one call's inputs, and is then called once in each window.
        """
        return is_plain(case) and (not self._calls.task.module or call_layout.nbytes <= _SMALL_MODULE_BYTES)

    def judge(self, bound: BoundCase, first: Drawn) -> Outcome:
        """The outcome of two windows: two calls whose inputs differ by few elements, then the same two in exchanged
        places, once for each direction and dtype with more calls, and with each argument changed alone
        (``docs/correctness.md``).
        """
        changed = _drawn_ahead(bound, first)
        if changed is not None:
            self._reserve(bound, first, self._further(bound, first))
        outcome = self._calls.window(bound, [first, changed or bound.draw(new_secret())], cut=int(changed is None))
        if changed is None or not isinstance(outcome, Passed):
            return outcome
        # each at the address at which the other was; the second call's inputs come when the first is done
        outcome = self._calls.window(bound, [changed, first, *self._more(bound, changed, first)], cut=1)
        if isinstance(outcome, Passed):
            outcome = self._one_by_one(bound, changed) or outcome
        return outcome

    def kind(self, case: Case) -> tuple[str, str, str] | None:
        """Direction, dtype and layout, for each of which one strided case is repeated; in the quick tier one layout
        stands for all whose elements lie apart. None: the case is not repeated.
        """
        quick = self._calls.protocol.tier == "quick"
        if case.layout == "contiguous" or self._calls.task.module or (quick and case.layout == "expanded"):
            return None
        return case.direction, case.dtype, "" if quick else case.layout

    def strided(self, bound: BoundCase, first: Drawn) -> Failed | None:
        """The same two windows for the first case of each :meth:`kind`, with more calls in a secret order: neither
        copies kept by address nor a few buffers for all strided calls pass. Not where one call takes more than ten
        seconds.
        """
        case, kind = bound.case, self.kind(bound.case)
        if kind is None or kind in self._strided:
            return None
        pair = self.pair(bound, first) if self._calls.affordable(1) else None
        if pair is None:
            return None
        dtype, layout = self._long_strided
        chosen = case.dtype == dtype and kind[2] in ("", layout)
        repeated = not chosen and any(direction == case.direction for direction, _, _ in self._strided)
        self._strided.add(kind)
        there, one, other = pair
        call_layout = there.call_layout(one)
        most = min(_MOST if chosen else _MANY_STRIDED, _MOST_BYTES // max(call_layout.nbytes, 1))
        self._reserve(there, one, most)
        for two, more in ((one, other), 0), ((other, one), self._calls.affordable(most, repeated=repeated)):
            outcome = self._calls.window(there, [*two, *shuffled_calls(two, more)])
            if isinstance(outcome, Failed):
                return outcome
        return None

    def pair(self, bound: BoundCase, first: Drawn) -> tuple[BoundCase, Drawn, Drawn] | None:
        """Two calls of which neither's outputs are right for the other, and their case: the first one and one of which
        few elements differ or, where that changes no output (``exp`` of small numbers in half types), two of standard
        values. None: there is nothing to exchange.
        """
        changed = exchanged_call(bound, first)
        if changed is not None and not matches(first.expectation.native, changed.expectation):
            return bound, first, changed
        if bound.case.distribution != "standard":
            bound = self._calls.bind(replace(bound.case, distribution="standard"))
            first = bound.draw(new_secret())
            changed = exchanged_call(bound, first)
        return None if changed is None else (bound, first, changed)

    def _reserve(self, bound: BoundCase, drawn: Drawn, further: int) -> None:
        """Have shared memory for two calls and this many further ones. If it grew for the second window, no tensor of
        that would lie at an address of the first window's.
        """
        call_layout, calls = bound.call_layout(drawn), 2 + further
        self._calls.loaded.runner.reserve(calls * call_layout.input_bytes, calls * call_layout.output_bytes)

    def _further(self, bound: BoundCase, drawn: Drawn) -> int:
        """How many further calls a window gets if they take no more than ten seconds; 0 where another case of the
        direction, dtype and size had them.
        """
        nbytes, case = bound.call_layout(drawn).nbytes, bound.case
        large = nbytes > _MANY_BYTES
        most = large and (case.direction, True) not in {(direction, big) for direction, _, big in self._many}
        count = _MOST if most or case.dtype == self._long_dtype else _MANY
        known = (case.direction, case.dtype, large) in self._many
        return 0 if known or count * nbytes > _MOST_BYTES else count

    def _more(self, bound: BoundCase, *two: Drawn) -> list[Drawn]:
        """Further calls of a window, once for each direction and dtype: results in a ring of a few buffers are
        overwritten.
        """
        call_layout, case = bound.call_layout(two[0]), bound.case
        count = self._further(bound, two[0])
        if not count:
            return []
        repeated = case.dtype != self._long_dtype and any(direction == case.direction for direction, _, _ in self._many)
        affordable = self._calls.affordable(count, repeated=repeated)
        if affordable == count:  # else it may have been the first call, which compiles: later cases are asked too
            self._many.add((case.direction, case.dtype, call_layout.nbytes > _MANY_BYTES))
        return shuffled_calls(two, affordable)

    def _one_by_one(self, bound: BoundCase, drawn: Drawn) -> Failed | None:
        """Once for each direction and dtype: the same call, then again at the same addresses with one argument drawn
        anew, for each argument, plain numbers too. Of a slow candidate's a secret part, and more at the next case. All
        integers and flags of a problem file count as one argument: its code may make one of another.
        """
        calls, kind = self._calls, (bound.case.direction, bound.case.dtype)
        if kind in self._alone:
            return None
        other = bound.arguments(new_secret())
        values = [*drawn.args, *drawn.grads]
        others = [*self._other_plain(bound, other), *bound.upstream(other, new_secret())]
        free = [
            place
            for place, value in enumerate(values)
            if isinstance(value, torch.Tensor)
            or ((isinstance(value, float) or calls.task.module) and repr(value) != repr(others[place]))
        ]
        related = bound.problem.related if bound.problem is not None else frozenset[int]()
        groups = drawn_together(values, free, related) if calls.task.module else [[place] for place in free]
        if len(groups) < 2:
            self._alone.add(kind)
            return None
        affordable = calls.affordable(2 * len(groups)) // 2
        if affordable == len(groups):
            self._alone.add(kind)
        for group in secrets.SystemRandom().sample(groups, max(1, affordable)):
            changed = [others[place] if place in group else value for place, value in enumerate(values)]
            try:
                alone = bound.expect(changed[: len(drawn.args)], changed[len(drawn.args) :])
            except UsageError:
                if not calls.task.module:
                    raise
                continue  # what one argument of a problem file says may depend on another
            for one in (drawn, alone):
                outcome = calls.window(bound, [one])
                if isinstance(outcome, Failed):
                    names = [spec.name for spec in bound.specs] or [f"argument {i}" for i in range(len(drawn.args))]
                    what = " and ".join(names[p] if p < len(names) else "the upstream gradient" for p in group)
                    return replace(outcome, message=f"{outcome.message}; the call before differed in {what} alone")
        return None

    def _other_plain(self, bound: BoundCase, args: Sequence[Any]) -> list[Any]:
        """The arguments with other plain numbers, unless the case has such already."""
        if self._calls.scalars:
            return list(args)
        if self._calls.task.module:
            draw = secrets.SystemRandom().uniform
            return [number_of_all_types(draw(0.8, 0.95) * a) if isinstance(a, float) else a for a in args]
        known = other_scalars(self._calls.task, bound.case, larger=True)
        return [known.get(spec.name, arg) for spec, arg in zip(bound.specs, args, strict=True)]


def _drawn_ahead(bound: BoundCase, first: Drawn) -> Drawn | None:
    """As :func:`exchanged_call`, unless another thread has called it for this first call."""
    ahead, bound.exchanged = bound.exchanged, None
    if ahead is not None:
        with suppress(InfrastructureError, torch.OutOfMemoryError):  # memory that was taken then may be free now
            return ahead()
    return exchanged_call(bound, first)


def is_plain(case: Case) -> bool:
    """Whether a case has neither special values nor strides nor a size at an end."""
    return (case.distribution, case.layout) == ("standard", "contiguous") and case.shape_category != "edge"


def exchanged_call(bound: BoundCase, drawn: Drawn) -> Drawn | None:
    """The same call with secret elements of its inputs exchanged; None where there is nothing to exchange.

    What a cache may take for the content stays: addresses, shapes, first and last elements, sums. Few elements move
    where that is enough for the old outputs to be wrong, else most of them. Where the old outputs stay right
    whatever moves (a sum of all elements), it is a call drawn anew.
    """
    if bound.problem is not None and bound.problem.related:  # what follows from another argument would not any more
        return bound.draw(new_secret())
    placed = list(zip(drawn.tensors, bound.call_layout(drawn).slots, strict=True))
    integers = not bound.task.module  # of a module problem's the meaning is not known
    moving = {id(t) for t, slot in placed if (integers or t.is_floating_point()) and _free(t, slot)}
    whole = not moving and not drawn.grads
    if whole:  # nothing but integers of unknown meaning: the reference raises where they may not be exchanged
        moving = {id(t) for t, slot in placed if t.dtype != torch.bool and _free(t, slot)}
    if not moving:
        return None

    def moved(values: Sequence[Any], part: float) -> list[Any]:
        return [_exchanged(v, slots[id(v)], part, generator) if id(v) in moving else v for v in values]

    slots = {id(tensor): slot for tensor, slot in placed}
    generator = inputs.stream(new_secret(), "exchange", bound.device.judge_device)
    for part in _MOVING_PARTS:
        try:
            changed = bound.expect(moved(drawn.args, part), moved(drawn.grads, part))
        except UsageError as error:  # a file may take nothing but sorted numbers
            if not whole and (integers or isinstance(error, NotJudgedError)):
                raise
            return None
        if not matches(drawn.expectation.native, changed.expectation, steps=False):
            return changed
    fresh = bound.draw(new_secret())  # no order of the elements changes a sum
    return changed if matches(drawn.expectation.native, fresh.expectation, steps=False) else fresh


def drawn_together(
    values: Sequence[Any], places: Sequence[int], related: Collection[int] = frozenset()
) -> list[list[int]]:
    """Places of a problem file's arguments in groups that are drawn together: integers and flags, plain ones too, since
    the lengths of one draw and the page table or largest length of another do not belong together; those that are
    ``related``, of which one follows from another; and every other one alone.
    """
    whole = [place for place in places if not computes(values[place])]
    together = [place for place in places if place in related]
    alone = [[place] for place in places if place not in (*whole, *together)]
    return alone + [group for group in (together, whole) if group]


def computes(value: Any) -> bool:
    """Whether it is a floating or complex number, or a tensor of such."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, float)


def shuffled_calls(two: Sequence[Any], count: int = _MANY) -> list[Any]:
    """``count`` further calls on the inputs of two that came before, in a secret order that no ring of buffers fits:
    whatever its size, of the calls whose results would share a buffer some are on other inputs.
    """
    while True:
        order = [*two, *(secrets.choice(two) for _ in range(count))]
        if all(any(a is not b for a, b in zip(order, order[n:], strict=False)) for n in range(1, len(order))):
            return order[len(two) :]


def _free(tensor: torch.Tensor, slot: TensorSlot) -> bool:
    once = math.prod(size for dim, size in enumerate(tensor.shape) if dim not in _repeated(slot))
    return slot.refresh in ("elements", "records") and once >= 4


def _repeated(slot: TensorSlot) -> tuple[int, ...]:
    """The dims along which the elements of a tensor are the same ones (stride 0)."""
    return tuple(
        dim for dim, (size, step) in enumerate(zip(slot.shape, slot.strides, strict=True)) if size > 1 and not step
    )


def _exchanged(tensor: torch.Tensor, slot: TensorSlot, part: float, generator: torch.Generator) -> torch.Tensor:
    """As :func:`inputs.exchanged`; what is equal along a stride of 0 stays so, and records stay together."""
    once, repeated = tensor, _repeated(slot)
    if slot.refresh == "records":
        return inputs.exchanged(once, part, generator, tensor.shape[-1])
    for dim in repeated:
        once = once.narrow(dim, 0, 1)
    moved = inputs.exchanged(once, part, generator)
    return moved.expand(tensor.shape).contiguous() if repeated else moved


_LARGE_BYTES = 1 << 30
"""Calls that take more bytes together get a window each."""

_LEAST_ALONE, _MOST_ALONE = 16, 128
"""Weights of a module that change alone for certain, and at most: secret ones where it has more."""

_ALONE_S, _ALONE_AT_MOST_S = 10.0, 20.0
"""Those beyond the first number are tried until the judge has computed for so long, or so much time has passed. On a
busy machine 48 weights were not done within 10 s, and one that a candidate ignored was left out."""

_SMALL_WEIGHTS_BYTES = 256 << 20
"""Of module problems whose weights take no more bytes, two modules live at one time."""


class OtherLayouts:
    """The windows in which one candidate gets arguments in the other strides that a case's layout has."""

    def __init__(self, calls: Calls, repeats: Repeats) -> None:
        self._calls, self._repeats = calls, repeats
        self._exchanged: set[tuple[str, str, str]] = set()  # kinds of ``Repeats.kind``
        self.under_way = False
        """Whether the case that is judged now has come to these windows."""
        self.native_is_wrong: dict[Case, int] = {}
        """Calls that say nothing about the candidate, by case."""
        self._excused = 0

    def judge(self, bound: BoundCase, first: Drawn, outcome: Passed) -> Outcome:
        """The outcome after these windows, which come twice for the first case of each kind (``docs/correctness.md``).
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
            failed, excused = self._windows(there, calls)
            if failed is not None and failed.reason == "exception" and self._calls.task.module:
                # no problem file promises such inputs: those on which it raises say nothing
                alone = [self._windows(there, [call])[0] for call in calls]
                failed = next((one for one in alone if one is not None and one.reason != "exception"), None)
            if failed is not None and failed.reason == "exception":
                telling = [(one, layout) for one, layout in calls if there.native_is_right(one, layout)]
                if len(telling) < len(calls):
                    left_out = max(left_out, len(calls) - len(telling))
                    failed, excused = self._windows(there, telling)
            if failed is not None:
                return failed if self._wrong_anyway(there, drawn) else self.explained(failed)
            left_out = max(left_out, excused)
        if not left_out:
            return outcome
        self.native_is_wrong[bound.case] = left_out
        return replace(outcome, evidence=dict(outcome.evidence) | {"native_is_wrong": left_out})

    def _wrong_anyway(self, bound: BoundCase, drawn: Sequence[Drawn]) -> bool:
        """Whether the candidate is wrong on the same values in the case's own strides too."""
        try:
            return isinstance(self._calls.window(bound, drawn), Failed)
        except WorkerError:
            return True

    def explained(self, failed: Failed) -> Failed:
        """The outcome with a message, and evidence, that it came in these windows, if it did."""
        if not self.under_way:
            return failed
        words = f"{failed.message}; only where a part of the arguments is contiguous, or strided in another way"
        return replace(failed, message=words, evidence=dict(failed.evidence) | {"strides": "otherwise"})

    def _windows(self, bound: BoundCase, calls: Sequence[tuple[Drawn, CallLayout]]) -> tuple[Failed | None, int]:
        """(what is wrong with these calls, how many say nothing); one window for all or, where they are large, for
        each.
        """
        large = sum(layout.nbytes for _, layout in calls) > _LARGE_BYTES
        self._excused = 0
        for part in [[call] for call in calls] if large else [calls][: len(calls)]:
            drawn, layouts = [one for one, _ in part], [layout for _, layout in part]
            excused = functools.partial(self._says_nothing, bound, part)
            try:
                outcome = self._calls.window(bound, drawn, layouts=layouts, excused=excused)
            except WorkerError as error:
                if error.unsupported:
                    raise
                return raised(error), 0
            if isinstance(outcome, Failed):
                return outcome, 0
        return None, self._excused

    def _says_nothing(self, bound: BoundCase, calls: Sequence[tuple[Drawn, CallLayout]], index: int) -> bool:
        """Whether PyTorch itself is wrong at a call; counts those."""
        wrong = not bound.native_is_right(*calls[index])
        self._excused += wrong
        return wrong


class OtherWeights:
    """The windows under other weights that one candidate gets."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._was_rebuilt = False

    def judge(self, case: Case, bound: BoundCase) -> Outcome:
        """The outcome under other weights, where what the module folded or packed before is stale; once also of a
        second module whose weights go through the same versions. ``docs/correctness.md`` says which weights change
        when.
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
        same, started, own = new_secret(), time.monotonic(), time.thread_time()  # with other weights outputs differ
        for number, step in enumerate((*steps, *alone[_LEAST_ALONE:])):
            late = time.thread_time() > own + _ALONE_S or time.monotonic() > started + _ALONE_AT_MOST_S
            if number >= len(steps) and late:
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
        problem = self._calls.problem(case)
        given, keywords = problem.init_args, problem.init_keywords
        self._calls.loaded.make_module(given, new_secret(), problem.form, keywords=keywords, beside=beside)
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
