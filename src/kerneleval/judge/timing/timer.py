"""Timing of right cells: every cell in each session, then one timing and claim for each; and the machine's noise floor.

Cells are measured by ``clock.py``; a time that the machine's limits make impossible fails by ``roofline.py``. Nothing
is timed that was not right before. The noise floor comes from A/A runs under the very protocol of a tier: how far apart
the same code can look, in single quads and between process pairs.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import torch

from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.probes.calls import BoundCase, Calls
from kerneleval.judge.timing import clock
from kerneleval.judge.timing.clock import TimedRun
from kerneleval.judge.timing.pair import BaselineError, BaselineSide, TimedCall, TimedMismatch
from kerneleval.judge.timing.roofline import check_limit, reached
from kerneleval.judge.timing.statistics import busier, effort_for, pair_log_ratios, timing_from
from kerneleval.judge.windows.buffers import CallLayout, TensorSlot, dense
from kerneleval.judge.windows.locks import device_lock
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.protocol import raised
from kerneleval.judge.windows.worker_pool import BuildFailed, Loaded, WorkerPool
from kerneleval.records import (
    Candidate,
    Case,
    Failed,
    InfrastructureError,
    Limits,
    Outcome,
    Passed,
    Protocol,
    Samples,
    Timing,
    new_secret,
)
from kerneleval.worker.host import WorkerError, WorkerFailure

CLASSES_NS: tuple[float, ...] = (2e4, 2e5, 2e6, math.inf)
"""Upper ends of the duration classes: 20 us, 200 us, 2 ms and beyond."""

_VERSION = 7
_SESSIONS = 3
_LEAST_FLOOR = 0.015
"""A/A runs over 224 cells of 28 operators on one H200 left up to 1.2 % in cells of 100 us or more."""

_LEAST_BETWEEN = 0.003
"""The same runs' scatter of session means at its smallest."""

