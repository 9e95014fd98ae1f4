"""Attribution: the numbers of statsmodels, the limits of separated data, and no number where there is too little."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import special
from tests.scores.score_builders import rows as cells

from kerneleval.analysis.attribution import attribute, logistic, null, of_group, ratio_test, rows
from kerneleval.records import UsageError
from kerneleval.scores import Setting

CATEGORIES, METHODS = ("gemm", "fused", "reduction", "elementwise"), ("a", "b", "c")


def sample(seed: int = 3, n: int = 500):
    """Levels and outcomes where category counts more than method."""
    rng = np.random.default_rng(seed)
    c, m = rng.integers(0, 4, n), rng.integers(0, 3, n)
    right = rng.random(n) < special.expit(1.2 * c - 1.6 + 0.4 * m)
    return {"category": [CATEGORIES[i] for i in c], "method": [METHODS[i] for i in m]}, [bool(r) for r in right]


def statsmodels_fit(factors, right, model):
    """The same model by statsmodels' Logit, with the reference levels that ours chose."""
    api = pytest.importorskip("statsmodels.api", reason="statsmodels, the oracle, is not installed")
    levels = [one for one in model.levels if one.note != "reference"]
    columns = [
        np.ones(len(right)) if one.factor == "intercept" else np.array([v == one.level for v in factors[one.factor]])
        for one in levels
    ]
    return levels, api.Logit(np.array(right, float), np.column_stack(columns).astype(float)).fit(disp=0)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [("category",), ("method",), ("category", "method")])
def test_agrees_with_statsmodels(chosen):
    everything, right = sample()
    factors = {name: everything[name] for name in chosen}
    model = logistic(factors, right)
    levels, fit = statsmodels_fit(factors, right, model)
    assert model.log_likelihood == pytest.approx(fit.llf, rel=1e-9)
    assert model.pseudo_r2 == pytest.approx(fit.prsquared, rel=1e-8)
    assert model.adjusted_r2 == pytest.approx(1 - (fit.llf - fit.df_model) / fit.llnull, rel=1e-8)
    assert model.against_null.statistic == pytest.approx(fit.llr, rel=1e-8)
    assert model.against_null.p == pytest.approx(fit.llr_pvalue, rel=1e-6)
    assert (model.parameters, model.n, model.note) == (fit.df_model, 500, "")
    assert [one.coefficient for one in levels] == pytest.approx(list(fit.params), abs=1e-6)
    assert [one.error for one in levels] == pytest.approx(list(fit.bse), rel=1e-5)


def test_a_cell_of_one_outcome_need_not_separate():
    """One combination is all right, and the model has a greatest likelihood all the same: that of statsmodels."""
    cell = {("x", "a"): (3, 3), ("x", "b"): (4, 9), ("y", "a"): (5, 9), ("y", "b"): (3, 9)}
    everything = [(c, m, i < k) for (c, m), (k, n) in cell.items() for i in range(n)]
    factors = {"category": [c for c, _, _ in everything], "method": [m for _, m, _ in everything]}
    right = [r for _, _, r in everything]
    model = logistic(factors, right)
    levels, fit = statsmodels_fit(factors, right, model)
    assert (model.note, model.log_likelihood) == ("", pytest.approx(fit.llf, rel=1e-9))
    assert [one.error for one in levels] == pytest.approx(list(fit.bse), rel=1e-5)


def test_one_factor_is_the_shares_of_its_groups():
    """The saturated model in closed form, written out."""
    factors, right = sample()
    expected = 0.0
    for level in CATEGORIES:
        here = [r for c, r in zip(factors["category"], right, strict=True) if c == level]
        p = sum(here) / len(here)
        expected += sum(math.log(p if r else 1 - p) for r in here)
    assert logistic({"category": factors["category"]}, right).log_likelihood == pytest.approx(expected, rel=1e-12)


def test_what_one_factor_adds_to_the_other():
    factors, right = sample()
    one, both = logistic({"method": factors["method"]}, right), logistic(factors, right)
    found = ratio_test(both, one)
    assert (found.df, found.note) == (3, "")
    assert found.statistic == pytest.approx(2 * (both.log_likelihood - one.log_likelihood))
    assert found.p < 1e-6


# --------------------------------------------------------------------------------------------------------------------
# Separation
# --------------------------------------------------------------------------------------------------------------------


