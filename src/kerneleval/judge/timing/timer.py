"""Timing of right cells: every cell in each session, then one timing and claim for each; and the machine's noise floor.

Cells are measured by ``clock.py``; a time that the machine's limits make impossible fails by ``roofline.py``. Nothing
is timed that was not right before. The noise floor comes from A/A runs under the very protocol of a tier: how far apart
the same code can look, in single blocks and between process pairs.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.probes.calls import BoundCase, Calls, mutation, with_names
from kerneleval.judge.timing import clock
from kerneleval.judge.timing.clock import TimedRun
from kerneleval.judge.timing.effort import HOST_TIERS, TIERS
from kerneleval.judge.timing.pair import BaselineError, BaselineSide, TimedCall, TimedMismatch
from kerneleval.judge.timing.roofline import check_limit, reached
from kerneleval.judge.timing.statistics import Noise, pair_log_ratios, timings_of
from kerneleval.judge.windows.buffers import CallLayout, TensorSlot, dense
from kerneleval.judge.windows.locks import device_lock
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.protocol import NotAtRestError, raised
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
    UsageError,
    from_plain,
    new_secret,
    to_plain,
)
from kerneleval.records.outcomes import TimeKind
from kerneleval.worker.host import WorkerError, WorkerFailure
from kerneleval.worker.waiting import TimeLimit

CLASSES_NS: tuple[float, ...] = (2e4, 2e5, 2e6, math.inf)
"""Upper ends of the duration classes: 20 us, 200 us, 2 ms and beyond."""

_VERSION = 12
_LARGE, _LARGE_KEPT_S = 0.1, 600.0
"""Figures above 10 %, with which nothing can be called equal, are kept for so many seconds."""
_SESSIONS = 3
_LEAST_BETWEEN = 0.003
"""The same runs' scatter of session means at its smallest."""

_RECORDED_BETWEEN = (0.010, 0.005, 0.003, 0.003)
_RECORDED_FARTHEST = (0.066, 0.035, 0.02, 0.02)
"""By duration class, how far sessions of equal recorded calls are apart (root mean square) and the most that was seen,
log ratios: 696 cells of 28 operators, forward and backward, on one H200 (2026-11-26). A session's blocks agree within
0.1 to 0.2 % all the while: each recording has a time of its own, of short calls with many kernels most. So the class is
that of what one kernel takes: a gradient of 31 us with many kernels was 2.5 % off itself twice (2026-11-29)."""

_CALLED_FARTHEST = (0.5, 0.55, 0.55, 0.09)
"""The most that quick sessions of equal eager calls were apart on a GPU, where launching them takes most of the time
(log ratio): 1,760 cells of the same operators in four runs on H200s (2026-11-29)."""

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
_LIMIT = TimeLimit(60.0)


@dataclass(frozen=True, kw_only=True)
class NoiseFigures:
    """Noise of every duration class."""

    call: tuple[Noise, ...]
    """Of call times."""
    device: tuple[Noise, ...]
    """Of device times; empty: the device records no calls."""

    def of(self, duration_ns: float, kind: TimeKind) -> Noise:
        """That of the class that a cell is in whose baseline takes so long: a call, or of recorded calls one kernel."""
        classes = zip(self.device if kind == "device" else self.call, CLASSES_NS, strict=True)
        return next(one for one, top in classes if duration_ns < top)


def floor(pool: WorkerPool, tier: str, on_measure: Callable[[], None] | None = None) -> NoiseFigures:
    """Noise of each duration class on this machine in this tier; measured on first use, then from the cache. Large
    figures are measured again after a while: the machine may have been busy.
    """
    path = pool.cache_dir / "noise" / f"{pool.machine.fingerprint}-{tier}-v{_VERSION}.json"
    if (known := _known(path)) is not None:
        return known
    with device_lock(pool.device.hardware(), whole=True):
        if (known := _known(path)) is not None:  # another judge measured it meanwhile
            return known
        if on_measure is not None:
            on_measure()
        found = measure_noise(pool, tier)
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = path.with_suffix(f".{os.getpid()}")
        staging.write_text(json.dumps(to_plain(found)))
        staging.rename(path)
    return found


def _known(path: Path) -> NoiseFigures | None:
    """Noise figures that were kept; None: there are none, or they are large and old."""
    if not path.exists():
        return None
    found = _read(path)
    large = any(max(one.spread, one.between) > _LARGE for one in (*found.call, *found.device))
    return None if large and time.time() - path.stat().st_mtime > _LARGE_KEPT_S else found


