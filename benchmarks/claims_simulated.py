"""How often equal kernels are called faster or slower, by simulation, with the statistics of each tier of timing.

A scene says how the times of windows scatter on a machine. Noise figures come from A/A sessions simulated on the same
machine, as the judge measures them; three scenes are judged on a machine that became worse or better. The cells of a
verdict then go through the tier's own number of sessions and blocks, its rule for ending one, and the claim. Device
times are those of calls of 0.1 ms by the workers' events, beside a clock whose windows scatter by 10 us.

``faster, slower``: claims at a true ratio of 1, of so many cells; none is the goal. ``within``: the share of 95 %
intervals that hold the truth. ``half width``: the median one, in percent. ``power``: claims of "faster" at +5 %.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report, parser, until_ended
from kerneleval import devices
from kerneleval.judge.timing.effort import HOST_TIERS, TIERS, Effort
from kerneleval.judge.timing.statistics import MOST_DISTURBED, Noise, disturbed, timings_of
from kerneleval.judge.timing.timer import _RECORDED_BETWEEN, _RECORDED_FARTHEST, _noise
from kerneleval.records import Samples, Timing
from kerneleval.records.outcomes import TimeKind

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Scatter = Callable[[np.random.Generator, int], tuple[Floats, Floats, Floats]]
CALL_NS: dict[TimeKind, float] = {"call": 16e3, "device": 1e5}
CLOCK_NS = 1e4
"""How far what a window takes beyond its calls scatters (standard deviation)."""
MACHINES = 50
"""Machines of each scene: so many times the noise is measured."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """How log times scatter on a machine."""

    name: str
    windows: Scatter
    """(generator, windows in the order of time) -> log times that the candidate, and either process of the baseline,
    would have then."""
    sessions: float = 0.0
    """Standard deviation of the log ratio of two processes of a session beyond that."""
    later: float = 1.0
    """How many times as large all scatter is when cells are judged as it was when the noise was measured."""
    sessions_later: float = 1.0
    """The same of ``sessions`` alone."""


def both(one: Callable[[np.random.Generator, int], Floats]) -> Scatter:
    """Each process scatters by itself."""
    return lambda generator, windows: tuple(one(generator, windows) for _ in range(3))  # type: ignore[return-value]


def shared(one: Callable[[np.random.Generator, int], Floats]) -> Scatter:
    """All scatter together, as the machine does, and by half a percent by themselves."""

    def scatter(generator: np.random.Generator, windows: int) -> tuple[Floats, Floats, Floats]:
        common = one(generator, windows)
        return tuple(common + generator.normal(0, 0.005, windows) for _ in range(3))  # type: ignore[return-value]

    return scatter


def normal(sigma: float) -> Callable[[np.random.Generator, int], Floats]:
    """Log-normal times."""
    return lambda generator, windows: generator.normal(0, sigma, windows)


def outliers(generator: np.random.Generator, windows: int) -> Floats:
    """One window in twenty is disturbed, and takes up to half as long again."""
    return generator.normal(0, 0.01, windows) + np.where(
        generator.random(windows) < 0.05, generator.uniform(0.05, 0.4, windows), 0.0
    )


def heavy(generator: np.random.Generator, windows: int) -> Floats:
    """Student's t of two degrees of freedom."""
    found: Floats = 0.01 * generator.standard_t(2, windows)
    return found


def drift(generator: np.random.Generator, windows: int) -> Floats:
    """A machine that warms up: up to half a percent a window."""
    found: Floats = generator.uniform(-0.005, 0.005) * np.arange(windows, dtype=np.float64)
    return found


def clocks(generator: np.random.Generator, windows: int) -> Floats:
    """Two clocks 8 % apart, between which a processor changes every sixth window."""
    changes = generator.random(windows) < 1 / 6
    return np.where((np.cumsum(changes) + generator.integers(2)) % 2, 0.08, 0.0) + generator.normal(0, 0.003, windows)


def correlated(generator: np.random.Generator, windows: int) -> Floats:
    """Each window is nine tenths of the one before."""
    found = np.empty(windows)
    now = generator.normal(0, 0.02)
    for index in range(windows):
        found[index] = now = 0.9 * now + generator.normal(0, 0.02 * math.sqrt(1 - 0.81))
    return found


