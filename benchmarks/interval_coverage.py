"""How often the 95 % intervals of scores contain the truth, by simulation: suites of 5 to 200 tasks whose speedups
differ from task to task and from cell to cell, with ties, with outliers and with noise of the timings.

The truth of a median is that of all tasks that there could be, found from a million; of Shape CV it is the mean over
ever so many groups of as many shapes. A good interval has 95 % ``within``; a wide one has more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Report, parser, until_ended
from kerneleval import devices
from kerneleval.scores import cv_shape
from kerneleval.scores.common.intervals import Nested, mean_over_tasks, median_over_cells
from kerneleval.scores.common.speeds import Speeds

Floats = NDArray[np.float64]
TASKS = (5, 10, 20, 50, 200)
SHAPES = 8
BETWEEN, WITHIN = 0.3, 0.1
"""Standard deviations of the logarithm of speedup over tasks, and over the cells of one."""
NOISE = 0.07
"""Standard error of the logarithm of a timing, in suites with noise."""


def log_normal(generator: np.random.Generator, tasks: int) -> Floats:
    """(tasks, 1, shapes): speedups around 1.2."""
    task = generator.normal(0, BETWEEN, (tasks, 1, 1))
    found: Floats = 1.2 * np.exp(task + generator.normal(0, WITHIN, (tasks, 1, SHAPES)))
    return found


def ties(generator: np.random.Generator, tasks: int) -> Floats:
    """The same, to the tenth, as clocks of few steps give them."""
    return np.maximum(np.round(log_normal(generator, tasks), 1), 0.1)


def ties_off_the_grid(generator: np.random.Generator, tasks: int) -> Floats:
    """The same, rounded so that the median lies between two steps, as it mostly does: the truth is that of what was
    rounded.
    """
    return np.maximum(np.round(log_normal(generator, tasks) * 1.25 / 1.2, 1), 0.1)


def outliers(generator: np.random.Generator, tasks: int) -> Floats:
    """The same, one cell in twenty three times as fast or as slow."""
    speeds = log_normal(generator, tasks)
    wild = generator.random(speeds.shape) < 0.05
    return speeds * np.where(wild, np.where(generator.random(speeds.shape) < 0.5, 3.0, 1 / 3.0), 1.0)


def noisy(generator: np.random.Generator, tasks: int) -> Floats:
    """Log-normal ones, each timed with an error; the truth is that of what was timed."""
    speeds = log_normal(generator, tasks)
    found: Floats = speeds * np.exp(generator.normal(0, NOISE, speeds.shape))
    return found


SCENES: tuple[Callable[[np.random.Generator, int], Floats], ...] = (
    log_normal,
    ties,
    ties_off_the_grid,
    outliers,
    noisy,
)


def median_interval(speeds: Floats) -> tuple[float, float]:
    """Of Speedup_med."""
    of = Nested(speeds, np.full(speeds.shape[:2], speeds.shape[2]))
    _, low, high = median_over_cells(of, never_outside=(0.0, math.inf))
    return low, high


def cv_interval(speeds: Floats, error: float = 0.0) -> tuple[float, float]:
    """Of Shape CV; ``error``: standard error of the logarithms."""
    of = Nested(speeds, np.full(speeds.shape[:2], speeds.shape[2]))
    noise = -math.expm1(-(error**2)) * (speeds**2).mean(axis=2) / speeds.mean(axis=2) ** 2
    table = Speeds(tuple(map(str, range(len(speeds)))), of, np.ones(speeds.shape[:2], dtype=bool), noise)
    _, low, high = cv_shape.with_interval(table)
    return low, high


def mean_interval(speeds: Floats) -> tuple[float, float]:
    """Of the geometric mean over tasks."""
    _, low, high = mean_over_tasks(np.log(speeds).mean(axis=(1, 2)).tolist())
    return math.exp(low), math.exp(high)


def truths(scene: Callable[[np.random.Generator, int], Floats]) -> dict[str, float]:
    """The truth of each score."""
    speeds = (log_normal if scene is noisy else scene)(np.random.default_rng(1), 1_000_000)
    median = 1.25 if scene is ties_off_the_grid else float(np.median(speeds))
    cv = speeds.std(axis=2, ddof=1) / speeds.mean(axis=2)
    return {
        "speedup_med": median,
        "cv_shape": float(cv.mean()),
        "cv_shape corrected": float(cv.mean()),
        "geometric_mean": math.exp(float(np.log(speeds).mean())),
    }


SCORES: dict[str, Callable[[Floats], tuple[float, float]]] = {
    "speedup_med": median_interval,
    "cv_shape": cv_interval,
    "cv_shape corrected": lambda speeds: cv_interval(speeds, NOISE),
    "geometric_mean": mean_interval,
}


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--rounds", type=int, default=4000, help="simulated suites for each row")
    made.add_argument("--tasks", default=",".join(map(str, TASKS)), help="sizes of suites")
    options = made.parse_args()
    report = Report("interval_coverage", devices.find("cpu").machine(), options.out)
    rows: list[tuple[str, ...]] = []
    began = time.monotonic()
    with until_ended():
        for scene in SCENES:
            true = truths(scene)
            for tasks in map(int, options.tasks.split(",")):
                generator = np.random.default_rng(tasks)
                suites = [scene(generator, tasks) for _ in range(options.rounds)]
                for name, function in SCORES.items():
                    if name == "cv_shape corrected" and scene is not noisy:
                        continue
                    ends = [function(suite) for suite in suites]
                    within = sum(low <= true[name] <= high for low, high in ends) / len(ends)
                    width = float(np.median([high / low for low, high in ends if low > 0]))
                    error = math.sqrt(within * (1 - within) / len(ends))
                    rows.append((scene.__name__, str(tasks), name, f"{within:.3f}", f"{error:.3f}", f"{width:.3f}"))
    report.table(("speedups", "tasks", "score", "within", "standard error", "high / low"), rows)
    report.say(f"{options.rounds} suites a row, {time.monotonic() - began:.0f} s")
    report.data = {"rows": rows}
    report.write()


if __name__ == "__main__":
    main()
