"""Correctness of one candidate, case by case, in commit-reveal windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval import languages
from kerneleval.devices import Device
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.probes.bound_case import BoundCase, Calibrated, Drawn
from kerneleval.judge.probes.other_layouts import OtherLayouts
from kerneleval.judge.probes.other_weights import OtherWeights
from kerneleval.judge.probes.prefetch import Prefetch
from kerneleval.judge.probes.repeats import Repeats
from kerneleval.judge.windows.answers import claimed, raised
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.protocol import Window, output_views
from kerneleval.judge.windows.worker_pool import BuildFailed, Loaded
from kerneleval.records import Case, Evidence, Failed, Outcome, Passed, Protocol, Task, new_secret
from kerneleval.worker.host import WorkerError, WorkerFailure

__all__ = ["CALL_TIMEOUT_S", "CellJudge"]

CALL_TIMEOUT_S = 120.0
"""Limit of one window while judging correctness: a first call may compile or autotune."""

_MAX_CRASHES = 3

_MUTATED = "the call changed its inputs, or memory beside them"

_MANY_S = 10.0
"""What further calls of a window may take together; slower candidates get fewer."""

_FURTHER_S = 2.0
"""As much, where the like was called in another dtype or layout."""

_LARGE_BYTES = 1 << 30
"""Before a window that takes more, the judge's allocator gives back memory that it keeps and does not use."""


