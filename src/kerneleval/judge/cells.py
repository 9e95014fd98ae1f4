"""Correctness of one candidate, case by case, in commit-reveal windows."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval import languages
from kerneleval.devices import Device
from kerneleval.judge import inputs
from kerneleval.judge.ahead import Ahead
from kerneleval.judge.bench import BuildFailed, Loaded
from kerneleval.judge.bound import Bound, Calibrated, Drawn, other_scalars
from kerneleval.judge.comparison import Mismatch, compare, matches
from kerneleval.judge.images import Call, Image, Plan, TensorSlot
from kerneleval.judge.modules import reveal_weights
from kerneleval.judge.other_weights import OtherWeights
from kerneleval.judge.windows import Window, output_views
from kerneleval.records import Case, Evidence, Failed, Outcome, Passed, Protocol, Task, UsageError, new_secret
from kerneleval.worker.host import WorkerError, WorkerFailure

__all__ = ["CALL_TIMEOUT_S", "OTHERWISE", "CellJudge"]

CALL_TIMEOUT_S = 120.0
"""Limit of one window while judging correctness: a first call may compile or autotune."""

_MAX_CRASHES = 3

_FORMS = ("count", "type", "shape", "dtype", "device")
"""What a worker may say is wrong with an output, ``wrong_`` and which is the reason."""

_MANY, _MANY_BYTES = 10, 1 << 20
"""Calls that one small case of each direction gets in a window beyond its two, and what such a case may take."""

_MANY_LARGE, _MANY_LARGE_BYTES = 30, 256 << 20
"""As many gets one case that takes more, unless all calls together take more than that."""

_MANY_S = 10.0
"""What these calls may take together; slower candidates get fewer."""

OTHERWISE = "otherwise"
"""Evidence of an outcome that came in calls laid out otherwise (:meth:`Bound.otherwise`)."""

_LARGE_BYTES = 1 << 30
"""Before a window that takes more, memory that the judge's allocator keeps is given back."""

_SMALL_MODULE_BYTES = 64 << 20
"""Module problems whose inputs and outputs take no more are called twice in a window."""

_PAIRED = ("transposed", "sliced", "offset")
"""Layouts in which cases get windows of two calls: their elements may change places."""

_MOVING_PARTS = (1 / 256, 0.5)
"""Parts of the elements that change places: as few as in timed windows, or half where those change no output."""