def _read(path: Path) -> NoiseFigures:
    try:
        return from_plain(NoiseFigures, json.loads(path.read_text()))
    except (ValueError, UsageError):
        path.unlink()
        raise RuntimeError(f"{path} held no noise figures and has been removed; run again to measure them") from None


def measure_noise(pool: WorkerPool, tier: str) -> NoiseFigures:
    """A/A runs of one operator in every duration class."""
    calls: list[list[np.ndarray]] = [[] for _ in CLASSES_NS]
    recorded: list[list[np.ndarray]] = [[] for _ in CLASSES_NS]
    for _ in range(_SESSIONS):
        candidate = Candidate(files=(("noise.py", _SOURCE),), language="torch")
        first, second = Loaded(pool, candidate, ("run",)), Loaded(pool, candidate, ("run",))
        try:
            for index, shape in enumerate(_SHAPES[pool.device.torch_device]):
                of_calls, of_device = _session(pool, first, second, shape, tier)
                calls[index].append(of_calls)
                recorded[index].append(of_device)
        finally:
            first.close()
            second.close()
    device: tuple[Noise, ...] = ()
    if all(len(blocks) for sessions in recorded for blocks in sessions):
        known = zip(recorded, _RECORDED_BETWEEN, _RECORDED_FARTHEST, strict=True)
        device = tuple(_noise(sessions, between, farthest) for sessions, between, farthest in known)
    launched = tier == "quick" and not pool.device.slow_wakes
    farthest_calls = _CALLED_FARTHEST if launched else (0.0,) * len(CLASSES_NS)
    call = tuple(_noise(of, farthest=most) for of, most in zip(calls, farthest_calls, strict=True))
    return NoiseFigures(call=call, device=device)


def _session(
    pool: WorkerPool, first: Loaded, second: Loaded, shape: tuple[int, int], tier: str
) -> tuple[np.ndarray, np.ndarray]:
    """Log ratios of blocks, by call time and by device time."""
    device = pool.device
    protocol = Protocol(tier=tier)  # type: ignore[arg-type]
    call = CallLayout(args=(dense(shape, "float32"),), grads=(), outputs=((shape, "float32"),), wanted=(), dims={})

    def draw(seed: int) -> list[torch.Tensor]:
        generator = torch.Generator(device=device.judge_device).manual_seed(seed)
        return [torch.randn(shape, generator=generator, device=device.judge_device)]

    bounds = TimedBounds(relative_rms=1e-6, worst=1e-5)
    cell = clock.TimedCell(call=call, direction="forward", draw=draw, bounds=bounds, arbiter=_unequal)
    runs, twin = [], (BaselineSide(second.runner),)
    pool.quiet()
    effort = (HOST_TIERS if device.slow_wakes else TIERS)[tier]
    for _ in range(math.ceil(4 / effort.min_blocks)):
        try:
            run = clock.measure(first.runner, twin, cell, protocol, device, session=0, limit=_LIMIT)
        except (BaselineError, TimedMismatch, WorkerError, WorkerFailure) as error:
            what = "PyTorch's product" if shape[0] == shape[1] else "PyTorch's gelu"
            text = f"the noise of this machine cannot be measured: {what} of {shape[0]} x {shape[1]} failed: {error}"
            raise InfrastructureError(text) from error
        runs.append(run)
    recorded = [pair_log_ratios(run.device, by_events=True)[0] for run in runs if run.device is not None]
    calls = [pair_log_ratios(run.samples)[0] for run in runs]
    return np.concatenate(calls), np.concatenate(recorded) if recorded else np.empty(0)


def session_s(tier: str, device: Device) -> float:
    """Seconds that a session of a cell may take by its tier: for calls, as long for recorded calls, and for energy."""
    effort = (HOST_TIERS if device.slow_wakes else TIERS)[tier]
    return 2 * effort.patience * effort.max_seconds + effort.energy_s


def _unequal(timed: TimedCall) -> None:
    raise TimedMismatch("equal code gave different outputs", {})


def _noise(sessions: list[np.ndarray], least: float = _LEAST_BETWEEN, farthest: float = 0.0) -> Noise:
    """Spread within sessions (pooled, robust) and the excess between them (method of moments), ``least`` at least."""
    centred = np.concatenate([blocks - (np.median(blocks) if len(blocks) > 2 else 0.0) for blocks in sessions])
    sizes = np.sort(np.abs(centred))
    within = float(np.median(sizes) / NormalDist().inv_cdf(0.75)) ** 2
    # the median sees nothing of a clock that changes in less than half of the blocks: of all but the one farthest out
    within = max(within, float((sizes[:-1] ** 2).mean()) if len(sizes) > 1 else 0.0)
    means = np.array([np.median(blocks) for blocks in sessions])
    count = float(np.mean([len(blocks) for blocks in sessions]))
    # the true mean of an A/A run is 0: the second moment about 0 is the variance of the session means
    between = max(0.0, float((means**2).mean()) - within / count)
    return Noise(spread=math.sqrt(within), between=max(math.sqrt(between), least), farthest=farthest)


