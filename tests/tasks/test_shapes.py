"""Shape categories, budgets and plans."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import qmc

from kerneleval.records import ROW_DISTRIBUTIONS, SHAPE_CATEGORIES, Arg, Case, Dim, Protocol, Task, UsageError, digest
from kerneleval.tasks import find, sampling, shapes
from kerneleval.tasks.define import data, operator

from .conftest import NAMES, SMALL, check_dims

WIDE = shapes.Budget(memory_bytes=1 << 80, flops=1 << 90)
EVERY = pytest.mark.parametrize("name", NAMES)


@functools.cache
def plan_of(name: str, tier: Literal["quick", "standard"] = "standard") -> tuple[Case, ...]:
    return shapes.plan(find(name), Protocol(tier=tier), SMALL)


def made_of(*dims: Dim, where: Any = None, empty: bool = False) -> Task:
    names = " ".join(dim.name for dim in dims)
    return operator(
        "made",
        "elementwise",
        "out = 2 x",
        dims=dims,
        args=(data("x", names),),
        out=(names,),
        reference=lambda x: 2 * x,
        flops=" * ".join(dim.name for dim in dims),
        where=where,
        empty=empty,
    )


def scaled(task: Task, case: Case) -> list[int]:
    return [case.dims_map[dim.name] for dim in task.dims if dim.scaled]


def check_category(task: Task, case: Case, whole: bool) -> None:
    """The definitions, written out again."""
    values, category = scaled(task, case), case.shape_category
    ranges = {"tiny": (1, 16), "small": (32, 128), "medium": (256, 1024), "large": (2048, 8192)}
    if category in ranges:
        low, high = ranges[category]
        assert any(low <= v <= high for v in values)
        for dim, v in zip((d for d in task.dims if d.scaled), values, strict=True):
            assert v <= max(high, dim.low)
            if whole:
                assert v >= min(low, dim.high // 4)
    elif category == "power_of_two":
        assert all(v.bit_count() == 1 for v in values)
    elif category == "non_power_of_two":
        assert all(v.bit_count() != 1 for v in values)
    elif category == "rectangular":
        assert max(values[:2]) >= 8 * min(values[:2])
    elif category == "square":
        assert len(set(values)) == 1
    else:
        assert category == "edge"


# --------------------------------------------------------------------------------------------------------------------
# Categories and budgets
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(every=4)
@EVERY
@pytest.mark.parametrize(
    "budget",
    [
        SMALL,
        shapes.Budget(memory_bytes=1 << 30, flops=500_000_000_000),
        shapes.Budget(memory_bytes=2 << 20, flops=40_000_000),
    ],
    ids=["16MiB", "1GiB", "2MiB"],
)
def test_cases_keep_category_limits_and_budget(name: str, budget: shapes.Budget) -> None:
    task = find(name)
    for case in shapes.plan(task, Protocol(), budget):
        check_dims(task, case, budget)
        check_category(task, case, whole=False)


@EVERY
def test_without_a_budget_every_scaled_dim_is_in_the_range(name: str) -> None:
    task = find(name)
    if task.category == "attention":  # the limit on scores acts as a budget does
        return
    for case in shapes.plan(task, Protocol(), WIDE):
        check_category(task, case, whole=True)


@EVERY
def test_all_eight_categories_exist_for_every_task(name: str) -> None:
    assert all(sampling.exists(find(name), category) for category in SHAPE_CATEGORIES)


@settings(max_examples=60, deadline=None)
@example(lows=[1, 29], spans=[1] * 4, multiples=[1, 3, 1, 1], unscaled=False, memory_log=34, seed=0)
@given(
    lows=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    spans=st.lists(st.sampled_from([1, 30, 300, 9000]), min_size=4, max_size=4),
    multiples=st.lists(st.sampled_from([1, 1, 2, 3, 8]), min_size=4, max_size=4),
    unscaled=st.booleans(),
    memory_log=st.integers(6, 34),
    seed=st.integers(0, 5),
)
def test_any_task_under_any_budget(
    lows: list[int], spans: list[int], multiples: list[int], unscaled: bool, memory_log: int, seed: int
) -> None:
    dims = [
        Dim(name=name, low=low, high=low + span + multiple, multiple_of=multiple)
        for name, low, span, multiple in zip("ABCD", lows, spans, multiples, strict=False)
    ]
    if unscaled:
        dims.append(Dim(name="batch", low=1, high=6, scaled=False))
    task = made_of(*dims)
    budget = shapes.Budget(memory_bytes=1 << memory_log, flops=1 << 60)
    least = 8 * math.prod(dim.least for dim in dims)
    categories = tuple(c for c in SHAPE_CATEGORIES if sampling.exists(task, c))
    protocol = Protocol(suite_seed=seed, dtypes=("float32",), directions=("forward",))
    try:
        plan = shapes.plan(task, protocol, budget)
    except UsageError as error:
        assert "made" in str(error)
        # Rectangles and odd sizes have larger smallest members than the task itself has.
        assert budget.memory_bytes < 64 * 8**4 * least
        if budget.memory_bytes < least:
            assert str(least) in str(error)
            assert str(budget.memory_bytes) in str(error)
        return
    assert {case.shape_category for case in plan} == {*categories, "edge"}
    for case in plan:
        check_dims(task, case, budget)
        if case.shape_category in SHAPE_CATEGORIES[4:]:
            check_category(task, case, whole=False)
        elif case.shape_category != "edge" and budget.memory_bytes == 1 << 34 and len(dims) <= 2:
            assert sampling.belongs(task, case.shape_category, case.dims_map)


def test_an_impossible_budget_names_task_need_and_budget() -> None:
    with pytest.raises(
        UsageError, match=r"task gelu in float32, forward, needs at least 8 bytes .*budget.* is 7 bytes"
    ):
        shapes.plan(find("gelu"), Protocol(), shapes.Budget(memory_bytes=7, flops=10**9))
    with pytest.raises(UsageError, match=r"task matmul .* 2 operations .* 1 operations"):
        shapes.plan(find("matmul"), Protocol(), shapes.Budget(memory_bytes=1 << 30, flops=1))


def test_a_constraint_that_no_shape_meets_is_an_error() -> None:
    with pytest.raises(UsageError, match="constraint"):
        shapes.plan(made_of(Dim(name="M"), where="False"), Protocol(), WIDE)


def test_a_constraint_is_met_by_taking_another_row() -> None:
    task = made_of(Dim(name="M"), Dim(name="N"), where="N % 2 == 0")
    categories = tuple(c for c in SHAPE_CATEGORIES if c != "non_power_of_two")
    for case in shapes.plan(task, Protocol(categories=categories), WIDE):
        assert case.dims_map["N"] % 2 == 0


def test_categories_that_cannot_be_are_left_out() -> None:
    vector = made_of(Dim(name="N"))
    assert not sampling.exists(vector, "rectangular")
    assert "rectangular" not in {c.shape_category for c in shapes.plan(vector, Protocol(), SMALL)}
    assert not sampling.exists(made_of(Dim(name="M", high=8), Dim(name="N", low=16)), "square")
    assert not sampling.exists(made_of(Dim(name="M", low=3, high=3)), "power_of_two")
    assert not sampling.exists(made_of(Dim(name="M", low=4, high=4)), "non_power_of_two")
    assert not sampling.exists(made_of(Dim(name="M", high=100)), "large")


def test_non_powers_of_two_include_primes_odd_and_even_numbers() -> None:
    values = [
        v
        for name in NAMES
        for case in shapes.plan(find(name), Protocol(categories=("non_power_of_two",)), SMALL)
        for v in scaled(find(name), case)
    ]
    primes = sum(sampling._is_prime(v) for v in values)
    even = sum(v % 2 == 0 for v in values)
    assert primes > len(values) / 3
    assert even > len(values) / 12


def test_rows_cover_each_range_evenly() -> None:
    task = find("add")
    rows = 18
    drawn = [sampling.draw(task, "large", i, rows, 0, lambda dims: True) for i in range(rows)]
    for name in ("M", "N"):
        logs = sorted(math.log2(d[name] / 2048) * rows / 2 for d in drawn if d is not None)
        assert len(logs) == rows
        # One value in each of the strata; rounding to an integer moves none by more than a hundredth of one.
        assert all(i - 0.02 <= v <= i + 1.02 for i, v in enumerate(logs))


@pytest.mark.skipif(
    "rng" not in inspect.signature(qmc.LatinHypercube).parameters, reason="not run: SciPy older than 1.15"
)
@pytest.mark.parametrize(("columns", "count"), [(1, 1), (2, 3), (5, 16)])
def test_rows_are_those_of_scipys_hypercube(columns: int, count: int) -> None:
    generator = np.random.default_rng(int(digest("shapes", "a", "b")[:16], 16))
    wanted = qmc.LatinHypercube(columns, rng=generator).random(count)
    assert np.array_equal(sampling._rows(columns, count, "a", "b"), wanted)


def test_large_anchors_differ_between_rows() -> None:
    task = find("matmul")
    plan = shapes.plan(task, Protocol(categories=("large",)), SMALL)
    anchors = [next(n for n, v in c.dims if v >= 2048) for c in plan]
    assert set(anchors) == {"M", "N", "K"}
    assert len({max(c.dims_map.values()) for c in plan}) == len(plan)


def test_timed_shapes_are_as_large_as_category_and_budget_allow() -> None:
    for case in shapes.plan(find("gelu"), Protocol(categories=("large",)), SMALL):
        assert shapes.case_bytes(find("gelu"), case.direction, case.dims_map, case.dtype) > SMALL.memory_bytes / 2


# --------------------------------------------------------------------------------------------------------------------
# Plans
# --------------------------------------------------------------------------------------------------------------------


@EVERY
def test_the_default_plan_covers_every_distribution_and_layout(name: str) -> None:
    task = find(name)
    plan = plan_of(name)
    assert len(set(plan)) == len(plan)
    for direction, dtype in itertools.product(task.directions, task.dtypes):
        cases = [c for c in plan if c.direction == direction and c.dtype == dtype]
        thin = sum(dim.scaled for dim in task.dims) * (2 if dtype == task.dtypes[0] else 1)
        assert len(cases) <= (33 if direction == "forward" else 19 + task.empty) + thin
        assert {c.shape_category for c in cases} == {*SHAPE_CATEGORIES, "edge"}
        by_rows = [c for c in cases if c.distribution in ROW_DISTRIBUTIONS]
        assert all((c.layout, c.shape_category) == ("contiguous", "edge") for c in by_rows)
        cases = [c for c in cases if c not in by_rows]
        others = [c for c in cases if c.layout != "contiguous" or c.distribution != "standard"]
        long = [c for c in others if c.shape_category == "edge"]
        assert {(c.layout, c.distribution) for c in long} <= {("contiguous", "nonfinite")}
        assert {c.shape_category for c in others if c not in long} == {"small", "medium"}
        times = 2 if direction == "forward" else 1
        for layout in task.layouts[1:]:
            met = [c for c in others if c.layout == layout]
            assert len(met) >= times, layout
            assert len({c.distribution for c in met}) >= times, layout
        for distribution in set(task.distributions[1:]) - {*ROW_DISTRIBUTIONS}:
            left_out = direction == "backward" and distribution in ("nonfinite", *task.forward_only)
            met = [c for c in others if c.distribution == distribution]
            assert len(met) >= times or left_out, distribution
            # Kernels have paths of their own for inputs that lie densely.
            assert any(c.layout == "contiguous" for c in met) or left_out, distribution
        assert not any(c.distribution == "nonfinite" for c in cases if direction == "backward")
        assert not any(c.layout != "contiguous" for c in cases if c.distribution in ("constant", "zeros"))
        # Other cases meet other shapes than the timed ones.
        assert not {c.dims for c in others if c not in long} & {
            c.dims for c in cases if c.shape_category in SHAPE_CATEGORIES[4:]
        }


@EVERY
def test_plans_do_not_change_from_call_to_call_and_differ_by_seed(name: str) -> None:
    task = find(name)
    plan = plan_of(name)
    sampling._rows.cache_clear()
    assert shapes.plan(task, Protocol(), SMALL) == plan
    other = shapes.plan(task, Protocol(suite_seed=1), SMALL)
    assert [c.dims for c in other] != [c.dims for c in plan]


@EVERY
def test_quick_plans_are_smaller(name: str) -> None:
    task = find(name)
    plan, standard = plan_of(name, "quick"), plan_of(name)
    for direction, dtype in itertools.product(task.directions, task.dtypes):
        cases = [c for c in plan if c.direction == direction and c.dtype == dtype]
        count = sum(c.distribution not in ROW_DISTRIBUTIONS for c in cases)
        assert len(cases) <= count + 1
        first = dtype == task.dtypes[0]
        empty = direction == "backward" and task.empty and first
        most = (21 if direction == "forward" else 12 + empty) + first  # with zeros
        masked = [arg for arg in task.table.args if isinstance(arg, Arg) and arg.nonfinite.startswith("masked")]
        most += direction == "forward" and any(arg.along for arg in masked)  # of which a few are long, too
        assert 8 <= count <= most + sum(dim.scaled for dim in task.dims)
        zeros = sum(c.distribution == "zeros" for c in cases)
        left_out = direction == "backward" and "zeros" in task.forward_only
        assert zeros == (first and "zeros" in task.distributions and not left_out)
    layouts = {d: {c.layout for c in plan if c.direction == d} for d in task.directions}
    assert layouts["forward"] == set(task.layouts)
    assert all(2 <= len(found) <= 3 for direction, found in layouts.items() if direction == "backward")
    timed = [c for c in plan if shapes.is_timed(c, task, Protocol(tier="quick"))]
    assert timed == [c for c in standard if shapes.is_timed(c, task, Protocol())]


@EVERY
def test_one_timed_case_for_each_category_and_direction(name: str) -> None:
    task = find(name)
    plan = plan_of(name)
    counts = Counter((c.direction, c.shape_category) for c in plan if shapes.is_timed(c, task, Protocol()))
    assert counts == Counter(itertools.product(task.directions, SHAPE_CATEGORIES))
    assert {c.dtype for c in plan if shapes.is_timed(c, task, Protocol())} == {"float32"}


def test_which_dtypes_are_timed() -> None:
    task = find("gelu")

    def timed(protocol: Protocol) -> set[str]:
        return {c.dtype for c in shapes.plan(task, protocol, SMALL) if shapes.is_timed(c, task, protocol)}

    assert timed(Protocol(dtypes=("bfloat16", "float16"))) == {"float16"}
    assert timed(Protocol(timed_dtypes=("float32", "bfloat16"))) == {"float32", "bfloat16"}
    assert timed(Protocol(timed=False)) == set()


def test_restrictions_leave_the_other_cells_as_they_are() -> None:
    task = find("layer_norm")
    whole = set(shapes.plan(task, Protocol(), SMALL))
    for protocol in (
        Protocol(dtypes=("float16",)),
        Protocol(directions=("backward",)),
        Protocol(categories=("large", "square")),
    ):
        plan = shapes.plan(task, protocol, SMALL)
        assert plan
        assert set(plan) < whole


def test_named_distributions_meet_every_category() -> None:
    protocol = Protocol(distributions=("standard", "outlier", "zeros"), directions=("forward",), dtypes=("float32",))
    plan = shapes.plan(find("gelu"), protocol, SMALL)
    assert {(c.shape_category, c.distribution) for c in plan} == set(
        itertools.product(SHAPE_CATEGORIES, ("standard", "outlier", "zeros"))
    )
    assert len(plan) == 24
    assert {c.layout for c in plan} == {"contiguous"}
    assert sum(shapes.is_timed(c, find("gelu"), protocol) for c in plan) == 8


@pytest.mark.parametrize(
    ("name", "protocol", "message"),
    [
        ("gelu", Protocol(dtypes=("float23",)), "dtype 'float23' is unknown; did you mean"),
        ("gelu", Protocol(dtypes=("int8",)), "task gelu has no dtype int8; it has float32, float16, bfloat16"),
        ("gelu", Protocol(categories=("huge",)), "shape category 'huge' is unknown"),
        ("attention", Protocol(distributions=("nonfinite",)), "task attention has no distribution nonfinite"),
        ("argmax", Protocol(directions=("backward",)), r"has no direction backward \(the output is an index\)"),
        ("add", Protocol(directions=("backward",), distributions=("nonfinite",)), "no case is left"),
    ],
)
def test_a_protocol_that_asks_for_what_is_not_there(name: str, protocol: Protocol, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        shapes.plan(find(name), protocol, SMALL)


def test_edges_are_one_element_and_empty() -> None:
    edges = [c for c in shapes.plan(find("gelu"), Protocol(dtypes=("float32",)), SMALL) if c.shape_category == "edge"]
    forward = [c.dims_map for c in edges if c.direction == "forward"]
    assert forward[0] == {"M": 1, "N": 1}
    assert [[n for n, v in d.items() if v == 0] for d in forward[3:]] == [["M"], ["N"]]
    backward = [c.dims_map for c in edges if c.direction == "backward"]
    assert [[n for n, v in d.items() if v == 0] for d in backward[3:]] == [["M"]]
    for thin in (forward[1:3], backward[1:3]):
        assert [[n for n, v in d.items() if v == 1] for d in thin] == [["M"], ["N"]], "decoding has a single row"
        assert all(max(d.values()) >= 16 for d in thin)
    halves = [c for c in shapes.plan(find("gelu"), Protocol(dtypes=("float16",)), SMALL) if c.shape_category == "edge"]
    assert len([c for c in halves if c.direction == "forward" and sorted(c.dims_map.values())[0] == 1]) == 3
    # A maximum over nothing is not defined, over no rows it is.
    amax = shapes.plan(find("amax"), Protocol(categories=("edge",), directions=("forward",)), SMALL)
    assert {0, 1} < {c.dims_map["M"] for c in amax}
    assert all(c.dims_map["N"] > 0 for c in amax)
    conv = shapes.plan(find("conv2d"), Protocol(categories=("edge",), directions=("forward",)), SMALL)
    assert {n for c in conv for n, v in c.dims if v == 0 and n != "E"} == {"B"}, "a padding of 0 is no empty case"
    # Where the constraint forbids single elements, the nearest shape that it allows.
    norm = shapes.plan(find("layer_norm"), Protocol(categories=("edge",), directions=("backward",)), SMALL)
    assert norm[0].dims_map == {"M": 1, "N": 4}


def test_edges_have_as_few_rows_as_wide_windows_allow() -> None:
    """The lowest height that dilated windows fit in is the tenth: beside a large width it was left out."""
    dims = {"B": 1, "C": 4, "H": 90, "W": 90, "K": 4, "S": 1, "E": 0, "D": 3}
    assert sampling.thin(find("max_pool2d"), dims, ["H"]) == dims | {"H": 10}


def test_given_dims_are_taken_as_they_are() -> None:
    task = replace(
        find("gelu"),
        case_dims=(("given", {"M": 7, "N": 9}), ("small", {"M": 64, "N": 33}), ("small", {"M": 65, "N": 33})),
        distributions=("standard",),
        layouts=("contiguous",),
        dtypes=("float32",),
    )
    plan = shapes.plan(task, Protocol(directions=("forward",)), SMALL)
    assert [(c.shape_category, c.dims_map["M"]) for c in plan[:3]] == [("given", 7), ("small", 64), ("small", 65)]
    assert len(plan) == 3
    assert [shapes.is_timed(c, task, Protocol()) for c in plan] == [True, True, False]
    varied = replace(task, distributions=("standard", "outlier", "zeros"), layouts=("contiguous", "transposed"))
    others = shapes.plan(varied, Protocol(directions=("forward",)), SMALL)[3:]
    assert {c.dims_map["M"] for c in others} == {7}
    assert {c.distribution for c in others} >= {"outlier", "zeros"}
    assert "transposed" in {c.layout for c in others}
    with pytest.raises(UsageError, match=r"task gelu at M=7,N=9 in float32, forward, takes .* MiB"):
        shapes.plan(task, Protocol(), shapes.Budget(memory_bytes=100, flops=10**9))


def test_the_public_cells_of_seed_zero() -> None:
    """If this fails, SciPy's or NumPy's generator changed: results no longer compare, so raise Protocol.version."""
    plan = shapes.plan(find("gelu"), Protocol(dtypes=("float32",), directions=("forward",)), SMALL)
    got = {c.shape_category: tuple(c.dims_map.values()) for c in plan if shapes.is_timed(c, find("gelu"), Protocol())}
    assert got == GELU_CELLS


def test_planning_a_suite_is_quick() -> None:
    import time

    started = time.process_time()
    for name in NAMES:
        shapes.plan(find(name), Protocol(suite_seed=12345), SMALL)
    assert time.process_time() - started < 14  # half a second a task; measured 2 s for these


GELU_CELLS = {
    "tiny": (8, 1),
    "small": (66, 77),
    "medium": (976, 514),
    "large": (750, 2663),
    "power_of_two": (512, 2048),
    "non_power_of_two": (419, 2143),
    "rectangular": (1831, 171),
    "square": (266, 266),
}
