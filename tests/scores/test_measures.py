"""Measures of attempts beyond their outcomes, and what the best of k samples is worth."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from score_builders import rows

from kerneleval.scores import Setting, find
from kerneleval.scores.fast_p import expected_best


def test_expected_best_is_the_mean_over_all_draws():
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    for k in range(1, 6):
        every = [max(drawn) for drawn in itertools.combinations(values, k)]
        assert expected_best(values, k) == pytest.approx(statistics.fmean(every))
    for k in (0, 6):
        with pytest.raises(ValueError, match="can be drawn"):
            expected_best(values, k)


def test_best_of_k_by_hand():
    # task a: 4x, wrong, 0.5x; task b: wrong, 2x, untimed; task c: all wrong
    results = [
        *rows("a", [4.0], sample=0),
        *rows("a", ["wrong_output"], sample=1),
        *rows("a", [0.5], sample=2),
        *rows("b", ["crash"], sample=0),
        *rows("b", [2.0], sample=1),
        *rows("b", [None], sample=2),
        *(r for s in range(3) for r in rows("c", ["crash"], sample=s)),
    ]
    found = find("best_of_k")(results, Setting(ks=(1, 2, 3, 4)))
    logs = {1: (math.log(4) / 3, math.log(2) / 3, 0), 2: (math.log(4) * 2 / 3, math.log(2) * 2 / 3, 0)}
    logs[3] = (math.log(4), math.log(2), 0)
    for k, of in logs.items():
        assert found[str(k)].value == pytest.approx(math.exp(statistics.fmean(of)))
        assert found[str(k)].n == 3
        assert found[str(k)].low >= 1
    assert math.isnan(found["4"].value)
    assert "fewer than 4 samples" in found["4"].note


def test_medians_are_over_attempts_of_the_primary_device():
    results = [r for i in range(6) for r in rows(f"t{i}", [1.0, 1.0])]
    results += rows("t0", [1.0], device="cuda")
    key = lambda i: ("g", f"t{i}", 0)  # noqa: E731
    measured = {
        "maintainability": {key(i): 50.0 + i for i in range(5)} | {key(5): math.nan},
        "complexity_max": {key(i): float(i) for i in range(6)},
        "K": {key(i): 1.0 + (i > 3) for i in range(6)},
    }
    setting = Setting(measured=measured)
    index = find("maintainability")(results, setting)
    assert (index.value, index.n, index.note) == (52.0, 5, "on cpu; 1 attempts not known")
    assert 50 <= index.low <= 52 <= index.high <= 54
    of = find("complexity")(results, setting)
    assert (of["max"].value, of["max"].n) == (2.5, 6)
    assert math.isnan(of["sum"].value)
    rubric = find("rubric")(results, setting)
    assert rubric["K"].value == 1.0
    assert (rubric["K/1"].value, rubric["K/2"].value, rubric["K/3"].value) == (
        pytest.approx(4 / 6),
        pytest.approx(2 / 6),
        0,
    )
    assert math.isnan(rubric["A"].value)
    assert "A/1" not in rubric


def test_why_nothing_was_measured_is_said():
    setting = Setting(unmeasured={"maintainability": "Radon is not installed"})
    found = find("maintainability")(rows("a", [1.0]), setting)
    assert math.isnan(found.value)
    assert found.note == "Radon is not installed"
    assert "not known for any attempt" in find("maintainability")(rows("a", [1.0]), Setting()).note
