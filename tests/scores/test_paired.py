"""Two runs cell by cell: what got better, what got worse, and what is undecided."""

from __future__ import annotations

import math

import numpy as np
import pytest
from score_builders import rows, timing

from kerneleval.records import UsageError
from kerneleval.scores.common.paired import compare


def test_every_change_by_hand():
    before = rows("a", [1.0, 1.0, 1.0, "wrong_output", 1.0, "wrong_output", None, 1.0])
    after = rows("a", [2.0, 0.5, 1.005, 1.0, "wrong_output", "crash", 1.0, None], run="s", generator="h")
    found = compare(before, after)
    assert [c.change for c in found.cells] == [
        *("faster", "slower", "not_told", "rescued", "broken", "both_wrong", "untimed", "untimed")
    ]
    assert found.counts() == {
        "rescued": 1, "broken": 1, "both_wrong": 1, "faster": 1, "slower": 1, "not_told": 1, "other_rule": 0,
        "untimed": 2,
    }  # fmt: skip
    first = found.cells[0]
    assert first.ratio == pytest.approx(2.0)
    half = math.hypot(*[math.log(1.01 / 0.99) / 2] * 2)
    assert (first.low, first.high) == (pytest.approx(2 * math.exp(-half)), pytest.approx(2 * math.exp(half)))
    (pair,) = found.pairs
    assert (pair.before, pair.after, pair.faster, pair.slower, pair.timed) == (False, False, 1, 1, 3)
    assert pair.ratio == pytest.approx((2.0 * 0.5 * 1.005) ** (1 / 3))
    assert found.speed.value == pytest.approx((2.0 * 0.5 * 1.005) ** (1 / 3))
    assert found.speed.n == 3


def test_correctness_over_pairs():
    before = [r for i in range(10) for r in rows(f"t{i}", ["wrong_output" if i < 8 else 1.0])]
    after = [r for i in range(10) for r in rows(f"t{i}", ["wrong_output" if i == 9 else 1.0])]
    found = compare(before, after)
    assert found.correct_before.value == pytest.approx(0.2)
    assert found.correct_after.value == pytest.approx(0.9)
    # 8 rescued, 1 broken: twice the tail of a fair coin, 2 (1 + 9) / 2^9
    assert found.p_correct == pytest.approx(2 * 10 / 512)
    assert compare(before, before).p_correct == 1.0


def test_declined_cells_do_not_make_a_pair_wrong():
    before = rows("a", [1.0, "unsupported", 1.0])
    found = compare(before, rows("a", [1.0, 1.0, 1.0]))
    assert found.pairs[0].before
    assert found.cells[1].change == "rescued"
    assert not compare(rows("a", ["unsupported"] * 2), rows("a", [1.0] * 2)).pairs[0].before


@pytest.mark.slow
def test_no_difference_is_called_one_more_often_than_it_should_be():
    """1,000 comparisons of 40 cells that differ by noise alone: any at all called different in 5 % at most."""
    generator = np.random.default_rng(1)
    called = 0
    error = 0.01
    for _ in range(1000):
        sides = []
        for _side in range(2):
            drawn = np.exp(generator.normal(0, error, 40))
            half = math.exp(1.96 * error) - 1
            sides.append([r for i, x in enumerate(drawn) for r in rows(f"t{i}", [timing(x, "equal", half)])])
        called += any(c.change in ("faster", "slower") for c in compare(*sides).cells)
    assert called / 1000 <= 0.05


def test_what_differs_is_found_among_what_does_not():
    generator = np.random.default_rng(2)
    truth = np.where(np.arange(60) < 20, 1.2, 1.0)
    sides = []
    for factor in (np.ones(60), truth):
        drawn = factor * np.exp(generator.normal(0, 0.01, 60))
        sides.append([r for i, x in enumerate(drawn) for r in rows(f"t{i}", [timing(x, "equal", 0.02)])])
    found = compare(*sides)
    assert [c.change for c in found.cells[:20]] == ["faster"] * 20
    assert sum(c.change != "not_told" for c in found.cells[20:]) <= 2
    assert found.speed.low < 1.2 ** (1 / 3) < found.speed.high


def test_cells_of_one_side_alone_are_counted():
    before, after = rows("a", [1.0] * 4) + rows("b", [1.0]), rows("a", [1.0] * 3) + rows("c", [1.0] * 2)
    found = compare(before, after)
    assert (len(found.cells), found.only_before, found.only_after) == (3, 2, 2)
    with pytest.raises(UsageError, match="no cell in common"):
        compare(rows("a", [1.0]), rows("b", [1.0]))
    with pytest.raises(UsageError, match="one generator"):
        compare(rows("a", [1.0]) + rows("a", [1.0], generator="h"), after)


def test_timings_without_an_interval_tell_nothing():
    wild = timing(3.0)
    found = compare(rows("a", [1.0]), rows("a", [type(wild)(**{**vars(wild), "low": 0.0, "high": math.inf})]))
    assert found.cells[0].change == "not_told"
