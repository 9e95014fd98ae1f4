"""Difficulty: proxies that can be counted by hand, and correlations that are SciPy's."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import pytest
from scipy import stats
from tests.scores.score_builders import rows as cells

from kerneleval import tasks
from kerneleval.analysis.difficulty import PROXIES, difficulty, proxies
from kerneleval.records import UsageError


def test_proxies_of_a_task_that_is_one_call_of_pytorch():
    values, note = proxies(tasks.find("matmul"))
    assert note == "" and set(values) == set(PROXIES)
    assert (values["arguments"], values["output_rank"], values["dims"]) == (2, 2, 3)
    assert (values["complexity"], values["backward"], values["reference_lines"]) == (3, 1, 1)
    assert values["flop_per_byte"] > 10
    assert values["reference_nodes"] == 8  # Expr, Call, Name f, Load, and two names with their Load


def test_work_a_byte_is_that_of_a_medium_shape():
    """Of an elementwise operator in fp32: operations an element over 8 bytes, whatever the shape."""
    task = tasks.find("gelu")
    per_element = task.flops({"M": 10, "N": 10}) / 100
    assert proxies(task)[0]["flop_per_byte"] == pytest.approx(per_element / 8)


def own_reference(x, scale):
    """A docstring counts for nothing."""
    y = x * scale  # nor does a comment

    if scale:
        y = y + 1
    return y


def test_lines_of_a_reference_of_ones_own():
    task = dataclasses.replace(tasks.find("gelu"), reference=own_reference)
    values, note = proxies(task)
    assert (values["reference_lines"], note) == (4, "")
    assert proxies(dataclasses.replace(task, reference=functools.partial(own_reference, scale=2)))[0] == values


def test_the_source_of_a_problem_file_counts():
    source = "import torch\n\ndef run(x):\n    return torch.exp(x)\n"
    assert proxies(dataclasses.replace(tasks.find("exp"), baseline_source=source))[0]["reference_lines"] == 3


def test_what_is_not_to_be_had_is_named():
    task = dataclasses.replace(tasks.find("gelu"), reference=eval("lambda x: x"))
    values, note = proxies(task)
    assert math.isnan(values["reference_lines"]) and note == "not to be had: reference_lines, reference_nodes"


@pytest.mark.parametrize("name", sorted(tasks.all_tasks())[::40])
def test_every_task_has_every_proxy(name):
    values, note = proxies(tasks.find(name))
    assert note == "" and all(math.isfinite(v) and v >= 0 for v in values.values())


# --------------------------------------------------------------------------------------------------------------------
# Correlations
# --------------------------------------------------------------------------------------------------------------------

NAMES = ("gelu", "exp", "sum", "layer_norm", "softmax", "matmul", "batched_matmul", "conv2d", "attention", "linear")


def observed(right):
    """``right[task]`` of ten samples are right."""
    found = []
    for name in NAMES:
        for sample in range(10):
            found += cells(name, [None if sample < right[name] else "wrong_output"], sample=sample)
    return found


LIBRARY = {name: tasks.find(name) for name in NAMES}
BY_COMPLEXITY = {name: 11 - 3 * LIBRARY[name].complexity for name in NAMES}


@pytest.mark.slow
def test_rank_correlation_is_that_of_scipy():
    right = dict(zip(NAMES, (9, 8, 8, 3, 5, 1, 2, 0, 4, 4), strict=True))
    found = difficulty(observed(right), LIBRARY)
    failed = [1 - right[name] / 10 for name in NAMES]
    told = []
    for one in found.correlations:
        values = [proxies(LIBRARY[name])[0][one.proxy] for name in NAMES]
        if np.ptp(values) == 0:
            assert math.isnan(one.rho.value) and f"{one.proxy} is" in one.rho.note and math.isnan(one.p_adjusted)
            continue
        expected = stats.spearmanr(values, failed)
        assert one.rho.value == pytest.approx(expected.statistic)
        assert one.rho.low <= one.rho.value <= one.rho.high and one.rho.n == len(NAMES)
        exact = stats.permutation_test(
            (stats.rankdata(values),),
            lambda ranks: np.corrcoef(ranks, stats.rankdata(failed))[0, 1],
            permutation_type="pairings",
            n_resamples=1000,
            rng=np.random.default_rng(1),
        )
        assert one.p == pytest.approx(exact.pvalue, abs=0.05)
        told.append(one)
    adjusted = stats.false_discovery_control([one.p for one in told])
    assert [one.p_adjusted for one in told] == pytest.approx(list(adjusted))


def test_what_makes_tasks_fail_is_told_from_what_does_not():
    found = {one.proxy: one for one in difficulty(observed(BY_COMPLEXITY), LIBRARY).correlations}
    complexity = found["complexity"]
    assert complexity.rho.value == pytest.approx(1.0) and complexity.p < 0.01 and complexity.p_adjusted < 0.05
    assert complexity.rho.low > 0.5


def test_the_hardest_task_is_first_and_generators_count_alike():
    data = observed(BY_COMPLEXITY)
    data += cells("gelu", ["wrong_output"], generator="other")  # one attempt against ten
    found = difficulty(data, LIBRARY)
    gelu = next(one for one in found.tasks if one.task == "gelu")
    assert gelu.right == pytest.approx((0.8 + 0) / 2) and gelu.attempts == 11
    assert [one.right for one in found.tasks] == sorted(one.right for one in found.tasks)


def test_an_attempt_is_right_when_both_directions_are():
    data = cells("gelu", [1.0]) + cells("gelu", ["wrong_output"], direction="backward")
    assert difficulty(data, LIBRARY).tasks[0].right == 0


@pytest.mark.parametrize(
    ("names", "right", "why"),
    [
        (NAMES[:4], BY_COMPLEXITY, "4 tasks with this proxy; a rank correlation needs 5"),
        (NAMES, dict.fromkeys(NAMES, 10), "every task is failed by 0 % of its attempts"),
    ],
)
def test_too_little_data_is_no_number(names, right, why):
    found = difficulty([r for r in observed(right) if r.task in names], LIBRARY)
    one = next(one for one in found.correlations if one.proxy == "complexity")
    assert math.isnan(one.rho.value) and math.isnan(one.p) and math.isnan(one.p_adjusted) and one.rho.note == why


def test_tasks_that_are_gone_are_named_and_left_out():
    found = difficulty(observed(BY_COMPLEXITY) + cells("gone", [None]), LIBRARY)
    assert found.note == "1 of 11 tasks are not at hand: gone"
    assert next(one for one in found.tasks if one.task == "gone").note == "not at hand"
    assert all(one.rho.n == 10 for one in found.correlations)


def test_bad_input():
    data = cells("gelu", [1.0])
    with pytest.raises(UsageError, match="comes twice"):
        difficulty(data + data, LIBRARY)
    assert difficulty([], {}).tasks == ()