class CellJudge:
    """Judges the cases of one loaded candidate; revives its worker after a crash."""

    def __init__(self, loaded: Loaded, task: Task, protocol: Protocol, device: Device) -> None:
        self.loaded, self.task, self.protocol, self.device = loaded, task, protocol, device
        self.ahead = Prefetch(task, device, self.bind)
        self.calibration: dict[Case, Calibrated] = {}
        self._problems: dict[tuple[tuple[str, int], ...], Any] = {}
        self._given_up: Failed | None = None
        self._call_s = 0.0  # of the last window
        self._other_weights = OtherWeights(self)
        self.repeats = Repeats(self)
        self._other_forms = OtherLayouts(self)
        self._asked: tuple[CallLayout, ...] = ()  # by the last window
        self.scalars: dict[str, float] = {}
        """Plain arguments that get another value than the task's, by name."""
        language = languages.find(loaded.candidate.language)
        self._unsupported = language.unsupported_dtypes(device.name)

    # -- one case -----------------------------------------------------------------------------------------------------

    def judge(self, case: Case) -> Outcome:
        """The outcome of one case, not timed."""
        if (beforehand := self._beforehand(case)) is not None:
            return beforehand
        try:
            return self._judge(case)
        except WorkerError as error:
            outcome = raised(error)
            return (
                self._refused(case) or self._other_forms.told(outcome) if outcome.reason == "unsupported" else outcome
            )
        except WorkerFailure as failure:
            return self._gone(failure)
        except BuildFailed as error:
            return Failed(stage=error.stage, reason=error.reason, message=str(error), evidence=error.evidence)
        finally:
            self.device.trim()

    def answered(self, bound: BoundCase, drawn: Drawn) -> tuple[torch.Tensor, ...] | Failed:
        """What the candidate gives on one call of any device's drawing, on the host and not compared; or why it gives
        nothing of the right form.
        """
        if (beforehand := self._beforehand(bound.case)) is not None:
            return beforehand
        try:
            if bound.weights is not None:
                self.ensure_module(self.loaded, bound.case)
                reveal_weights(self.loaded, bound.weights)
            window, plan = self.call(bound, [drawn], look=True)
        except WorkerError as error:
            outcome = raised(error)
            return (self._refused(bound.case) or outcome) if outcome.reason == "unsupported" else outcome
        except WorkerFailure as failure:
            return self._gone(failure)
        except BuildFailed as error:
            return Failed(stage=error.stage, reason=error.reason, message=str(error), evidence=error.evidence)
        finally:
            self.device.trim()
        if window.wrong is not None:
            return claimed(window.wrong)
        if window.mutated and not self.task.in_place:
            return Failed(stage="honesty", reason="input_mutation", message=_MUTATED)
        return tuple(view.to("cpu", copy=True) for view in output_views(window, plan, 0))

    def _beforehand(self, case: Case) -> Failed | None:
        """The outcome of a case that need not be run."""
        if case.dtype in self._unsupported:
            text = f"{self.loaded.candidate.language} cannot be judged in {case.dtype} on {self.device.name}"
            return Failed(stage="call", reason="unsupported", message=text)
        if self._given_up is not None:
            return replace(self._given_up, message=f"not run after: {self._given_up.message}", evidence={})
        return None

    def _judge(self, case: Case) -> Outcome:
        self._other_forms.under_way = False
        bound, first = self.ahead.take(case)
        if self.repeats.ordinary(case, bound.form(first)):
            outcome = self.repeats.judge(bound, first)
        else:
            outcome = self.window(bound, [first])
            if isinstance(outcome, Passed):
                outcome = self.repeats.strided(bound, first) or outcome
            if isinstance(outcome, Passed):
                outcome = self._other_forms.judge(bound, first, outcome)
        if not isinstance(outcome, Passed):
            return outcome
        calibrated = bound.calibrated(first)
        if self.task.module:
            del first  # with its expectation five times the output: the next windows need the room
            outcome = self._other_weights.judge(case, bound)
        if isinstance(outcome, Passed):
            self.calibration[case] = calibrated
        return outcome

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

    def window(
        self,
        bound: BoundCase,
        drawn: Sequence[Drawn],
        cut: int = 0,
        forms: Sequence[CallLayout] | None = None,
        excused: Callable[[int], bool] | None = None,
    ) -> Outcome:
        """The outcome of one window over the drawn calls; see :meth:`call`.

        Args:
            bound: the case.
            drawn: the calls.
            cut: see :meth:`Runner.window`.
            forms: as in :meth:`call`.
            excused: asked about each call whose outputs are wrong: whether it tells nothing about the candidate. The
                evidence has ``native_is_wrong``, how many did not.

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        window, plan = self.call(bound, drawn, look=True, cut=cut, forms=forms)
        self._call_s = window.elapsed_ns / 1e9 / len(drawn)
        if window.wrong is not None:
            return claimed(window.wrong)
        evidence: Evidence = {}
        left_out = 0
        right: dict[int, tuple[torch.Tensor, ...]] = {}
        for index, one in enumerate(drawn):
            outputs = output_views(window, plan, index)
            if id(one) in right and all(map(torch.equal, right[id(one)], outputs)):
                continue
            result = compare(outputs, one.expectation)
            if not isinstance(result, Mismatch):
                right.setdefault(id(one), outputs)
                evidence = result.evidence
            elif excused is not None and result.reason == "wrong_output" and excused(index):
                left_out += 1
            else:
                return Failed(
                    stage="correctness", reason=result.reason, message=result.message, evidence=result.evidence
                )
        if window.mutated and not self.task.in_place:
            return Failed(stage="honesty", reason="input_mutation", message=_MUTATED)
        return Passed(evidence=dict(evidence) | {"native_is_wrong": left_out} if left_out else evidence)

    # -- tools for checks ---------------------------------------------------------------------------------------------

    def affordable(self, calls: int, *, further: bool = False) -> int:
        """As many of these calls as take no more than ten seconds, by the time of the last window; two, where they are
        ``further`` ones, which look in another dtype or layout for what was looked for before.
        """
        return min(calls, int((_FURTHER_S if further else _MANY_S) / self._call_s)) if self._call_s else calls

    def bind(self, case: Case, *, weights_seed: int | None = None) -> BoundCase:
        """The case with, for module problems, fresh weights revealed to the candidate."""
        problem = self.problem(case)
        bound = BoundCase(self.task, case, self.device, tf32=self.protocol.tf32, problem=problem, scalars=self.scalars)
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
            self._problems[case.dims] = self.task.build(case.dims_map, self.device.judge_device)
        return self._problems[case.dims]

    def ensure_module(self, loaded: Loaded, case: Case) -> None:
        """Have a module of the case's sizes in the worker."""
        if loaded.module_key != case.dims:
            loaded.make_module(self.problem(case).init_args, new_secret())
            loaded.module_key = case.dims

    def call(
        self,
        bound: BoundCase,
        drawn: Sequence[Drawn],
        *,
        look: bool,
        cut: int = 0,
        forms: Sequence[CallLayout] | None = None,
    ) -> tuple[Window, WindowLayout]:
        """One window over the drawn calls, in a secret order of places, laid out as the case says or in the given
        ``forms``; see :meth:`Runner.window`.
        """
        plan = WindowLayout(forms or [bound.form(one) for one in drawn], bound.case.direction)
        self._asked = plan.calls
        image = WindowBuffer(plan, self.device)
        order = list(range(len(drawn)))
        for index in order:
            image.fill(index, drawn[index].tensors)
        if plan.input_bytes + plan.output_bytes > _LARGE_BYTES:
            self.device.trim()  # what was freed here is kept from the worker
        window = self.loaded.runner.window(image, timeout_s=CALL_TIMEOUT_S, check_mutation=look, cut=cut)
        return window, plan

    def outputs(self, form: CallLayout, args: Sequence[Any], case: Case) -> tuple[torch.Tensor, ...]:
        """What the candidate gives on arguments of a form already known (forward, nothing expected of them).

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        plan = WindowLayout([form], case.direction)
        image = WindowBuffer(plan, self.device)
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
