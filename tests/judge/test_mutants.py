"""Planted bugs: each kind is planted where it can be, rejected where it is wrong, and told apart where it is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from kerneleval.judge.selftest.mutants import KINDS, Fate, Probe, fate, planted, structured
from kerneleval.judge.selftest.task_selftest import examine, selftest
from kerneleval.records import Case, Task, Tolerance
from kerneleval.tasks import find

from .conftest import NAMES, case_of, planned

ROWS = {"M": 40, "N": 70}
SQUARE = {"M": 48, "N": 48}


def fates(task: Task, case: Case) -> list[Fate]:
    probe = Probe.of(task, case, "cpu", 1, False)
    return [fate(probe, mutant) for mutant in planted(probe)]


def of_kind(found: Sequence[Fate], kind: str) -> dict[str, str]:
    """Fates by name."""
    return {one.name: one.fate for one in found if one.kind == kind}


def mine(reference: Any, base: str = "gelu", **changes: Any) -> Task:
    return replace(find(base), name="mine", reference=reference, relations=(), **changes)


# --------------------------------------------------------------------------------------------------------------------
# Kinds
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "dropout", "linear_w4a16", "bitwise_and", "fft", "sum_all"])
def test_every_kind_is_planted_or_has_a_reason_and_none_survives(name: str) -> None:
    task = find(name)
    for direction in task.directions:
        cases = planned(task, dtypes=task.dtypes[:1], directions=(direction,), distributions=("standard",))
        found = fates(task, next(c for c in cases if c.shape_category == "square"))
        assert {one.kind for one in found} == set(KINDS)
        assert [one for one in found if one.fate == "survived"] == []
        assert all(one.why for one in found if one.fate != "killed")
        assert [one for one in found if one.fate == "killed"]


def test_a_constant_and_a_copy() -> None:
    found = fates(find("gelu"), case_of("gelu", ROWS))
    assert of_kind(found, "constant") == {"output 0: zeros": "killed", "output 0: its mean": "killed"}
    assert of_kind(found, "input_copied") == {"output 0: a copy of tensor 0": "killed"}


@pytest.mark.parametrize(
    ("name", "kind", "layout", "distribution"),
    [
        ("index_add", "crowded_index", "expanded", "standard"),
        ("embedding", "crowded_index", "transposed", "standard"),
        ("logaddexp", "lost_infinity", "contiguous", "nonfinite"),
        ("masked_softmax", "lost_infinity", "contiguous", "nonfinite"),
    ],
)
def test_structure_shows_what_even_inputs_do_not(name: str, kind: str, layout: str, distribution: str) -> None:
    task = find(name)
    dims = {dim.name: 3 if not dim.scaled else 60 for dim in task.dims}
    assert set(of_kind(fates(task, case_of(name, dims)), kind).values()) == {"not_applicable"}
    case = case_of(name, dims, layout=layout, distribution=distribution)
    probe = Probe.of(task, case, "cpu", 1, False)
    found = [fate(probe, mutant) for mutant in structured(probe)]
    assert set(of_kind(found, kind).values()) == {"killed"}


@pytest.mark.parametrize(("name", "wanted"), [("sin", "equivalent"), ("softmin", "killed"), ("sigmoid", "killed")])
def test_an_infinity_that_is_lost_where_nothing_is_asked_is_no_mutant(name: str, wanted: str) -> None:
    task, case = find(name), case_of(name, ROWS, distribution="nonfinite")
    probe = Probe.of(task, case, "cpu", 1, False)
    found = [fate(probe, mutant) for mutant in structured(probe)]
    assert set(of_kind(found, "lost_infinity").values()) == {wanted}


def test_missing_ends_and_neighbours() -> None:
    found = fates(find("gelu"), case_of("gelu", ROWS))
    assert list(of_kind(found, "last_row_missing").values()) == ["killed"]
    assert set(of_kind(found, "off_by_one_tail")) == {
        "output 0: with the end of its last dim left at zero",
        "output 0: with the end of its last dim as its neighbour",
    }
    assert set(of_kind(found, "off_by_one_tail").values()) == {"killed"}


def test_the_wrong_axis_is_seen_on_square_inputs() -> None:
    transposed = "square inputs transposed"
    assert of_kind(fates(find("sum"), case_of("sum", SQUARE)), "wrong_axis")[transposed] == "killed"
    assert of_kind(fates(find("sum"), case_of("sum", ROWS)), "wrong_axis")[transposed] == "not_applicable"
    assert of_kind(fates(find("sum_all"), case_of("sum_all", SQUARE)), "wrong_axis")[transposed] == "equivalent"
    shifted = of_kind(fates(find("gelu"), case_of("gelu", ROWS)), "wrong_axis")
    assert {name: end for name, end in shifted.items() if "shifted" in name} == {
        "output 0: shifted by one along dim 0": "killed",
        "output 0: shifted by one along dim 1": "killed",
    }


def test_operands_that_may_be_exchanged_and_those_that_may_not() -> None:
    assert of_kind(fates(find("add"), case_of("add", ROWS)), "swapped_operands") == {"x and y": "equivalent"}
    assert of_kind(fates(find("sub"), case_of("sub", ROWS)), "swapped_operands") == {"x and y": "killed"}
    (why,) = [one.why for one in fates(find("gelu"), case_of("gelu", ROWS)) if one.kind == "swapped_operands"]
    assert "no two inputs" in why
    square = case_of("matmul", {"M": 32, "N": 32, "K": 32})
    assert of_kind(fates(find("matmul"), square), "swapped_operands") == {"a and b": "killed"}


def test_indices_of_other_ranges_never_change_places() -> None:
    """An index beyond the end would end a process on a GPU."""
    task = find("advanced_index")
    case = case_of(task.name, {"M": 40, "N": 20, "K": 30})
    names = [one for one in fates(task, case) if one.kind == "swapped_operands"]
    assert all(one.fate == "not_applicable" for one in names), names


def test_the_sign_of_an_output_and_of_a_gradient() -> None:
    for direction, kind, other in (
        ("forward", "wrong_sign_output", "wrong_sign_gradient"),
        ("backward", "wrong_sign_gradient", "wrong_sign_output"),
    ):
        found = fates(find("mul"), case_of("mul", ROWS, direction=direction))
        assert set(of_kind(found, kind).values()) == {"killed"}
        assert set(of_kind(found, other).values()) == {"not_applicable"}


@pytest.mark.parametrize(
    ("dtype", "narrower"),
    [
        ("float32", {"float16", "bfloat16", "tf32"}),
        ("float16", {"bfloat16"}),
        ("bfloat16", {"float8_e5m2"}),
    ],
)
def test_every_type_has_a_narrower_one(dtype: str, narrower: set[str]) -> None:
    found = of_kind(fates(find("exp"), case_of("exp", ROWS, dtype=dtype)), "precision_downgrade")
    assert found == {f"{name} inputs": "killed" for name in narrower}


def test_a_quantised_operator_without_its_quantisation() -> None:
    found = fates(find("linear_w4a16"), case_of("linear_w4a16", {"M": 40, "K": 64, "N": 50}))
    assert of_kind(found, "unquantised") == {"output 0: without any quantisation": "killed"}


def test_bad_draws() -> None:
    task = find("dropout")
    found = of_kind(fates(task, case_of("dropout", {"M": 128, "N": 128})), "badly_drawn")
    assert len(found) >= 4
    assert set(found.values()) == {"killed"}


def test_few_elements_get_few_bugs() -> None:
    found = fates(find("sum_all"), case_of("sum_all", ROWS))
    assert of_kind(found, "wrong_sign_output") == {"output 0: with the wrong sign": "killed"}
    assert of_kind(found, "off_by_one_tail") == {"": "not_applicable"}


# --------------------------------------------------------------------------------------------------------------------
# Survivors
# --------------------------------------------------------------------------------------------------------------------


def test_what_a_wide_tolerance_lets_through_survives_with_figures() -> None:
    task = mine(torch.tanh, tolerance=Tolerance(factor=3000.0))
    survivors = [one for one in fates(task, case_of("mine", ROWS)) if one.fate == "survived"]
    assert {one.kind for one in survivors} == {"precision_downgrade"}
    assert all("relative rms error" in one.why and "is within the bound" in one.why for one in survivors)


def test_an_output_as_near_as_the_native_one_is_no_mutant() -> None:
    """A sum in another order is right, though its last bits are others."""
    found = fates(mine(lambda x: (x @ x.mT).sum(), base="sum_all"), case_of("mine", SQUARE))
    assert of_kind(found, "wrong_axis")["square inputs transposed"] in ("killed", "equivalent")
    equal = fates(mine(lambda x: (x * x).sum(), base="sum_all"), case_of("mine", SQUARE))
    assert of_kind(equal, "wrong_axis")["square inputs transposed"] == "equivalent"


# --------------------------------------------------------------------------------------------------------------------
# Beside the self-test
# --------------------------------------------------------------------------------------------------------------------

WRONG = [
    mine(torch.zeros_like),
    mine(lambda x: x * (1 + 1e-7)),
    mine(torch.tanh, tolerance=Tolerance(factor=3000.0)),
    mine(lambda x: x + torch.rand_like(x)),
]


@pytest.mark.parametrize("task", WRONG, ids=["zeros", "copy", "wide", "random"])
def test_planting_more_changes_no_finding(task: Task) -> None:
    if task is WRONG[3]:
        torch.manual_seed(0)
    cases = [case_of("mine", ROWS, dtype) for dtype in ("float32", "float16")]
    torch.manual_seed(7)
    found = selftest(task, "cpu", cases)
    torch.manual_seed(7)
    examined = list(examine(task, "cpu", cases))
    assert [one.case for one in examined] == cases
    assert {(f["test"], f["case"]) for one in examined for f in one.findings} >= {
        (f["test"], f["case"]) for f in found if f["test"] != "depends"
    }
    if task is not WRONG[3]:  # which draws anew at every run
        assert [f for one in examined for f in one.findings] == found


def test_bugs_that_need_no_structure_are_planted_at_plain_standard_cases_alone() -> None:
    task = find("gelu")
    cases = [
        case_of("gelu", ROWS),
        case_of("gelu", ROWS, layout="transposed"),
        case_of("gelu", ROWS, distribution="zeros"),
        replace(case_of("gelu", ROWS), shape_category="edge"),
        case_of("gelu", ROWS, distribution="nonfinite"),
    ]
    found = [{mutant.kind for mutant in one.mutants} for one in examine(task, "cpu", cases)]
    assert found == [set(KINDS), set(), set(), set(), {"lost_infinity"}]