SCENES = (
    Scene(name="quiet, 0.2 %", windows=both(normal(0.002))),
    Scene(name="log-normal, 1 %", windows=both(normal(0.01))),
    Scene(name="log-normal, 4 %", windows=both(normal(0.04))),
    Scene(name="outliers", windows=both(outliers)),
    Scene(name="heavy tails", windows=both(heavy)),
    Scene(name="drift", windows=shared(drift)),
    Scene(name="two clocks, own", windows=both(clocks)),
    Scene(name="two clocks, shared", windows=shared(clocks)),
    Scene(name="autocorrelation", windows=both(correlated)),
    Scene(name="sessions that are off", windows=both(normal(0.005)), sessions=0.02),
    Scene(name="three times busier", windows=both(normal(0.01)), sessions=0.003, later=3.0),
    Scene(name="three times quieter", windows=both(normal(0.02)), sessions=0.01, later=1 / 3),
    Scene(name="sessions three times as far apart", windows=both(normal(0.005)), sessions=0.01, sessions_later=3.0),
)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Log times of the windows of one session, in the order of the product's samples: two entries for each block."""

    candidate: Floats
    baseline: Floats
    processes: NDArray[np.int64]
    beyond: Floats
    """What the judge's clock has beyond the calls (ns), shape (windows, 2): the candidate's, the baseline's."""

    @property
    def blocks(self) -> Floats:
        """Log speedups."""
        found: Floats = (self.baseline - self.candidate).reshape(-1, 2).mean(axis=1)
        return found

    def first(self, blocks: int) -> Windows:
        """Those of the first so many blocks."""
        return Windows(
            candidate=self.candidate[: 2 * blocks],
            baseline=self.baseline[: 2 * blocks],
            processes=self.processes[: 2 * blocks],
            beyond=self.beyond[: 2 * blocks],
        )

    def disturbed(self, window_ns: float, kind: TimeKind, usual: float) -> bool:
        """See :func:`kerneleval.judge.timing.statistics.disturbed`."""
        times = window_ns * np.exp(np.stack([self.candidate, self.baseline], axis=1))
        return disturbed(times + self.beyond, times) if kind == "device" else disturbed(times, usual=usual)


def measured(
    generator: np.random.Generator, scene: Scene, count: int, truth: float, worse: float, twins: bool
) -> Windows:
    """So many blocks, with two processes of the baseline (``twins``) or one."""
    sides, order, processes = places(generator, count, twins)
    mine, *theirs = scene.windows(generator, sides * count)
    baseline = np.where(processes == 0, theirs[0][order[1]], theirs[1][order[1]])
    beyond = generator.normal(0, CLOCK_NS, (2 * count, 2))
    if twins:  # one window of the candidate's stands in both entries
        beyond[1::2, 0] = beyond[::2, 0]
    return Windows(
        candidate=worse * mine[order[0]] - truth, baseline=worse * baseline, processes=processes, beyond=beyond
    )


