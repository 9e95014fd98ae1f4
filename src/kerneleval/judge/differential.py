"""The same secret inputs on several devices: each device against one oracle, and the devices against one another.

Inputs are drawn, and the oracle and its bounds made, on the host's CPU, once for each case; a device gets copies. What
runs on a device runs in its worker, as it does for a verdict; outputs are compared here, on the host.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from kerneleval import devices
from kerneleval.judge.judge import Judge, budget_of
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.oracle.expectation import Expected, as_real, same
from kerneleval.judge.probes.calls import BoundCase, Calls, Drawn
from kerneleval.judge.probes.cells import CellJudge
from kerneleval.judge.windows.worker_pool import BuildFailed, Loaded, baseline_candidate
from kerneleval.records import (
    Apart,
    Candidate,
    Case,
    CaseAnswers,
    DeviceAnswer,
    Element,
    Evidence,
    Failed,
    InfrastructureError,
    Protocol,
    Task,
    new_secret,
)
from kerneleval.tasks import shapes

HOST = "cpu"
"""Where inputs are drawn and the oracle is made."""

_Outputs = tuple[torch.Tensor, ...]


def common_plan(judges: Sequence[Judge], task: Task, protocol: Protocol) -> tuple[Case, ...]:
    """The cases that every one of these devices, and the host, has room and time for, in the types that all have."""
    budgets = [budget_of(device, task, protocol) for device in (devices.find(HOST), *(j.device for j in judges))]
    smallest = shapes.Budget(memory_bytes=min(b.memory_bytes for b in budgets), flops=min(b.flops for b in budgets))
    can = [judge.device.capabilities() for judge in judges]
    planned = shapes.plan(task, protocol, smallest)
    return tuple(case for case in planned if all(one.computes(case.dtype) for one in can))


class Side:
    """One device with what runs there. A context manager.

    Args:
        candidate: what runs there; None: the reference itself, which is trusted.
        protocol: how to judge; ``tf32`` counts.
    """

    def __init__(self, judge: Judge, candidate: Candidate | None, task: Task, protocol: Protocol) -> None:
        self.judge, self.task, self.protocol = judge, task, protocol
        self.trusted = candidate is None
        self.candidate = candidate or baseline_candidate(task, replace(protocol, baseline="eager"))
        self._cells: CellJudge | None = None
        self._unborn: Failed | None = None
        names = ("run",) if self.trusted else (task.name,)
        try:
            loaded = Loaded(
                judge.pool,
                self.candidate,
                names,
                trusted=self.trusted,
                tf32=protocol.tf32,
                patience_s=protocol.patience_s,
            )
        except BuildFailed as error:
            if self.trusted:
                text = f"the reference of {task.name} does not load on {judge.device.name}: {error}"
                raise InfrastructureError(text) from error
            self._unborn = error.outcome()
        else:
            self._cells = CellJudge(Calls(loaded, task, protocol, judge.device))

    @property
    def name(self) -> str:
        """The device's kind."""
        return self.judge.device.name

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._cells is not None:
            self._cells.calls.loaded.close()

    def answer(self, bound: BoundCase, drawn: Drawn) -> _Outputs | Failed:
        """The outputs on the host, or why there are none of the right form."""
        if self._cells is None:
            assert self._unborn is not None
            return self._unborn
        found = self._cells.answered(bound, drawn)
        if self.trusted and isinstance(found, Failed) and found.stage in ("build", "load"):
            raise InfrastructureError(
                f"the reference of {self.task.name} does not load on {self.name}: {found.message}"
            )
        return found

    def native_is_right(self, bound: BoundCase, drawn: Drawn) -> bool | None:
        """Whether PyTorch itself is right there on these inputs; None: there is none but the host's, or a module."""
        device = self.judge.device
        if device.torch_device == HOST or bound.problem is not None:
            return None
        return bound.native_is_right(drawn, bound.call_layout(drawn), device)


def differ(sides: Sequence[Side], task: Task, cases: Sequence[Case], *, tf32: bool = False) -> Iterator[CaseAnswers]:
    """What every side gives at every case, case by case.

    A side is wrong where an output breaks the usual rule (``docs/correctness.md``) under the bounds of the host's own
    expectation: those follow from the fp64 oracle, the data type, the length of reductions and the error of PyTorch on
    the CPU. The same bounds hold for every device.

    Args:
        sides: at least one; their devices differ.

    Raises:
        UsageError: the reference raises on the host.
        InfrastructureError: a machine failed, not what ran on it.
    """
    host = devices.find(HOST)
    for case in cases:
        problem = task.build(case.dims_map, host.torch_device) if task.module and task.build is not None else None
        bound = BoundCase(task, case, host, tf32=tf32, problem=problem)
        if problem is not None:
            bound.weights = problem.weights(new_secret(), case.distribution)
        drawn = bound.draw(new_secret())
        given = {side.name: side.answer(bound, drawn) for side in sides}
        outputs = {name: one for name, one in given.items() if not isinstance(one, Failed)}
        answers = [_judged(side, bound, drawn, given[side.name], outputs) for side in sides]
        yield CaseAnswers(case=case, answers=tuple(answers), apart=tuple(_apart(outputs, drawn)))