class CellJudge:
    """Judges the cases of one loaded candidate; revives its worker after a crash."""

    def __init__(self, loaded: Loaded, task: Task, protocol: Protocol, device: Device) -> None:
        self.loaded, self.task, self.protocol, self.device = loaded, task, protocol, device
        self.ahead = Ahead(task, device, self.bind)
        self.calibration: dict[Case, Calibrated] = {}
        self._problems: dict[tuple[tuple[str, int], ...], Any] = {}
        self._given_up: Failed | None = None
        self._many: set[tuple[str, bool]] = set()
        self._call_s = 0.0  # of the last window
        self._other_weights = OtherWeights(self)
        self._plain: set[str] = set()  # directions in which plain arguments have changed alone
        self._alone: set[tuple[str, str]] = set()  # directions and dtypes in which every argument has
        self._paired: set[str] = set()  # directions in which strided calls were exchanged
        self._asked: tuple[Call, ...] = ()  # by the last window
        self._otherwise = False  # whether that holds calls laid out otherwise
        self.scalars: dict[str, float] = {}
        """Plain arguments that get another value than the task's, by name."""
        language = languages.find(loaded.candidate.language)
        self._unsupported = language.unsupported_dtypes(device.name)

    # -- one case -----------------------------------------------------------------------------------------------------

    def judge(self, case: Case) -> Outcome:
        """The outcome of one case, not timed."""
        if case.dtype in self._unsupported:
            text = f"{self.loaded.candidate.language} cannot be judged in {case.dtype} on {self.device.name}"
            return Failed(stage="call", reason="unsupported", message=text)
        if self._given_up is not None:
            return replace(self._given_up, message=f"not run after: {self._given_up.message}", evidence={})
        try:
            return self._judge(case)
        except WorkerError as error:
            outcome = raised(error)
            return self._refused(case) or self._told_where(outcome) if outcome.reason == "unsupported" else outcome
        except WorkerFailure as failure:
            return self._gone(failure)
        except BuildFailed as error:
            return Failed(stage=error.stage, reason=error.reason, message=str(error), evidence=error.evidence)
        finally:
            self.device.trim()

    def _judge(self, case: Case) -> Outcome:
        self._otherwise = False
        bound, first = self.ahead.take(case)
        if self._twice(case, bound.form(first)):
            changed = self._changed(bound, first)
            outcome = self.window(bound, [first, changed or bound.draw(new_secret())], cut=int(changed is None))
            if changed is not None and isinstance(outcome, Passed):
                # each at the address at which the other was; the second call's inputs come when the first is done
                more = self._more(case, bound, changed, first)
                outcome = self.window(bound, [changed, first, *more], cut=1)
                kind = (case.direction, case.dtype)
                alone = case.direction == "forward" and kind not in self._alone
                if (more or alone) and isinstance(outcome, Passed):
                    self._alone.add(kind)
                    outcome = self._one_by_one(bound, changed) or outcome
        else:
            outcome = self.window(bound, [first])
            if isinstance(outcome, Passed) and self._pairs(case) and self.affordable(4) == 4:
                outcome = self._exchanged(bound, first) or outcome
            if isinstance(outcome, Passed):
                outcome = self._laid_out_otherwise(bound, first) or outcome
        if not isinstance(outcome, Passed):
            return outcome
        calibrated = bound.calibrated(first)
        if self.task.module:
            del first  # with its expectation five times the output: the next windows need the room
            changed = None
            outcome = self._other_weights.judge(case, bound)
        if isinstance(outcome, Passed):
            self.calibration[case] = calibrated
        return outcome

    def _laid_out_otherwise(self, bound: Bound, first: Drawn) -> Outcome | None:
        """The outcome of the same call in other forms of its layout, None where it has none: one argument's strides
        are not another's, and not all follow from one. Forms in which PyTorch itself is wrong tell nothing: they are
        left out, which the evidence says.
        """
        forms = bound.otherwise(first)
        if not forms:
            return None
        forms = secrets.SystemRandom().sample(forms, max(1, self.affordable(len(forms))))
        self._otherwise = True
        outcome = self._in_forms(bound, first, forms)
        if isinstance(outcome, Failed) and outcome.reason in ("wrong_output", "exception"):
            telling = [form for form in forms if bound.native_is_right(first, form)]
            if len(telling) < len(forms):
                left_out: Evidence = {"native_is_wrong": len(forms) - len(telling)}
                outcome = self._in_forms(bound, first, telling)
                outcome = replace(outcome, evidence=dict(outcome.evidence) | left_out)
        return self._told_where(outcome) if isinstance(outcome, Failed) else outcome

    def _in_forms(self, bound: Bound, first: Drawn, forms: Sequence[Call]) -> Outcome:
        """The outcome of the same call in these forms, one window for all or, where they are large, for each."""
        large = sum(form.input_bytes + form.output_bytes for form in forms) > _LARGE_BYTES
        outcome: Outcome = Passed(evidence={})
        for part in [[form] for form in forms] if large else [forms][: len(forms)]:
            try:
                outcome = self.window(bound, [first] * len(part), forms=part)
            except WorkerError as error:
                if error.unsupported:
                    raise
                return raised(error)
            if isinstance(outcome, Failed):
                return outcome
        return outcome

    def _told_where(self, failed: Failed) -> Failed:
        """The outcome with words, and evidence, of where it was, if in calls laid out otherwise."""
        if not self._otherwise:
            return failed
        words = f"{failed.message}; only where a part of the arguments is contiguous, or strided in another way"
        return replace(failed, message=words, evidence=dict(failed.evidence) | {"strides": OTHERWISE})

    def _pairs(self, case: Case) -> bool:
        """Whether a strided case is the first of its direction."""
        return case.layout in _PAIRED and not self.task.module and case.direction not in self._paired

    def _exchanged(self, bound: Bound, first: Drawn) -> Failed | None:
        """The call beside one of which few elements differ, then each at the address at which the other was: neither
        copies kept by address nor one buffer for all strided calls last.
        """
        changed = self._changed(bound, first)
        if changed is None:
            return None
        self._paired.add(bound.case.direction)
        for two in ([first, changed], [changed, first]):
            outcome = self.window(bound, two)
            if isinstance(outcome, Failed):
                return outcome
        return None

    def _refused(self, case: Case) -> Failed | None:
        """What to say of a case declared unsupported for its values alone; None: also standard ones are refused.

        Support may depend on form. A candidate that raises where it would be wrong has seen its inputs first.
        """
        if case.distribution == "standard":
            return None
        bound = self.bind(replace(case, distribution="standard"))
        drawn = bound.draw(new_secret())
        try:
            self.call(bound, [drawn] * len(self._asked), look=False, forms=self._asked)
        except WorkerError:
            return None
        except WorkerFailure as failure:
            return self._gone(failure)
        message = f"it declares {case.distribution} values unsupported, and takes standard ones of the same form"
        return Failed(stage="call", reason="refuses_values", message=message, evidence={})

    def _more(self, case: Case, bound: Bound, *two: Drawn) -> list[Drawn]:
        """Further calls of a window, once for each direction: results that lie in a few buffers in turn do not last."""
        form = bound.form(two[0])
        nbytes = form.input_bytes + form.output_bytes
        large = nbytes > _MANY_BYTES
        count = _MANY_LARGE if large else _MANY
        if (case.direction, large) in self._many or count * nbytes > _MANY_LARGE_BYTES:
            return []
        if self.affordable(count) < count:  # it may have been the first call, which compiles: later cases are asked too
            return _turns(two, self.affordable(count))
        self._many.add((case.direction, large))
        return _turns(two, count)

    def _one_by_one(self, bound: Bound, drawn: Drawn) -> Failed | None:
        """The same call, and at the same addresses again with one argument, each in its turn, drawn anew, once plain
        floats too: no result may be kept by the others.
        """
        other = bound.arguments(new_secret())
        values = [*drawn.args, *drawn.grads]
        others = [*self._other_plain(bound, other), *bound.upstream(other, new_secret())]
        free = [
            place
            for place, value in enumerate(values)
            if isinstance(value, torch.Tensor) or (isinstance(value, float) and value != others[place])
        ]
        if len(free) < 2 or self.affordable(2 * len(free)) < 2 * len(free):
            return None
        for place in free:
            changed = [*values[:place], others[place], *values[place + 1 :]]
            try:
                alone = bound.expect(changed[: len(drawn.args)], changed[len(drawn.args) :])
            except UsageError:
                if not self.task.module:
                    raise
                continue  # what one argument of a problem file says may hang on another
            for one in (drawn, alone):
                outcome = self.window(bound, [one])
                if isinstance(outcome, Failed):
                    names = [spec.name for spec in bound.specs] or [f"argument {i}" for i in range(len(drawn.args))]
                    what = names[place] if place < len(names) else "the upstream gradient"
                    return replace(outcome, message=f"{outcome.message}; only {what} had changed")
        return None

    def _other_plain(self, bound: Bound, args: Sequence[Any]) -> list[Any]:
        """The arguments with other plain floats, once for each direction; else as they are."""
        if self.scalars or bound.case.direction in self._plain or not any(isinstance(a, float) for a in args):
            return list(args)
        self._plain.add(bound.case.direction)
        if self.task.module:
            chance = secrets.SystemRandom()
            return [chance.uniform(0.8, 0.95) * a if isinstance(a, float) else a for a in args]
        known = other_scalars(self.task, bound.case, larger=True)
        return [known.get(spec.name, arg) for spec, arg in zip(bound.specs, args, strict=True)]

    def window(
        self, bound: Bound, drawn: Sequence[Drawn], cut: int = 0, forms: Sequence[Call] | None = None
    ) -> Outcome:
        """The outcome of one window over the drawn calls; see :meth:`call`.

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        window, plan = self.call(bound, drawn, look=True, cut=cut, forms=forms)
        self._call_s = window.elapsed_ns / 1e9 / len(drawn)
        if window.wrong is not None:
            return _claimed(window.wrong)
        evidence: Evidence = {}
        right: dict[int, tuple[torch.Tensor, ...]] = {}
        for index, one in enumerate(drawn):
            outputs = output_views(window, plan, index)
            known = right.setdefault(id(one), outputs)
            if known is not outputs and all(map(torch.equal, known, outputs)):
                continue
            result = compare(outputs, one.expectation)
            if isinstance(result, Mismatch):
                return Failed(
                    stage="correctness", reason=result.reason, message=result.message, evidence=result.evidence
                )
            evidence = result.evidence
        if window.mutated and not self.task.in_place:
            message = "the call changed its inputs, or memory beside them"
            return Failed(stage="honesty", reason="input_mutation", message=message)
        return Passed(evidence=evidence)

    def _twice(self, case: Case, form: Call) -> bool:
        """Whether a window holds two calls, the second on inputs that differ from the first's by few elements, and a
        second window the same two in exchanged places.

        Then neither results kept by pointer or by a few elements nor one output buffer for all calls survive. A module
        problem may fill the device with one call's inputs, and is then called once in each window.
        """
        ordinary = case.distribution == "standard" and case.layout == "contiguous" and case.shape_category != "edge"
        return ordinary and (not self.task.module or form.input_bytes + form.output_bytes <= _SMALL_MODULE_BYTES)

    def _changed(self, bound: Bound, drawn: Drawn) -> Drawn | None:
        """The same call with secret elements of its inputs exchanged; None where there is nothing to exchange.

        What a cache may take for the content stays: addresses, shapes, first and last elements, sums. Few elements move
        where that is enough for the old outputs to be wrong, else most of them.
        """
        placed = list(zip(drawn.tensors, bound.form(drawn).slots, strict=True))
        moving = {id(t) for t, slot in placed if self._moves(t, slot)}
        whole = not moving and not drawn.grads
        if whole:  # nothing but integers, of which nobody says what they mean: the reference says whether they may
            moving = {id(t) for t, slot in placed if t.dtype != torch.bool and _free(t, slot)}
        if not moving:
            return None

        def moved(values: Sequence[Any], part: float) -> list[Any]:
            return [inputs.exchanged(v, part, generator) if id(v) in moving else v for v in values]

        generator = inputs.stream(new_secret(), "exchange", self.device.torch_device)
        for part in _MOVING_PARTS:
            try:
                changed = bound.expect(moved(drawn.args, part), moved(drawn.grads, part))
            except UsageError:
                if not whole:
                    raise
                return None
            if not matches(drawn.expectation.native, changed.expectation):
                break
        return changed

    def _moves(self, tensor: torch.Tensor, slot: TensorSlot) -> bool:
        """Whether elements of an input may change places. What a module problem's integers mean, nobody says."""
        return (not self.task.module or tensor.is_floating_point()) and _free(tensor, slot)

    # -- tools for checks ---------------------------------------------------------------------------------------------

    def affordable(self, calls: int) -> int:
        """As many of these calls as take no more than ten seconds, by the time of the last window."""
        return min(calls, int(_MANY_S / self._call_s)) if self._call_s else calls

    def bind(self, case: Case, *, weights_seed: int | None = None) -> Bound:
        """The case with, for module problems, fresh weights revealed to the candidate."""
        problem = self.problem(case)
        bound = Bound(self.task, case, self.device, tf32=self.protocol.tf32, problem=problem, scalars=self.scalars)
        if problem is not None:
            self.ensure_module(self.loaded, case)
            seed = new_secret() if weights_seed is None else weights_seed
            bound.weights = problem.weights(seed, case.distribution)
            reveal_weights(self.loaded, bound.weights)
        return bound

    def problem(self, case: Case) -> Any:
        """The module problem of a case; None for operators."""
        if not self.task.module:
            return None
        if case.dims not in self._problems:
            assert self.task.build is not None
            self._problems.clear()
            self._problems[case.dims] = self.task.build(case.dims_map, self.device.torch_device)
        return self._problems[case.dims]

    def ensure_module(self, loaded: Loaded, case: Case) -> None:
        """Have a module of the case's sizes in the worker."""
        if loaded.module_key != case.dims:
            loaded.make_module(self.problem(case).init_args, new_secret())
            loaded.module_key = case.dims

    def call(
        self,
        bound: Bound,
        drawn: Sequence[Drawn],
        *,
        look: bool,
        cut: int = 0,
        forms: Sequence[Call] | None = None,
    ) -> tuple[Window, Plan]:
        """One window over the drawn calls, in a secret order of places, laid out as the case says or in the given
        ``forms``; see :meth:`Runner.window`.
        """
        plan = Plan(forms or [bound.form(one) for one in drawn], bound.case.direction)
        self._asked = plan.calls
        image = Image(plan, self.device)
        order = list(range(len(drawn)))
        for index in order:
            image.fill(index, drawn[index].tensors)
        if plan.input_bytes + plan.output_bytes > _LARGE_BYTES:
            self.device.trim()  # what was freed here is kept from the worker
        window = self.loaded.runner.window(image, timeout_s=CALL_TIMEOUT_S, check_mutation=look, cut=cut)
        return window, plan

    def outputs(self, form: Call, args: Sequence[Any], case: Case) -> tuple[torch.Tensor, ...]:
        """What the candidate gives on arguments of a form already known (forward, nothing expected of them).

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        plan = Plan([form], case.direction)
        image = Image(plan, self.device)
        image.fill(0, [a for a in args if isinstance(a, torch.Tensor)])
        window = self.loaded.runner.window(image, timeout_s=CALL_TIMEOUT_S, check_mutation=False)
        return output_views(window, plan, 0)

    def _gone(self, failure: WorkerFailure) -> Failed:
        """The outcome of a call that the worker did not survive."""
        outcome = Failed(stage="call", reason=failure.reason, message=str(failure), evidence=failure.evidence)
        self._revive(outcome)
        return outcome

    def _revive(self, failed: Failed) -> None:
        """A new worker, unless this one hung (waiting again would cost as much), died too often or loads no more."""
        if failed.reason == "timeout" or self.loaded.crashes + 1 >= _MAX_CRASHES:
            self._given_up = failed
            return
        try:
            self.loaded.revive()
        except BuildFailed as error:
            self._given_up = Failed(stage=error.stage, reason=error.reason, message=str(error))


def _free(tensor: torch.Tensor, slot: TensorSlot) -> bool:
    return slot.refresh == "elements" and tensor.numel() >= 4


def _turns(two: Sequence[Any], count: int = _MANY) -> list[Any]:
    """The calls after one on the first and one on the second, in a secret order that no ring of buffers fits: of the
    calls whose results any number of buffers in turn would keep in one place, some are on other inputs.
    """
    while True:
        turns = [*two, *(secrets.choice(two) for _ in range(count))]
        if all(any(a is not b for a, b in zip(turns, turns[n:], strict=False)) for n in range(1, len(turns))):
            return turns[len(two) :]


def raised(error: WorkerError) -> Failed:
    """The outcome of a candidate that raised during a call."""
    if error.kind == "GradientWrittenError":
        return Failed(stage="honesty", reason="input_mutation", message=str(error)[:500], evidence=error.evidence)
    if error.unsupported:
        return Failed(stage="call", reason="unsupported", message=str(error)[:500], evidence={})
    return Failed(stage="call", reason="exception", message=f"{error.kind}: {error}"[:1000], evidence=error.evidence)


def _claimed(wrong: dict[str, Any]) -> Failed:
    """The outcome of a candidate whose own worker says that an output has the wrong form."""
    what = wrong.get("what", "")
    if what == "argument":
        now, given = wrong.get("got", "an argument is another tensor"), wrong.get("want", "otherwise")
        message = f"after the call {now}; it was given {given}"
        return Failed(stage="honesty", reason="input_mutation", message=message, evidence=dict(wrong))
    if what == "alias":
        message = f"{wrong.get('got', 'an output lies in the memory of an input')}: outputs must be new tensors"
        return Failed(stage="correctness", reason="output_alias", message=message, evidence=dict(wrong))
    if what not in _FORMS:  # a reason is a slug for programs: no text of a worker's becomes one
        message = "the worker says that an output is wrong in a way that there is not"
        return Failed(stage="correctness", reason="protocol", message=message, evidence=dict(wrong))
    message = f"{wrong.get('got', 'something else')}; expected {wrong.get('want', 'another form')}"
    return Failed(stage="correctness", reason=f"wrong_{what}", message=message, evidence=dict(wrong))