def test_a_level_that_is_all_right_has_the_limit_of_its_likelihood():
    factors, right = sample()
    right = [r or c == "gemm" for c, r in zip(factors["category"], right, strict=True)]
    model = logistic(factors, right)
    rest = [i for i, c in enumerate(factors["category"]) if c != "gemm"]
    alone = logistic({k: [v[i] for i in rest] for k, v in factors.items()}, [right[i] for i in rest])
    assert model.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-9)
    assert model.pseudo_r2 == pytest.approx(1 - alone.log_likelihood / null(right))
    assert model.parameters == 5  # the separated level is one all the same
    assert model.note.startswith("separated: ") and "gemm x a all right" in model.note
    apart = next(one for one in model.levels if one.level == "gemm")
    assert math.isnan(apart.coefficient) and math.isnan(apart.error) and apart.note == "all right"
    others = [one for one in model.levels if one.level != "gemm" and one.note != "reference"]
    assert all(math.isfinite(one.coefficient) and one.error > 0 for one in others)


def test_the_limit_is_what_an_optimiser_creeps_towards():
    """Quasi-complete separation of which no whole level is all right or all wrong: cells of both factors together."""
    cell = {("x", "a"): (9, 9), ("x", "b"): (3, 6), ("y", "a"): (4, 8), ("y", "b"): (0, 7)}
    factors = {"category": [], "method": []}
    right = []
    for (c, m), (k, n) in cell.items():
        factors["category"] += [c] * n
        factors["method"] += [m] * n
        right += [True] * k + [False] * (n - k)
    model = logistic(factors, right)

    def likelihood(b):
        total = 0.0
        for (c, m), (k, n) in cell.items():
            eta = b[0] + b[1] * (c == "y") + b[2] * (m == "b")
            total += k * eta - n * np.logaddexp(0, eta)
        return total

    grid = [np.linspace(0, 40, 161), np.linspace(-40, 0, 161), np.linspace(-40, 0, 161)]
    best = max(likelihood((g, c, -g)) for g, c in itertools.product(*grid[:2]))  # x b must be even, y a too
    assert model.log_likelihood >= best - 1e-9
    assert model.log_likelihood == pytest.approx(best, abs=1e-4)


def test_everything_separated_explains_everything():
    model = logistic({"category": ["x"] * 4 + ["y"] * 4}, [True] * 4 + [False] * 4)
    assert (model.pseudo_r2, model.log_likelihood) == (1.0, 0.0)
    assert model.against_null.df == 1 and model.against_null.p < 0.01
    assert all(math.isnan(one.error) for one in model.levels)


def test_factors_that_cannot_be_told_apart():
    """Every method tried a category of its own."""
    factors = {"category": ["x", "x", "x", "y", "y", "y"], "method": ["a", "a", "a", "b", "b", "b"]}
    right = [True, False, True, False, False, True]
    one, both = logistic({"category": factors["category"]}, right), logistic(factors, right)
    assert both.parameters == 1
    assert both.log_likelihood == pytest.approx(one.log_likelihood)
    assert any(one.note == "not separable from the other factor" for one in both.levels)
    found = ratio_test(both, one)
    assert math.isnan(found.p) and "determines" in found.note


# --------------------------------------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------------------------------------


def run(right_of, tasks=12, generators=METHODS):
    """One forward pair of a cell for each generator and task; categories in turn."""
    found = []
    for generator in generators:
        for i in range(tasks):
            category = CATEGORIES[i % 4]
            outcome = 1.0 if right_of(generator, i, category) else "wrong_output"
            found += cells(f"task{i:02d}", [outcome], category=category, generator=generator)
    return found


def test_a_run_in_which_the_category_decides():
    found = attribute(run(lambda g, i, c: c in ("gemm", "fused") or (c == "reduction" and i % 3 == 0), tasks=24))
    assert found.taxonomy == "category"
    assert (found.right.n, found.right.value) == (72, pytest.approx(42 / 72))
    assert found.category.pseudo_r2 > 0.7 and found.method.pseudo_r2 == 0 and found.ratio == math.inf
    assert found.category.p_permuted < 0.002 and found.method.p_permuted == 1.0
    assert found.category_beyond_method.p < 1e-6
    assert found.method_beyond_category.statistic == pytest.approx(0, abs=1e-9)


def test_permutation_knows_that_rows_of_a_task_are_alike():
    """Four tasks, two categories, twenty generators that do the same: rows are many, tasks are few."""
    names = [f"g{i}" for i in range(20)]
    found = attribute(run(lambda g, i, c: c == "gemm" or (i == 1), tasks=4, generators=names))
    assert found.category.against_null.p < 1e-10
    assert found.category.p_permuted > 0.9  # every category is one task: any order of them fits as well