_SOURCE = """import torch

def run(x):
    return x @ x if x.shape[0] == x.shape[1] else torch.nn.functional.gelu(x)
"""
_SHAPES: dict[str, tuple[tuple[int, int], ...]] = {
    "cpu": ((4, 1024), (64, 1024), (512, 1024), (1024, 1024)),
    "cuda": ((64, 1024), (1 << 16, 1024), (1 << 17, 1024), (5120, 5120)),
    "xpu": ((64, 1024), (1 << 14, 1024), (1 << 15, 1024), (4096, 4096)),
    "mps": ((64, 1024), (1 << 10, 1024), (1 << 13, 1024), (2048, 2048)),
}
"""By PyTorch's name of the device, the last two by data sheets: a gelu in each of the shorter classes and a square
product in the longest."""
_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of one duration class."""

    spread: float
    """Standard deviation of the log ratio of single quads."""
    between: float
    """Standard deviation of session means beyond what the quads explain (log ratio)."""

    def floor(self, quads: int, sessions: int) -> float:
        """Smallest effect (ratio minus 1) worth a claim: 3.29 standard deviations (99.9 %), at least 1.5 %."""
        variance = self.spread**2 / max(quads, 1) + self.between**2 / max(sessions, 1)
        return max(math.exp(3.29 * math.sqrt(variance)) - 1, _LEAST_FLOOR)


def floor(pool: WorkerPool, tier: str, on_measure: Callable[[], None] | None = None) -> tuple[Noise, ...]:
    """Noise of each duration class on this machine in this tier; measured on first use, then from the cache."""
    path = pool.cache_dir / "noise" / f"{pool.machine.fingerprint}-{tier}-v{_VERSION}.json"
    if path.exists():
        return _read(path)
    with device_lock(pool.device.hardware(), whole=True):
        if path.exists():  # another judge measured it meanwhile
            return _read(path)
        if on_measure is not None:
            on_measure()
        found = measure_noise(pool, tier)
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = path.with_suffix(f".{os.getpid()}")
        staging.write_text(json.dumps([asdict(noise) for noise in found]))
        staging.rename(path)
    return found


def _read(path: Path) -> tuple[Noise, ...]:
    try:
        plain = json.loads(path.read_text())
        return tuple(Noise(spread=float(n["spread"]), between=float(n["between"])) for n in plain)
    except (ValueError, KeyError, TypeError):
        path.unlink()
        raise RuntimeError(f"{path} held no noise figures and has been removed; run again to measure them") from None


def measure_noise(pool: WorkerPool, tier: str) -> tuple[Noise, ...]:
    """A/A runs of one operator in every duration class."""
    quads: list[list[np.ndarray]] = [[] for _ in CLASSES_NS]
    for _ in range(_SESSIONS):
        candidate = Candidate(files=(("noise.py", _SOURCE),), language="torch")
        first, second = Loaded(pool, candidate, ("run",)), Loaded(pool, candidate, ("run",))
        try:
            for index, shape in enumerate(_SHAPES[pool.device.torch_device]):
                quads[index].append(_session(pool, first, second, shape, tier))
        finally:
            first.close()
            second.close()
    return tuple(_noise(sessions) for sessions in quads)


def _session(pool: WorkerPool, first: Loaded, second: Loaded, shape: tuple[int, int], tier: str) -> np.ndarray:
    device = pool.device
    protocol = Protocol(tier=tier)  # type: ignore[arg-type]
    call = CallLayout(args=(dense(shape, "float32"),), grads=(), outputs=((shape, "float32"),), wanted=(), dims={})

    def draw(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator(device=device.judge_device).manual_seed(seed)
        return [torch.randn(shape, generator=generator, device=device.judge_device)]

    bounds = TimedBounds(relative_rms=1e-6, worst=1e-5)
    cell = clock.TimedCell(call=call, direction="forward", draw=draw, bounds=bounds, arbiter=_unequal)
    runs = []
    pool.quiet()
    for _ in range(max(1, 4 // effort_for(protocol, device).min_quads)):
        run = clock.measure(first.runner, second.runner, cell, protocol, device, session=0, timeout_s=_TIMEOUT_S)
        runs.append(pair_log_ratios(run.samples)[0])
    return np.concatenate(runs)


def _unequal(timed: TimedCall) -> None:
    raise TimedMismatch("equal code gave different outputs", {})


def _noise(sessions: list[np.ndarray]) -> Noise:
    """Spread within sessions (pooled, robust) and the excess between them (method of moments)."""
    centred = np.concatenate([quads - (np.median(quads) if len(quads) > 2 else 0.0) for quads in sessions])
    within = float(np.median(np.abs(centred)) / NormalDist().inv_cdf(0.75)) ** 2
    means = np.array([np.median(quads) for quads in sessions])
    count = float(np.mean([len(quads) for quads in sessions]))
    # the true mean of an A/A run is 0: the second moment about 0 is the variance of the session means
    between = max(0.0, float((means**2).mean()) - within / count)
    return Noise(spread=math.sqrt(within), between=max(math.sqrt(between), _LEAST_BETWEEN))


_WINDOW_TIMEOUT_S = 120.0
_AGREEMENT = 0.05
"""Device time within 5 % of the verified time agrees with it."""


class Timer:
    """Times the cells of one candidate against the task's baseline.

    Args:
        baseline: ``(fresh) -> Loaded``: the trusted baseline's worker, in a new process when asked.
        limits: of the machine; None: not measured, and no time is held against them.
        better: measures the bandwidth again, for a time that seems impossible.
    """

    def __init__(
        self,
        calls: Calls,
        baseline: Callable[[bool], Loaded],
        noise: Sequence[Noise],
        limits: Limits | None,
        better: Callable[[], Limits],
    ) -> None:
        self._calls, self._get_baseline, self._noise = calls, baseline, noise
        self._limits, self._better = limits, better
        self._device = calls.device

    def time(self, cells: Mapping[Case, Outcome], on_cell: Callable[[int, int, Case], None]) -> dict[Case, Outcome]:
        """The outcomes of right cells with their timings, or the failures found while timing.

        All cells are measured in one pair of processes, then all of them in the next: what a pair has by chance, such
        as where its memory lies, is the same for a whole session and differs between sessions.

        Args:
            on_cell: called with (done, in all, case) after each measurement.

        Raises:
            InfrastructureError: the trusted baseline itself failed.
        """
        sessions = effort_for(self._calls.protocol, self._device).sessions
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
                except (TimedMismatch, WorkerFailure) as error:
                    evidence = error.evidence
                    found[case] = Failed(stage="timing", reason=error.reason, message=str(error), evidence=evidence)
                    if isinstance(error, WorkerFailure):
                        return found  # the process is gone, and the verdict is decided
                except WorkerError as error:
                    found[case] = _refused(error) if error.unsupported else replace(raised(error), stage="timing")
                except BuildFailed as error:
                    found[case] = error.outcome()
                on_cell(session * len(cells) + number + 1, total, case)
        right = {case: outcome for case, outcome in found.items() if isinstance(outcome, Passed)}
        measured = {case: clock.merge(runs[case]) for case in right}
        times, freedom = busier([(run.samples, self._noise_of(run.samples).spread) for run in measured.values()])
        for case, outcome in right.items():
            run = measured[case]
            noise = self._noise_of(run.samples)
            found[case] = self._outcome(case, outcome, run, replace(noise, spread=noise.spread * times), freedom)
        return found

    def _outcome(self, case: Case, outcome: Passed, run: TimedRun, noise: Noise, freedom: int) -> Outcome:
        if run.mutated and not self._calls.task.in_place:
            return Failed(stage="honesty", reason="input_mutation", message="a timed call changed its inputs")
        evidence = outcome.evidence | ({"deferred_ns": run.excess_collect_ns} if run.excess_collect_ns else {})
        evidence |= {name: of for name, of in (("energy", run.energy), ("memory", run.memory)) if of}
        if self._limits is not None:
            task, call_layout = self._calls.task, self._calls.calibration[case].call_layout
            tf32 = self._calls.protocol.tf32
            evidence |= {"limit": reached(task, case, call_layout, run.samples, self._limits, tf32=tf32)}
        return replace(outcome, timing=_claim(run.samples, noise, freedom), evidence=evidence)

    def _renew(self, case: Case) -> None:
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
            bounds=known.bounds,
            arbiter=lambda timed: _check_by_oracle(bound, known.call_layout, timed),
            pace_ns=baseline.paces.get(case, 0.0),
            gradient_alone=case.direction == "backward" and calls.loaded.explicit_backward,
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
        if self._limits is not None:
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

    def _noise_of(self, samples: Samples) -> Noise:
        duration_ns = statistics.median(samples.baseline_ns)
        return next(one for one, top in zip(self._noise, CLASSES_NS, strict=True) if duration_ns < top)


def _claim(samples: Samples, noise: Noise, freedom: int) -> Timing:
    quads, sessions = len(samples.candidate_ns) // 2, len(set(samples.sessions))
    return timing_from(
        samples,
        spread=noise.spread,
        between=noise.between,
        freedom=freedom,
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


def device_time(samples: Samples) -> str:
    """What becomes of the worker's claim of its device time, by the judge's own clock."""
    if not samples.candidate_event_ns:
        return "none"
    claimed = statistics.median(samples.candidate_event_ns)
    verified = statistics.median(samples.candidate_ns)
    if verified * (1 - _AGREEMENT) <= claimed <= verified * (1 + _AGREEMENT):
        return "accepted"
    how = "longer" if claimed > verified else "shorter"
    return f"rejected: claims {claimed / 1e3:.2f} us, {how} than the verified {verified / 1e3:.2f} us"
