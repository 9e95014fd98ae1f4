from __future__ import annotations

import math

import numpy as np
import pytest

from kerneleval.analysis.attribution import attribute, of_group
from kerneleval.analysis.difficulty import PROXIES, difficulty, proxies
from kerneleval.analysis.logistic import logistic, ratio_test
from kerneleval.records import Case, Failed, Passed, Result
from kerneleval.tasks import find

WRONG = Failed(stage="correctness", reason="wrong_output")


def drawn(n: int, seed: int) -> tuple[dict[str, list[str]], list[bool]]:
    """Correctness that hangs on the category more than on the method."""
    generator = np.random.default_rng(seed)
    categories, methods, right = [], [], []
    for _ in range(n):
        c, m = int(generator.integers(0, 5)), int(generator.integers(0, 3))
        p = 1 / (1 + math.exp(-(-2.0 + 1.0 * c - 0.4 * m)))
        categories.append(f"c{c}")
        methods.append(f"m{m}")
        right.append(bool(generator.random() < p))
    return {"category": categories, "method": methods}, right


def dummies(factors: dict[str, list[str]]) -> np.ndarray:
    n = len(next(iter(factors.values())))
    columns = [np.ones(n)]
    for values in factors.values():
        levels = sorted(set(values))
        columns += [np.array([value == level for value in values], float) for level in levels[1:]]
    return np.column_stack(columns)


@pytest.mark.parametrize("names", [("category",), ("method",), ("category", "method")])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_as_statsmodels(names: tuple[str, ...], seed: int) -> None:
    statsmodels = pytest.importorskip("statsmodels.discrete.discrete_model")
    known, right = drawn(400, seed)
    factors = {name: known[name] for name in names}
    oracle = statsmodels.Logit(np.array(right, float), dummies(factors)).fit(disp=0)
    found = logistic(factors, right)
    assert found.log_likelihood == pytest.approx(oracle.llf, rel=1e-8)
    assert found.pseudo_r2 == pytest.approx(oracle.prsquared, rel=1e-7)
    assert found.against_null.p == pytest.approx(oracle.llr_pvalue, rel=1e-5, abs=1e-300)
    assert found.parameters == len(oracle.params) - 1
    assert found.n == 400


def test_standard_errors_are_those_of_statsmodels() -> None:
    statsmodels = pytest.importorskip("statsmodels.discrete.discrete_model")
    known, right = drawn(500, 4)
    found = logistic({"category": known["category"]}, right)
    reference = next(level.level for level in found.levels if level.note == "reference")
    order = [reference, *sorted(set(known["category"]) - {reference})]
    design = np.column_stack(
        [np.ones(500), *(np.array([c == level for c in known["category"]], float) for level in order[1:])]
    )
    oracle = statsmodels.Logit(np.array(right, float), design).fit(disp=0)
    by_level = {level.level: level for level in found.levels if level.factor == "category"}
    for level, coefficient, error in zip(order[1:], oracle.params[1:], oracle.bse[1:], strict=True):
        assert by_level[level].coefficient == pytest.approx(coefficient, rel=1e-5)
        assert by_level[level].error == pytest.approx(error, rel=1e-4)


def test_one_factor_has_the_likelihood_of_its_groups_shares() -> None:
    known, right = drawn(300, 5)
    expected = 0.0
    for category in set(known["category"]):
        of = [r for r, c in zip(right, known["category"], strict=True) if c == category]
        share = sum(of) / len(of)
        expected += len(of) * (share * math.log(share) + (1 - share) * math.log(1 - share))
    assert logistic({"category": known["category"]}, right).log_likelihood == pytest.approx(expected, rel=1e-9)


def test_nothing_is_found_where_there_is_nothing() -> None:
    """p-values of the likelihood-ratio test below 5 % in about 5 % of draws."""
    generator = np.random.default_rng(11)
    below = 0
    for _ in range(200):
        categories = [f"c{generator.integers(0, 3)}" for _ in range(150)]
        below += (
            logistic({"category": categories}, [bool(x) for x in generator.random(150) < 0.5]).against_null.p < 0.05
        )
    assert 1 <= below <= 24


