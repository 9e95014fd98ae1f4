from __future__ import annotations

import dataclasses
import math

import pytest
from score_builders import rows

from kerneleval.records import Limits, Samples
from kerneleval.scores import Setting, find
from kerneleval.scores.limit import roofline

LIMITS = Limits(bandwidth_bytes_per_s=1e9, flop_per_s=(("float32", 1e10),))
SETTING = Setting(limits={"machine of cpu": LIMITS}, work=lambda case: (100.0 * case.dims_map["M"], 50.0))


def timed(row, candidate_ns, baseline_ns):
    samples = Samples(candidate_ns=(candidate_ns, 2 * candidate_ns, candidate_ns / 2), baseline_ns=(baseline_ns,))
    timing = dataclasses.replace(row.outcome.timing, samples=samples)
    return dataclasses.replace(row, outcome=dataclasses.replace(row.outcome, timing=timing))


def test_the_longer_of_operations_and_bytes_is_the_limit():
    """dims M = 3, 4, 5, 6 ... : 30 to 60 ns of operations, 50 ns of bytes."""
    cells = [timed(r, 200.0, 400.0) for r in rows("t", [2.0, 2.0, 2.0, 2.0])]
    points = list(roofline(cells, SETTING))
    assert [p.least_s for p in points] == pytest.approx([50e-9, 50e-9, 50e-9, 60e-9])
    assert [p.fraction for p in points] == pytest.approx([0.25, 0.25, 0.25, 0.3])
    found = find("fraction_of_limit")(cells, SETTING)
    assert (found.value, found.n) == (pytest.approx(0.25), 4)
    assert "too narrow" in found.note


def test_types_that_were_not_measured_have_the_limit_of_their_bytes():
    (cell,) = rows("t", [2.0], dtype="int8")
    assert next(roofline([timed(cell, 100.0, 200.0)], SETTING)).least_s == pytest.approx(50e-9)


def test_sol_score_is_a_half_at_the_baseline_and_one_at_the_limit():
    at_baseline, at_limit, below = rows("a", [1.0]), rows("b", [1.0]), rows("c", [1.0])
    cells = [
        *(timed(r, 450.0, 450.0) for r in at_baseline),
        *(timed(r, 50.0, 450.0) for r in at_limit),
        *(timed(r, 25.0, 450.0) for r in below),
    ]
    for task, expected in (("a", 0.5), ("b", 1.0), ("c", 1.0)):
        assert find("sol_score")([c for c in cells if c.task == task], SETTING).value == pytest.approx(expected)
    found = find("sol_score")(cells, SETTING)
    assert found.value == pytest.approx(2.5 / 3)
    assert found.n == 3
    assert found.low < found.value < found.high <= 1.0


def test_wrong_cells_have_sol_score_0_and_declined_ones_none():
    right = [timed(r, 450.0, 450.0) for r in rows("a", [1.0])]
    assert find("sol_score")([*right, *rows("b", ["wrong_output"])], SETTING).value == pytest.approx(0.25)
    assert find("sol_score")([*right, *rows("b", ["unsupported"])], SETTING).value == pytest.approx(0.5)


def test_a_baseline_at_the_limit_has_no_scale():
    cells = [timed(r, 40.0, 50.0) for r in rows("a", [1.0])]
    found = find("sol_score")(cells, SETTING)
    assert math.isnan(found.value)
    assert "at the limit" in found.note


def test_gradients_and_unknown_tasks_and_machines_are_left_out():
    backward = [timed(r, 100.0, 200.0) for r in rows("t", [2.0], direction="backward")]
    assert not list(roofline(backward, SETTING))
    forward = [timed(r, 100.0, 200.0) for r in rows("t", [2.0])]
    assert not list(roofline(forward, dataclasses.replace(SETTING, work=lambda case: None)))
    assert not list(roofline(forward, dataclasses.replace(SETTING, limits={})))
    found = find("fraction_of_limit")(forward, Setting())
    assert math.isnan(found.value)
    assert "not measured" in found.note
