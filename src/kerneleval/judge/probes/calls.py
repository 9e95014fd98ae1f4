"""Windows of one loaded candidate at the cases of a task: bind a case, call the candidate, compare what comes out.

Every probe and every check gets a :class:`Calls`. It knows nothing of the probes: ``cells.py`` decides which of them a
case meets and what becomes of a worker that died. What one window is stands in ``windows/protocol.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.probes.bound_case import BoundCase, Calibrated, Drawn
from kerneleval.judge.windows.answers import claimed
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.protocol import Cut, Window, output_views
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import Case, Evidence, Failed, Outcome, Passed, Protocol, Task, new_secret

__all__ = ["CALL_TIMEOUT_S", "Calls", "mutation"]

CALL_TIMEOUT_S = 120.0
"""Seconds that one window may take while correctness is judged: a first call may compile or autotune."""

_PROBE_S = 10.0
"""Seconds that the further calls of a window may take together; slower candidates get fewer calls."""

_REPEATED_PROBE_S = 2.0
"""The same where this probe was made before, in another dtype or layout."""

_LARGE_BYTES = 1 << 30
"""Before a window that takes more memory, the judge's allocator gives back what it keeps and does not use."""


def mutation() -> Failed:
    """The outcome of a call that changed its inputs, of a task that is not in place."""
    message = "the call changed its inputs, or memory beside them"
    return Failed(stage="honesty", reason="input_mutation", message=message)


class Calls:
    """Calls one candidate at cases of one task on one device.

    Args:
        loaded: the candidate, loaded in a worker.
        task: the task.
        protocol: how to judge.
        device: where the candidate runs.
    """

    def __init__(self, loaded: Loaded, task: Task, protocol: Protocol, device: Device) -> None:
        self.loaded, self.task, self.protocol, self.device = loaded, task, protocol, device
        self.calibration: dict[Case, Calibrated] = {}
        """What further calls of each case that was right are compared with."""
        self.scalars: dict[str, float] = {}
        """Plain arguments that get another value than the task's, by name."""
        self.last_layouts: tuple[CallLayout, ...] = ()
        """Layouts of the calls of the last window."""
        self._last_call_s = 0.0
        self._problems: dict[tuple[tuple[str, int], ...], Any] = {}

    def affordable(self, calls: int, *, repeated: bool = False) -> int:
        """How many of these calls take at most ten seconds, by the time of the last window; two seconds where the probe
        is ``repeated``, which means that it was made before in another dtype or layout.
        """
        limit_s = _REPEATED_PROBE_S if repeated else _PROBE_S
        return min(calls, int(limit_s / self._last_call_s)) if self._last_call_s else calls

    # -- cases --------------------------------------------------------------------------------------------------------

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

    # -- windows ------------------------------------------------------------------------------------------------------

    def window(
        self,
        bound: BoundCase,
        drawn: Sequence[Drawn],
        cut: int = 0,
        layouts: Sequence[CallLayout] | None = None,
        excused: Callable[[int], bool] | None = None,
    ) -> Outcome:
        """The outcome of one window over the drawn calls; see :meth:`call`.

        Args:
            bound: the case.
            drawn: the calls.
            cut: as in :meth:`call`.
            layouts: as in :meth:`call`.
            excused: asked about each call whose outputs are wrong: whether that says nothing about the candidate. The
                evidence then has ``native_is_wrong``, the number of such calls.

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        window, layout = self.call(bound, drawn, look=True, cut=cut, layouts=layouts)
        self._last_call_s = window.elapsed_ns / 1e9 / len(drawn)
        if window.wrong is not None:
            return claimed(window.wrong)
        evidence: Evidence = {}
        left_out = 0
        right: dict[int, tuple[torch.Tensor, ...]] = {}
        for index, one in enumerate(drawn):
            outputs = output_views(window, layout, index)
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
            return mutation()
        return Passed(evidence=dict(evidence) | {"native_is_wrong": left_out} if left_out else evidence)

    def call(
        self,
        bound: BoundCase,
        drawn: Sequence[Drawn],
        *,
        look: bool,
        cut: int = 0,
        layouts: Sequence[CallLayout] | None = None,
    ) -> tuple[Window, WindowLayout]:
        """One window over the drawn calls; its outputs are not compared.

        Args:
            bound: the case.
            drawn: the calls.
            look: whether to see if the candidate changes its inputs.
            cut: how many calls are made before the inputs of the others are revealed; 0: all are revealed at once.
            layouts: of the calls; None: as the case says.
        """
        layout = WindowLayout(layouts or [bound.call_layout(one) for one in drawn], bound.case.direction)
        self.last_layouts = layout.calls
        buffer = WindowBuffer(layout, self.device)
        for index, one in enumerate(drawn):
            buffer.fill(index, one.tensors)
        if layout.nbytes > _LARGE_BYTES:
            self.device.trim()  # what was freed here is kept from the worker
        where = Cut(at=cut) if cut else None
        window = self.loaded.runner.window(buffer, timeout_s=CALL_TIMEOUT_S, check_mutation=look, cut=where)
        return window, layout

    def outputs(self, call_layout: CallLayout, args: Sequence[Any], case: Case) -> tuple[torch.Tensor, ...]:
        """What the candidate gives on arguments of a known layout (forward; not compared with anything).

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        layout = WindowLayout([call_layout], case.direction)
        buffer = WindowBuffer(layout, self.device)
        buffer.fill(0, [a for a in args if isinstance(a, torch.Tensor)])
        window = self.loaded.runner.window(buffer, timeout_s=CALL_TIMEOUT_S, check_mutation=False)
        return output_views(window, layout, 0)
