"""Two without a cell in common, task by task, by hand."""

from __future__ import annotations

import math

import pytest
from score_builders import rows

from kerneleval.records import UsageError
from kerneleval.scores.common.by_task import compare_tasks
from kerneleval.scores.common.paired import in_common


def test_every_figure_by_hand():
    before = [
        *rows("a", [2.0, 8.0]),
        *rows("a", ["wrong_output", 1.0], sample=1),
        *rows("b", [1.0]),
        *rows("only", [1.0]),
    ]
    after = [
        *rows("a", [8.0, 8.0], device="cuda"),
        *rows("b", ["crash"], device="cuda"),
        *rows("b", [1.0], device="cuda", direction="backward"),
    ]
    assert in_common(before, after) == 0
    found = compare_tasks(before, after)
    a, b = found.pairs
    assert (a.task, a.before.samples, a.before.right, a.before.cells) == ("a", 2, 1, 2)
    assert a.before.speedup == pytest.approx(4.0)
    assert a.ratio == pytest.approx(2.0)
    assert (b.after.samples, b.after.right, b.after.cells) == (1, 0, 0)
    assert math.isnan(b.ratio)
    assert (found.only_before, found.only_after) == (1, 1)
    assert found.correct_before.value == pytest.approx(0.75)
    assert found.correct_after.value == pytest.approx(0.5)
    assert found.speed.value == pytest.approx(2.0)
    assert found.speed.n == 1
    assert math.isnan(found.speed.low)
    # the differences are +0.5 and -1: every one of the four sums is at least as far from 0 as -0.5
    assert found.p_correct == pytest.approx(1.0)


def test_rightness_of_single_samples_is_tested_as_mcnemar_does():
    before = [r for i in range(10) for r in rows(f"t{i}", ["wrong_output" if i < 8 else 1.0])]
    after = [r for i in range(10) for r in rows(f"t{i}", ["wrong_output" if i == 9 else 1.0], device="cuda")]
    assert compare_tasks(before, after).p_correct == pytest.approx(2 * 10 / 512)
    assert compare_tasks(before, before).p_correct == 1.0


def test_nothing_in_common_says_so():
    with pytest.raises(UsageError, match=r"no task and direction in common: the first has 'relu'.*near.*relu6|relu6"):
        compare_tasks(rows("relu", [1.0]), rows("relu6", [1.0]))


def test_tasks_of_several_names_are_one() -> None:
    same = {"KernelBench/level1/19_ReLU": "relu", "relu": "relu", "KernelBench-X/Activation/relu": "relu"}
    before = [*rows("KernelBench/level1/19_ReLU", [2.0]), *rows("KernelBench-X/Activation/relu", ["wrong_output"])]
    found = compare_tasks(before, rows("relu", [1.0], device="cuda"), same)
    (pair,) = found.pairs
    assert (pair.task, pair.before.samples, pair.before.right, pair.ratio) == ("relu", 2, 1, pytest.approx(0.5))