def _judged(
    side: Side, bound: BoundCase, drawn: Drawn, given: _Outputs | Failed, every: Mapping[str, _Outputs]
) -> DeviceAnswer:
    if isinstance(given, Failed):
        answer = "unsupported" if given.reason == "unsupported" else "wrong"
        return DeviceAnswer(
            device=side.name,
            answer=answer,  # type: ignore[arg-type]
            stage=given.stage,
            reason=given.reason,
            message=given.message,
            evidence=(dict(given.evidence),),
        )
    expectation = drawn.expectation
    wrong: list[Mismatch] = []
    positions: list[int] = []
    of_bound = 0.0
    for index, got in enumerate(given):
        result = compare((got,), expectation.mapped(operator.itemgetter(slice(index, index + 1))))
        if isinstance(result, Mismatch):
            positions.append(index)
            message = result.message.replace("output 0", f"output {index}", 1)
            wrong.append(replace(result, message=message, evidence=result.evidence | {"output": index}))
        of_bound = max(of_bound, _share(result.evidence))
    if not wrong:
        return DeviceAnswer(device=side.name, answer="right", of_bound=of_bound)
    native = side.native_is_right(bound, drawn)
    return DeviceAnswer(
        device=side.name,
        answer="wrong",
        stage="correctness",
        reason=wrong[0].reason,
        message="; ".join(one.message for one in wrong),
        wrong_outputs=tuple(positions),
        evidence=tuple(one.evidence for one in wrong),
        elements=tuple(
            _element(index, one.evidence["worst_index"], expectation.outputs[index], every)
            for index, one in zip(positions, wrong, strict=True)
            if "worst_index" in one.evidence
        ),
        of_bound=of_bound,
        native="" if native is None else "right" if native else "wrong",
    )


def _share(evidence: Evidence) -> float:
    """Rms error over its bound."""
    error, bound = evidence.get("relative_rms_error", 0.0), evidence.get("relative_rms_bound", 0.0)
    if not bound:
        return math.inf if error else 0.0
    return float(error / bound)


def _element(index: int, place: Sequence[int], expected: Expected, every: Mapping[str, _Outputs]) -> Element:
    at = tuple(int(i) for i in place)
    return Element(
        output=index,
        shape=tuple(expected.native.shape),
        dtype=str(expected.native.dtype)[6:],
        index=at,
        oracle=float(as_real(expected.oracle)[at]),
        values={name: float(as_real(outputs[index])[at]) for name, outputs in every.items()},
    )


def _apart(outputs: Mapping[str, _Outputs], drawn: Drawn) -> Iterator[Apart]:
    """Every pair of devices, output by output; outputs that are drawn at random say nothing of one another."""
    names = list(outputs)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            for index, expected in enumerate(drawn.expectation.outputs):
                alike = outputs[first][index].shape == outputs[second][index].shape
                if expected.law is None and expected.native.numel() and alike:
                    yield _pair(index, first, second, expected, outputs)


def _pair(index: int, first: str, second: str, expected: Expected, every: Mapping[str, _Outputs]) -> Apart:
    one, other = (as_real(every[name][index]).double() for name in (first, second))
    equal = same(one, other)
    gap = (one - other).abs().masked_fill(equal, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)
    rms = float(torch.linalg.vector_norm(gap)) / math.sqrt(gap.numel())
    relative = rms_of_bound = max_of_bound = math.nan
    bounds = expected.bounds
    if bounds is not None:
        scale, limit = bounds.scales.rms / bounds.gain, bounds.rms / bounds.gain
        if bounds.scales.rms > bounds.scales.floor_rms:  # else its terms cancel: zero, but for their rounding
            relative = rms / scale
        rms_of_bound = rms / limit if limit else (math.inf if rms else 0.0)
        tolerance = ((bounds.local + bounds.slack).double() / bounds.gain).view(gap.shape)
        share = torch.where(gap > 0, gap / tolerance, 0.0)
        max_of_bound, flat = float(share.max()), int(share.reshape(-1).argmax())
    else:
        flat = int(gap.reshape(-1).argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(flat), gap.shape)]
    return Apart(
        first=first,
        second=second,
        output=index,
        equal=int(equal.sum()),
        of=equal.numel(),
        relative_rms=relative,
        rms_of_bound=rms_of_bound,
        max_abs=float(gap.max()),
        max_of_bound=max_of_bound,
        worst=_element(index, place, expected, every),
    )
