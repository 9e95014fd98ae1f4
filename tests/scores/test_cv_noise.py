"""CV_shape is of the kernel and not of the machine: simulated verdicts with a known CV over shapes and known noise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from score_builders import rows, timing

from kerneleval.judge.timing.statistics import Noise, timings_of
from kerneleval.records import Samples
from kerneleval.scores import Setting, find
from kerneleval.scores.common.cells import error_of
from kerneleval.scores.common.intervals import Z

SHAPES = 8


def measured(true, noise, generator):
    """The timing of a cell whose logarithm is off by a normal error of standard deviation ``noise``."""
    speed = true * math.exp(generator.normal(0, noise))
    half = Z * noise
    return dataclasses.replace(timing(speed), low=speed * math.exp(-half), high=speed * math.exp(half))


def suite(generator, cv, noise, tasks=20, shapes=SHAPES):
    """Results of a suite, and the true mean CV of its tasks: speedups log-normal over shapes."""
    spread = math.sqrt(math.log1p(cv**2))
    true = 1.2 * np.exp(generator.normal(0, 0.3, (tasks, 1)) + generator.normal(0, spread, (tasks, shapes)))
    results = [r for t, of in enumerate(true) for r in rows(f"t{t}", [measured(s, noise, generator) for s in of])]
    return results, float((true.std(axis=1, ddof=1) / true.mean(axis=1)).mean())


def as_measured(results):
    """CV_shape of the same speedups, taken for exact."""
    exact = [
        dataclasses.replace(r, outcome=rows("t", [r.outcome.timing.speedup], half=1e-4)[0].outcome) for r in results
    ]
    return find("cv_shape")(exact, Setting()).value


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(("cv", "noise"), [(0.2, 0.1), (0.2, 0.12), (0.5, 0.1), (0.03, 0.03)])
def test_the_corrected_cv_is_unbiased_and_the_raw_one_is_not(cv, noise):
    generator = np.random.default_rng(7)
    suites = [suite(generator, cv, noise) for _ in range(120)]
    found = [find("cv_shape")(results, Setting()) for results, _ in suites]
    truth = np.array([true for _, true in suites])
    error = np.array([of.value for of in found]) - truth
    assert abs(error.mean()) < max(0.02 * truth.mean(), 3 * error.std() / math.sqrt(len(error)))
    raw = np.mean([as_measured(results) for results, _ in suites])
    assert raw - truth.mean() > 4 * max(abs(error.mean()), 0.004 * truth.mean())
    expected = truth.mean()  # of ever so many tasks
    assert np.mean([of.low <= expected <= of.high for of in found]) > 0.88


def test_a_noisy_machine_gives_a_refusal_and_not_a_number():
    results, _ = suite(np.random.default_rng(1), 0.12, 0.6)
    found = find("cv_shape")(results, Setting())
    assert math.isnan(found.value) and math.isnan(found.low) and found.n == 20
    assert "too noisy to tell" in found.note and "timings alone scatter by 0.6" in found.note
    assert as_measured(results) > 0.5
    whole = find("composite")(results, Setting())
    assert math.isnan(whole.value) and "no CV_shape: timings alone scatter" in whole.note
    assert math.isnan(find("worth")(results, Setting())["c_op"].value)
    by_shape = find("cv_by_shape")(results, Setting())
    assert sum(math.isnan(of.value) for of in by_shape.values()) >= 7


def test_a_few_noisy_shapes_alone_are_refused_too():
    generator = np.random.default_rng(2)
    given = [find("cv_shape")(suite(generator, 0.0, 0.3, 1, 3)[0], Setting()).value for _ in range(300)]
    assert np.mean(np.isnan(given)) > 0.92


def test_an_even_kernel_on_a_quiet_machine_has_a_cv_of_about_zero():
    found = find("cv_shape")(suite(np.random.default_rng(3), 0.0, 0.02)[0], Setting())
    assert 0 <= found.low <= found.value < 0.01
    assert found.note == "0.019 with the scatter of the timings"


def test_cells_without_an_interval_say_nothing_of_shapes():
    published = dataclasses.replace(timing(1.5), low=0.0, high=math.inf)
    found = find("cv_shape")(rows("a", [published, dataclasses.replace(published, speedup=3.0), published]), Setting())
    assert math.isnan(found.value) and "too noisy" in found.note


def test_the_parts_by_shape_and_direction_are_corrected_alike():
    results, _ = suite(np.random.default_rng(4), 0.3, 0.1, tasks=12)
    back = [dataclasses.replace(r, case=dataclasses.replace(r.case, direction="backward")) for r in results[:48]]
    by_shape = find("cv_by_shape")(results, Setting())
    assert math.sqrt(np.mean([of.value**2 for of in by_shape.values()])) == pytest.approx(0.3, rel=0.2)
    table = find("cv_by_direction")(results + back, Setting())
    assert list(table) == ["forward", "backward"]
    assert table["forward"] == find("cv_shape")(results, Setting())
    assert table["backward"].n == 6


@pytest.mark.parametrize(("sessions", "blocks"), [(1, 4), (2, 4), (2, 16), (3, 5)])
def test_the_standard_error_is_the_one_that_made_the_interval(sessions, blocks):
    """Student's quantile is no part of it. A median of few blocks is better than the formula for many says."""
    generator, spread = np.random.default_rng(5), 0.1
    errors, squares = [], []
    for _ in range(400):
        logs = generator.normal(0, spread * math.sqrt(2), sessions * blocks * 2)
        made = Samples(
            candidate_ns=(1e6,) * len(logs),
            baseline_ns=tuple(1e6 * np.exp(logs)),
            calls=1,
            sessions=tuple(np.repeat(np.arange(sessions), blocks * 2).tolist()),
        )
        (cell,) = timings_of([(made, Noise(spread=1e-6, between=0.0))])
        errors.append(math.log(cell.speedup))
        squares.append(error_of(cell) ** 2)
    assert 0.8 < np.mean(squares) / np.var(errors) < 2.0
    assert math.log(cell.high / cell.low) / (2 * Z) > 1.02 * error_of(cell)