def test_methods_are_rearranged_within_tasks_alone():
    """One method tried easy tasks, the other hard ones: nothing is known of methods."""
    data = [r for i in range(10) for r in cells(f"easy{i}", [1.0], generator="a")]
    data += [r for i in range(10) for r in cells(f"hard{i}", ["wrong_output"], generator="b")]
    found = attribute(data).method
    assert (found.pseudo_r2, found.p_permuted) == (1.0, 1.0) and found.against_null.p < 1e-5


def test_samples_are_attempts_of_their_own_and_directions_are_not():
    data = []
    for sample in range(6):
        for direction in ("forward", "backward"):
            data += cells("t", [1.0], generator="a", sample=sample, direction=direction)
            data += cells("t", ["wrong_output"], generator="b", sample=sample, direction=direction)
    p = attribute(data).method.p_permuted
    assert 0 < p < 0.01  # 2 of the 924 ways to share out twelve attempts fit as well; of 24 pairs hardly any would
    assert p > 1 / 2001


def test_methods_alone():
    found = attribute(run(lambda g, i, c: g == "a" or (g == "b" and i % 2 == 0)))
    assert found.method.pseudo_r2 > 0.6 and found.method.p_permuted < 0.01
    assert found.ratio < 0.3
    assert "a all right" in found.method.note and "c all wrong" in found.method.note


def test_what_was_not_tried_is_wrong_and_both_directions_are_pairs():
    data = cells("t", ["generate/missing"] * 3) + cells("t", [1.0], direction="backward")
    assert [(row.right, row.category) for row in rows(data)] == [(False, "gemm"), (True, "gemm")]


def test_another_taxonomy_and_a_function_of_ones_own():
    data = [
        dataclasses.replace(r, group={"gemm": "MatrixMultiply", "fused": "Fusion"}.get(r.category, ""))
        for r in run(lambda g, i, c: c == "gemm" or i % 3 == 0)
    ]
    found = attribute(data, key=of_group)
    assert found.taxonomy == "group" and found.note == "18 pairs of tasks without a group left out"
    assert {one.level for one in found.category.levels if one.factor == "category"} == {"MatrixMultiply", "Fusion"}

    def first_letter(result):
        return result.category[0]

    assert attribute(data, key=first_letter).taxonomy == "first_letter"


@pytest.mark.parametrize(
    ("right_of", "generators", "why"),
    [
        (lambda g, i, c: True, METHODS, "every pair is right"),
        (lambda g, i, c: False, METHODS, "every pair is wrong"),
        (lambda g, i, c: i % 3 == 0, ("a",), "only one method: a"),
    ],
)
def test_too_little_data_is_no_number(right_of, generators, why):
    found = attribute(run(right_of, generators=generators))
    assert found.method.note == why and found.both.note == why
    assert math.isnan(found.method.pseudo_r2) and math.isnan(found.method.against_null.p) and math.isnan(found.ratio)
    assert found.category_beyond_method.note == why and math.isnan(found.category_beyond_method.p)


def test_no_results():
    found = attribute([])
    assert math.isnan(found.right.value) and found.category.note == "no pair"


def test_bad_input():
    with pytest.raises(UsageError, match="'x' has 1 levels for 2 rows"):
        logistic({"x": ["a"]}, [True, False])
    data = cells("t", [1.0])
    with pytest.raises(UsageError, match="comes twice"):
        attribute(data + data)
    with pytest.raises(UsageError, match="primary device 'tpu'"):
        attribute(data, Setting(primary="tpu"))


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_never_fail_and_never_lose_likelihood(seed):
    """Sparse tables, most of them separated somewhere: more parameters never fit worse, and shares bound R2."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    factors = {
        "category": [f"c{i}" for i in rng.integers(0, 6, n)],
        "method": [f"m{i}" for i in rng.integers(0, 5, n)],
    }
    right = [bool(r) for r in rng.random(n) < 0.4]
    right[:2] = [True, False]
    factors["category"][:2], factors["method"][:2] = ["c0", "c1"], ["m0", "m1"]
    both = logistic(factors, right)
    for name, levels in factors.items():
        one = logistic({name: levels}, right)
        assert null(right) - 1e-9 <= one.log_likelihood <= both.log_likelihood + 1e-7
        assert 0 <= one.pseudo_r2 <= both.pseudo_r2 + 1e-9
    assert both.log_likelihood <= 1e-12 and both.pseudo_r2 <= 1