def places(generator: np.random.Generator, count: int, twins: bool) -> tuple[int, Indices, Indices]:
    """Windows in a block; when the windows of each entry of so many blocks come, the candidate's and the baseline's,
    shape (2, entries); and of which process of the baseline they are.
    """
    if not twins:
        first = generator.integers(2, size=count).astype(bool)
        order = np.where(first[:, None], [[0, 3, 1, 2]], [[1, 2, 0, 3]]) + 4 * np.arange(count)[:, None]
        return 4, np.stack([order[:, :2].ravel(), order[:, 2:].ravel()]), np.zeros(2 * count, dtype=np.int64)
    thirds = -(-count // 3)
    sides = np.repeat(generator.permuted(np.tile(np.arange(3), (thirds, 1)), axis=1), 3, axis=0)
    turns = generator.permuted(np.tile(np.arange(3), (thirds, 1)), axis=1).ravel()
    # when each side's window comes: the candidate's is side 0
    order = (sides + turns[:, None])[:count] % 3 + 3 * np.arange(count)[:, None]
    theirs = np.sort(order[:, 1:], axis=1)
    processes = (order[:, 1:] != theirs).astype(np.int64)
    processes = np.where(processes[:, :1] == 0, [[0, 1]], [[1, 0]]).ravel()
    return 3, np.stack([np.repeat(order[:, 0], 2), theirs.ravel()]), processes


def session(
    generator: np.random.Generator,
    scene: Scene,
    effort: Effort,
    truth: float,
    worse: float,
    kind: TimeKind,
    usual: float = 0.0,
    twins: bool = True,
) -> Windows:
    """The windows that the tier measures: until its rule ends the session, or its blocks are used up; ``usual``: see
    :attr:`kerneleval.judge.timing.statistics.Noise.usual`; ``twins``: see :func:`measured`.
    """
    most = max(effort.max_blocks, MOST_DISTURBED)
    windows = measured(generator, scene, most, truth, worse, twins)
    ratios = windows.blocks
    for number in range(effort.min_blocks, effort.max_blocks):
        if number > 1 and 2 * ratios[:number].std(ddof=1) / math.sqrt(number) < effort.half_width:
            return windows.first(number)
    for number in range(effort.max_blocks, most):
        if not windows.first(number).disturbed(effort.window_ns, kind, usual):
            return windows.first(number)
    return windows


def offsets(generator: np.random.Generator, scene: Scene, sessions: int, worse: float) -> Floats:
    """How far the candidate's process and both of the baseline's are off in each session."""
    found: Floats = generator.normal(0, 1, (sessions, 3)) * scene.sessions * worse / math.sqrt(2)
    return found


def noise_of(generator: np.random.Generator, scene: Scene, effort: Effort, kind: TimeKind) -> Noise:
    """As :func:`kerneleval.judge.timing.timer.measure_noise` finds it: three sessions of A/A runs."""
    found = []
    for mine, theirs, _ in offsets(generator, scene, 3, 1.0):
        runs = [
            session(generator, scene, effort, 0.0, 1.0, kind, twins=False).blocks
            for _ in range(max(1, 4 // effort.min_blocks))
        ]
        found.append(np.concatenate(runs) + theirs - mine)
    known = (_RECORDED_BETWEEN[1], _RECORDED_FARTHEST[1]) if kind == "device" else ()  # of its duration class
    return _noise(found, *known)


def sampled(
    generator: np.random.Generator, scene: Scene, effort: Effort, truth: float, kind: TimeKind, usual: float
) -> Samples:
    """The samples of one cell."""
    every = []
    for mine, *theirs in offsets(generator, scene, effort.sessions, scene.sessions_later * scene.later):
        windows = session(generator, scene, effort, truth, scene.later, kind, usual)
        baseline = windows.baseline + np.asarray(theirs)[windows.processes]
        every.append(replace(windows, candidate=windows.candidate + mine, baseline=baseline))
    numbers = [number for number, windows in enumerate(every) for _ in windows.candidate]
    per_call, calls = CALL_NS[kind], round(effort.window_ns / CALL_NS[kind])
    own = per_call * np.exp(np.concatenate([windows.candidate for windows in every]))
    other = per_call * np.exp(np.concatenate([windows.baseline for windows in every]))
    processes = np.concatenate([windows.processes for windows in every])
    given = {"calls": calls, "sessions": tuple(numbers), "processes": tuple(processes.tolist())}
    if kind == "call":
        return Samples(candidate_ns=tuple(own), baseline_ns=tuple(other), **given)
    clock = np.concatenate([windows.beyond for windows in every]).T / calls
    return Samples(
        candidate_ns=tuple(np.maximum(own + clock[0], 1.0)),
        baseline_ns=tuple(np.maximum(other + clock[1], 1.0)),
        candidate_event_ns=tuple(own),
        baseline_event_ns=tuple(other),
        **given,
    )


def row(scene: Scene, tier: str, cells: int, together: int, seed: int, kind: TimeKind) -> tuple[str, ...]:
    """What comes of so many cells of a scene, of which so many are judged ``together`` in a verdict."""
    generator = np.random.default_rng(seed)
    effort = TIERS[tier].recorded if kind == "device" else HOST_TIERS[tier]

    def at(truth: float) -> list[Timing]:
        cells = [(sampled(generator, scene, effort, truth, kind, noise.usual), noise) for _ in range(together)]
        return timings_of(cells, kind)

    equal: list[Timing] = []
    faster: list[Timing] = []
    for _ in range(MACHINES):
        noise = noise_of(generator, scene, effort, kind)
        for number in range(max(1, cells // MACHINES // together)):
            equal += at(0.0)
            if number % 10 == 0:
                faster += at(math.log(1.05))
    widths = [math.log(timing.high / timing.low) / 2 for timing in equal]
    return (
        scene.name,
        kind,
        tier,
        str(together),
        str(len(equal)),
        str(sum(timing.claim in ("faster", "slower") for timing in equal)),
        f"{sum(timing.low <= 1 <= timing.high for timing in equal) / len(equal):.3f}",
        f"{100 * float(np.median(widths)):.2f}",
        f"{sum(timing.claim == 'faster' for timing in faster) / len(faster):.2f}",
    )


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--cells", type=int, default=10_000, help="simulated cells for each row")
    made.add_argument("--together", default="8,1", help="cells in a verdict")
    made.add_argument("--tiers", default=",".join(TIERS), help="tiers of timing")
    made.add_argument("--kinds", default="device,call", help="times of a call")
    options = made.parse_args()
    report = Report("claims_simulated", devices.find("cpu").machine(), options.out)
    rows: list[tuple[str, ...]] = []
    began = time.monotonic()
    with until_ended():
        for kind, tier in itertools.product(options.kinds.split(","), options.tiers.split(",")):
            for together in map(int, options.together.split(",")):
                for number, scene in enumerate(SCENES):
                    rows.append(row(scene, tier, options.cells, together, number, kind))
    head = ("scene", "time", "tier", "in a verdict", "cells", "faster, slower", "within", "half width %", "power")
    report.table(head, rows)
    report.say(f"{time.monotonic() - began:.0f} s")
    report.data = {"rows": rows}
    report.write()


if __name__ == "__main__":
    main()