class Timer:
    """Times the cells of one candidate against the task's baseline.

    Args:
        baselines: ``(fresh) -> loaded``: the trusted baseline's workers, in new processes when asked.
        limits: of the machine; None: not measured, and no time is held against them.
        better: measures the bandwidth again, for a time that seems impossible.
        rests: whether the device was at rest before the candidate was there, and must be so in the baseline's windows.
    """

    def __init__(
        self,
        calls: Calls,
        baselines: Callable[[bool], tuple[Loaded, ...]],
        noise: NoiseFigures,
        limits: Limits | None,
        better: Callable[[], Limits],
        *,
        rests: bool,
    ) -> None:
        self._calls, self._get_baselines, self._noise = calls, baselines, noise
        self._limits, self._better = limits, better
        self._device, self._rests = calls.device, rests
        self._own_paces: dict[Case, float] = {}
        self.untimed: dict[Case, str] = {}
        """Right cells that have no time, and why."""

    def time(self, cells: Mapping[Case, Outcome], on_cell: Callable[[int, int, Case], None]) -> dict[Case, Outcome]:
        """The outcomes of right cells with their timings, or the failures found while timing.

        All cells are measured in one pair of processes, then all of them in the next: what a pair has by chance, such
        as where its memory lies, is the same for a whole session and differs between sessions.

        Args:
            on_cell: called with (done, in all, case) after each measurement.

        Raises:
            InfrastructureError: the trusted baseline itself failed.
        """
        sessions = TIERS[self._calls.protocol.tier].sessions
        found, runs = dict(cells), {case: [] for case in cells}  # type: dict[Case, Outcome], dict[Case, list[TimedRun]]
        total = sessions * len(cells)
        for session in range(sessions):
            for number, case in enumerate(cells):
                if not isinstance(found[case], Passed) or case in self.untimed:
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
                except NotAtRestError as error:
                    self.untimed[case] = str(error)
                except WorkerError as error:
                    found[case] = _refused(error) if error.unsupported else replace(raised(error), stage="timing")
                except BuildFailed as error:
                    found[case] = error.outcome()
                on_cell(session * len(cells) + number + 1, total, case)
        timed = {case: outcome for case, outcome in found.items() if case not in self.untimed}
        right = {case: outcome for case, outcome in timed.items() if isinstance(outcome, Passed)}
        measured = {case: clock.merge(runs[case]) for case in right}
        calls = self._claims({case: run.samples for case, run in measured.items()}, "call")
        recorded = {case: run.device for case, run in measured.items() if run.device is not None}
        device = self._claims(recorded if self._noise.device else {}, "device")
        for case, outcome in right.items():
            run = measured[case]
            timing = replace(calls[case], no_device_time=run.no_device)
            found[case] = self._outcome(case, outcome, run, self._headline(timing, device.get(case)))
        return found

    def _headline(self, call: Timing, device: Timing | None) -> Timing:
        """The time that speedups are of, with the other one beside it."""
        if device is None:
            return call
        if self._calls.protocol.time == "device":
            return replace(device, other=call)
        return replace(call, other=device)

    def _claims(self, cells: Mapping[Case, Samples], kind: TimeKind) -> dict[Case, Timing]:
        """What the samples of all timed cells say; how far apart the baseline's processes are counts for each."""
        # recordings of many short kernels differ as those of one short kernel do
        durations = [statistics.median(of.baseline_ns) / max(1.0, of.launches) for of in cells.values()]
        judged = [(of, self._noise.of(ns, kind)) for of, ns in zip(cells.values(), durations, strict=True)]
        return dict(zip(cells, timings_of(judged, kind), strict=True))

    def _outcome(self, case: Case, outcome: Passed, run: TimedRun, timing: Timing) -> Outcome:
        if run.mutated and not self._calls.task.in_place:
            return with_names(mutation(run.mutated, "a timed call"), self._calls.task, case)
        evidence = outcome.evidence | ({"deferred_ns": run.excess_collect_ns} if run.excess_collect_ns else {})
        evidence |= {name: of for name, of in (("energy", run.energy), ("memory", run.memory)) if of}
        if self._limits is not None:
            task, call_layout = self._calls.task, self._calls.calibration[case].call_layout
            tf32 = self._calls.protocol.tf32
            evidence |= {"limit": reached(task, case, call_layout, timing.samples, self._limits, tf32=tf32)}
        return replace(outcome, timing=timing, evidence=evidence)

    def _renew(self, case: Case) -> None:
        self._baselines(case, self._calls.bind(case), fresh=True)
        self._calls.loaded.renew()

    def _session(self, case: Case, session: int) -> TimedRun:
        calls = self._calls
        bound = calls.bind(case)
        known = calls.calibration[case]

        def draw(seed: int) -> list[torch.Tensor]:
            args = known.belonging(bound.timed_arguments(seed))
            return [a for a in args if isinstance(a, torch.Tensor)] + bound.upstream(args, new_secret())

        baselines = self._baselines(case, bound, fresh=False)
        paces = baselines[0].paces
        calls.loaded.pool.quiet()
        calls.loaded.patience.give(session_s(calls.protocol.tier, self._device))
        cell = clock.TimedCell(
            call=known.call_layout,
            direction=case.direction,
            draw=draw,
            bounds=known.bounds,
            arbiter=lambda timed: _check_by_oracle(bound, known.call_layout, timed),
            usual=lambda call_ns: self._noise.of(call_ns, "call").usual,
            pace_ns=paces.get((case, "call"), 0.0),
            own_pace_ns=self._own_paces.get(case, 0.0),
            slowest_ns=1e9 * calls.slowest_s,
            recorded_pace_ns=paces.get((case, "device"), 0.0),
            gradient_alone=case.direction == "backward" and calls.loaded.explicit_backward,
            anew=bound.problem is not None and bool(bound.problem.related),
            # its passes would compute on what earlier ones left
            rests=self._rests,
            energy=not (calls.task.in_place or any(slot.written for slot in known.call_layout.slots)),
        )
        try:
            run = clock.measure(
                calls.loaded.runner,
                tuple(BaselineSide(baseline.runner) for baseline in baselines),
                cell,
                calls.protocol,
                self._device,
                session=session,
                limit=calls.limit,
            )
        except BaselineError as error:
            raise _baseline_failed(f"{calls.task.name} failed at {case.key}", error, calls.protocol) from error
        paces[case, "call"] = statistics.median(run.samples.baseline_ns)
        self._own_paces[case] = statistics.median(run.samples.candidate_ns)
        if run.device is not None:
            paces[case, "device"] = statistics.median(run.device.baseline_event_ns)
        if run.lost:
            calls.loaded.renew()
        measured = ((run.samples, run.sample), (run.device, run.device_sample))
        for samples, sample in measured:
            if samples is None or sample is None:
                continue
            _check_by_oracle(bound, known.call_layout, sample)
            if self._limits is not None:
                check_limit(calls.task, case, known.call_layout, samples, sample, self._limits, self._better)
        return run

    def _baselines(self, case: Case, bound: BoundCase, *, fresh: bool) -> tuple[Loaded, ...]:
        baselines = self._get_baselines(fresh)
        try:
            if bound.weights is not None:
                for baseline in baselines:
                    self._calls.ensure_module(baseline, case)
                    reveal_weights(baseline, bound.weights)
        except (WorkerError, WorkerFailure, BuildFailed) as error:
            raise _baseline_failed(f"{self._calls.task.name} failed", error, self._calls.protocol) from error
        return baselines


_NO_COMPILER = re.compile(
    r"InvalidCxxCompiler|No working C\+\+ compiler|CppCompileError|Failed to find C compiler|TritonMissing|"
    r"working triton|Python\.h"
)
"""What ``torch.compile`` says where it has nothing to compile with."""


def _baseline_failed(what: str, error: Exception, protocol: Protocol) -> InfrastructureError:
    """Why nothing is timed; of a compiled baseline, what to do."""
    said = re.split(r"\s+Set TORCHDYNAMO_VERBOSE", " ".join(str(error).split()))[0][:500]
    if protocol.baseline != "compile":
        return InfrastructureError(f"the baseline of {what}: {said}")
    if _NO_COMPILER.search(said):
        return InfrastructureError(
            "--baseline compile: torch.compile has no working compiler here; install one (on Debian g++ and "
            f"python3-dev), name it in CXX or CC, or use --baseline eager. It said: {said}"
        )
    return InfrastructureError(f"the compile baseline of {what}; use --baseline eager. It said: {said}")


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