def test_separated_levels_have_the_limit_of_their_likelihood() -> None:
    categories = ["a"] * 10 + ["b"] * 10
    found = logistic({"category": categories}, [True] * 10 + [True, False] * 5)
    assert found.log_likelihood == pytest.approx(10 * math.log(0.5), abs=1e-6)
    assert "separated" in found.note
    assert 0 < found.pseudo_r2 < 1
    perfect = logistic({"category": categories}, [True] * 10 + [False] * 10)
    assert perfect.pseudo_r2 == pytest.approx(1.0, abs=1e-6)
    half = ratio_test(perfect, logistic({"category": ["x"] * 20}, [True] * 10 + [False] * 10))
    assert half.statistic >= 0 or half.note


# --------------------------------------------------------------------------------------------------------------------
# Of results
# --------------------------------------------------------------------------------------------------------------------


def result(task: str, generator: str, right: bool, category: str = "gemm", group: str = "") -> Result:
    return Result(
        run="r",
        generator=generator,
        sample=0,
        candidate="c",
        task=task,
        category=category,
        level=1,
        device="cpu",
        machine="m",
        case=Case(task=task, direction="forward", dims=(("M", 1),), dtype="float32"),
        outcome=Passed() if right else WRONG,
        group=group,
    )


def test_category_tells_more_than_method_where_it_does() -> None:
    results = [
        result(f"{category}{i}", f"g{g}", (i + g) % 10 < easy, category=category)
        for category, easy in (("gemm", 2), ("reduction", 5), ("elementwise", 9))
        for i in range(20)
        for g in range(3)
    ]
    found = attribute(results)
    assert found.right.n == 180
    assert found.category.pseudo_r2 > 0.15 > found.method.pseudo_r2
    assert found.ratio > 3
    assert found.category_beyond_method.p < 1e-6 < found.method_beyond_category.p
    assert found.category.p_permuted < 0.01


def test_another_taxonomy_leaves_out_what_has_no_category_in_it() -> None:
    results = [result(f"t{i}", "g", i % 2 == 0, group="Loss" if i % 3 else "") for i in range(12)]
    found = attribute(results, key=of_group)
    assert (found.taxonomy, found.right.n) == ("group", 8)
    assert "4 pairs" in found.note


@pytest.mark.parametrize("right", [True, False])
def test_all_outcomes_alike_say_so(right: bool) -> None:
    found = attribute([result(f"t{i}", "g", right) for i in range(6)])
    assert math.isnan(found.category.pseudo_r2)
    assert found.category.note
    assert math.isnan(found.ratio)
    assert attribute([]).right.n == 0


# --------------------------------------------------------------------------------------------------------------------
# Difficulty
# --------------------------------------------------------------------------------------------------------------------

NAMES = ("gelu", "add", "matmul", "softmax", "layer_norm", "conv2d", "attention", "relu", "sum", "linear", "exp", "mul")


def test_proxies_of_built_in_tasks() -> None:
    of, _ = proxies(find("matmul"))
    assert set(of) == set(PROXIES)
    assert (of["arguments"], of["complexity"], of["backward"]) == (2.0, 3.0, 1.0)
    assert of["flop_per_byte"] > 10 * proxies(find("add"))[0]["flop_per_byte"]


def test_failure_that_follows_a_proxy_is_found() -> None:
    tasks = {name: find(name) for name in NAMES}
    results = [
        result(name, f"g{g}", g >= task.complexity) for name, task in tasks.items() for g in range(4)
    ]  # the more complex, the more of four generators fail
    found = difficulty(results, tasks)
    by_name = {c.proxy: c for c in found.correlations}
    assert by_name["complexity"].rho.value == pytest.approx(1.0)
    assert by_name["complexity"].p_adjusted < 0.01
    assert found.tasks[0].right <= found.tasks[-1].right
    assert found.tasks[0].attempts == 4


def test_tasks_that_are_not_at_hand_are_named() -> None:
    found = difficulty([result("mine", "g", True), result("gelu", "g", False)], {"gelu": find("gelu")})
    assert "1 of 2 tasks are not at hand: mine" in found.note
    assert all(math.isnan(c.rho.value) for c in found.correlations)
