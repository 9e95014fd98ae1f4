"""The noise floor: A/A runs of this machine, by duration class, kept in the cache.

Two workers run the same operator against each other under the very protocol of a tier. What comes out is how far apart
the same code can look: the spread of single quads, and what stays between process pairs however long one measures.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
import torch

from kerneleval.judge.timing import clock
from kerneleval.judge.timing.statistics import pair_log_ratios
from kerneleval.judge.timing.timed_outputs import TimedBounds, TimedCall, TimedMismatch
from kerneleval.judge.windows.buffers import CallLayout, dense
from kerneleval.judge.windows.device_lock import device_lock
from kerneleval.judge.windows.worker_pool import Loaded, WorkerPool
from kerneleval.records import Candidate, Protocol

__all__ = ["CLASSES_NS", "Noise", "floor", "measure_noise"]

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


def class_of(duration_ns: float) -> int:
    """Index of the duration class."""
    return next(i for i, top in enumerate(CLASSES_NS) if duration_ns < top)


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
    for _ in range(max(1, 4 // clock.effort_for(protocol, device).min_quads)):
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
