"""Timing of right cells: every cell in each session, then one timing and claim for each.

Cells are measured by ``clock.py``; a time that the machine's limits make impossible fails by ``roofline.py``. Nothing
is timed that was not right before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.probes.bound_case import BoundCase
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.timing import clock
from kerneleval.judge.timing.clock import TimedRun
from kerneleval.judge.timing.noise import Noise, class_of
from kerneleval.judge.timing.pair import BaselineError, BaselineSide
from kerneleval.judge.timing.roofline import check_limit, reached
from kerneleval.judge.timing.statistics import timing_from
from kerneleval.judge.timing.timed_outputs import TimedBounds, TimedCall, TimedMismatch
from kerneleval.judge.windows.answers import raised
from kerneleval.judge.windows.buffers import CallLayout, TensorSlot
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.worker_pool import BuildFailed, Loaded
from kerneleval.records import Case, Failed, InfrastructureError, Limits, Outcome, Passed, Samples, Timing, new_secret
from kerneleval.worker.host import WorkerError, WorkerFailure

__all__ = ["Timer"]

_WINDOW_TIMEOUT_S = 120.0
_AGREEMENT = 0.05
"""Device time within 5 % of the verified time agrees with it."""


class Timer:
    """Times the cells of one candidate against the task's baseline.

    Args:
        calls: calls the candidate; its calibration says what timed outputs are compared with.
        baseline: ``(fresh) -> Loaded``: the trusted baseline's worker, in a new process when asked.
        noise: noise figures by duration class.
        limits: of the machine; None: not measured, and no time is held against them.
        better: measures the bandwidth again, for a time that seems impossible.
    """

    def __init__(
        self,
        calls: Calls,
        baseline: Callable[[bool], Loaded],
        noise: Sequence[Noise],
        limits: Limits | None = None,
        better: Callable[[], Limits] | None = None,
    ) -> None:
        self._calls, self._get_baseline, self._noise = calls, baseline, noise
        self._limits, self._better = limits, better
        self._device = calls.device

    def time(self, cells: Mapping[Case, Outcome], on_cell: Callable[[int, int, Case], None]) -> dict[Case, Outcome]:
        """The outcomes of right cells with their timings, or the failures found while timing.

        All cells are measured in one pair of processes, then all of them in the next: what a pair has by chance, such
        as where its memory lies, is the same for a whole session and differs between sessions.

        Args:
            cells: cells that passed.
            on_cell: called with (done, in all, case) after each measurement.

        Raises:
            InfrastructureError: the trusted baseline itself failed.
        """
        sessions = clock.effort_for(self._calls.protocol, self._device).sessions
        found, runs = dict(cells), {case: [] for case in cells}  # type: dict[Case, Outcome], dict[Case, list[TimedRun]]
        total = sessions * len(cells)
        for session in range(sessions):
            for number, case in enumerate(cells):
                if not isinstance(found[case], Passed):
                    continue
                try:
                    if session and number == 0:
                        self._renew(case)
                    runs[case].append(self._session(case, session))
                except WorkerFailure as failure:
                    found[case] = _failed("timing", failure.reason, failure)
                    return found  # the process is gone, and the verdict is decided
                except TimedMismatch as error:
                    found[case] = _failed("timing", error.reason, error)
                except WorkerError as error:
                    found[case] = _refused(error) if error.unsupported else replace(raised(error), stage="timing")
                except BuildFailed as error:
                    found[case] = _failed(error.stage, error.reason, error)
                on_cell(session * len(cells) + number + 1, total, case)
        for case, outcome in found.items():
            if isinstance(outcome, Passed):
                found[case] = self._outcome(case, outcome, clock.merge(runs[case]))
        return found

    def _outcome(self, case: Case, outcome: Passed, run: TimedRun) -> Outcome:
        if run.mutated and not self._calls.task.in_place:
            return Failed(stage="honesty", reason="input_mutation", message="a timed call changed its inputs")
        evidence = outcome.evidence | _deferral(run)
        evidence |= {name: of for name, of in (("energy", run.energy), ("memory", run.memory)) if of}
        if self._limits is not None:
            task, call_layout = self._calls.task, self._calls.calibration[case].call_layout
            tf32 = self._calls.protocol.tf32
            evidence |= {"limit": reached(task, case, call_layout, run.samples, self._limits, tf32=tf32)}
        return replace(outcome, timing=self._claim(run), evidence=evidence)

    def _renew(self, case: Case) -> None:
        """Fresh processes for another session."""
        calls = self._calls
        self._baseline(case, calls.bind(case), fresh=True)
        calls.loaded.revive()
        calls.loaded.crashes -= 1  # a fresh process on purpose is no crash
        calls.loaded.module_key = None

    def _session(self, case: Case, session: int) -> TimedRun:
        calls = self._calls
        bound = calls.bind(case)
        known = calls.calibration[case]

        def draw(seed: int) -> list[torch.Tensor]:
            args = bound.arguments(seed)
            return [a for a in args if isinstance(a, torch.Tensor)] + bound.upstream(args, new_secret())

        baseline = self._baseline(case, bound, fresh=False)
        calls.loaded.pool.quiet()
        cell = clock.TimedCell(
            call=known.call_layout,
            direction=case.direction,
            draw=draw,
            bounds=TimedBounds(relative_rms=known.relative_rms, worst=known.worst, scales=known.scales),
            arbiter=lambda timed: _check_by_oracle(bound, known.call_layout, timed),
            pace_ns=baseline.paces.get(case, 0.0),
            energy=not calls.task.in_place,  # its passes would compute on what earlier ones left
        )
        try:
            run = clock.measure(
                calls.loaded.runner,
                BaselineSide(baseline.runner),
                cell,
                calls.protocol,
                self._device,
                session=session,
                timeout_s=_WINDOW_TIMEOUT_S,
            )
        except BaselineError as error:
            raise InfrastructureError(f"the baseline of {calls.task.name} failed at {case.key}: {error}") from error
        baseline.paces[case] = statistics.median(run.samples.baseline_ns)
        _check_by_oracle(bound, known.call_layout, run.sample)
        if self._limits is not None and self._better is not None:
            check_limit(calls.task, case, known.call_layout, run.samples, run.sample, self._limits, self._better)
        return run

    def _baseline(self, case: Case, bound: BoundCase, *, fresh: bool) -> Loaded:
        baseline = self._get_baseline(fresh)
        try:
            if bound.weights is not None:
                self._calls.ensure_module(baseline, case)
                reveal_weights(baseline, bound.weights)
        except (WorkerError, WorkerFailure, BuildFailed) as error:
            raise InfrastructureError(f"the baseline of {self._calls.task.name} failed: {error}") from error
        return baseline

    def _claim(self, run: TimedRun) -> Timing:
        samples = run.samples
        noise = self._noise[class_of(statistics.median(samples.baseline_ns))]
        quads, sessions = len(samples.candidate_ns) // 2, len(set(samples.sessions))
        return timing_from(
            samples,
            spread=noise.spread,
            between=noise.between,
            noise=noise.floor(quads, sessions),
            device_time=device_time(samples),
        )


def _check_by_oracle(bound: BoundCase, call: CallLayout, sample: TimedCall) -> None:
    """Compare one timed call with the oracle; every other was compared with the baseline's outputs.

    Raises:
        TimedMismatch: it is wrong.
    """
    tensors = iter(sample.tensors)
    args = [next(tensors) if isinstance(arg, TensorSlot) else arg for arg in call.args]
    result = compare(sample.outputs, bound.expect(args, list(tensors)).expectation)
    if isinstance(result, Mismatch):
        raise TimedMismatch(f"a timed call is wrong by the oracle: {result.message}", result.evidence)


def _refused(error: WorkerError) -> Failed:
    """The outcome of a candidate that declares a case unsupported after it was right there: only its time is hidden."""
    message = f"right when it was judged, declared unsupported when it was timed: {error}"[:500]
    return Failed(stage="timing", reason="refuses_when_timed", message=message, evidence=error.evidence)


def _failed(stage: str, reason: str, error: Any) -> Failed:
    return Failed(stage=stage, reason=reason, message=str(error), evidence=error.evidence)


def device_time(samples: Samples) -> str:
    """What becomes of the worker's claim of its device time, by the judge's own clock."""
    if not samples.candidate_event_ns:
        return "none"
    claimed = statistics.median(samples.candidate_event_ns)
    verified = statistics.median(samples.candidate_ns)
    if claimed > verified * (1 + _AGREEMENT):
        return f"rejected: claims {claimed / 1e3:.2f} us, longer than the verified {verified / 1e3:.2f} us"
    if claimed < verified * (1 - _AGREEMENT):
        return f"rejected: claims {claimed / 1e3:.2f} us, shorter than the verified {verified / 1e3:.2f} us"
    return "accepted"


def _deferral(run: TimedRun) -> dict[str, float]:
    return {"deferred_ns": run.excess_collect_ns} if run.excess_collect_ns else {}
