"""Formulas over dims: what they may say, their values, and errors that name task, formula and place."""

from __future__ import annotations

from typing import Any

import pytest

from kerneleval.records import Dim, Plain, Sizes, Task, UsageError, formula_names, product_text
from kerneleval.tasks import all_tasks, find
from kerneleval.tasks.define import ROWS, data, nonempty, operator, whole


def made(**more: Any) -> Task:
    table = {"args": (data("x", "M N"),), "out": ("M N",), "reference": lambda x: 2 * x, "flops": "M * N", **more}
    return operator("twice", "elementwise", "out = 2 x", dims=ROWS, **table)


def value(formula: str, **dims: int) -> Any:
    return Sizes(dims, {"half": "M // 2", "quarter": "half // 2"}, "task t").value(formula, "flops")


@pytest.mark.parametrize(
    ("formula", "right"),
    [
        ("2 * M * N + 1", 71),
        ("-(-M // 2) * 2 ** 3", 32),
        ("M if M > N else N - M % 4", 7),
        ("half + quarter", 4),
        ("M >= 4 and (N > 9 or not M == 7) and min(M, N) > 0", False),
        ("(M - 1) // 2 + 1 - (M >= N)", 3),
        ("max(1, round(M * 1.5), ceil(log2(M)), N // 2)", 10),
        ("sqrt(M * 4 + 36) * log(1)", 0.0),
        ("7", 7),
    ],
)
def test_values(formula: str, right: float) -> None:
    assert value(formula, M=7, N=5) == right


def test_what_stands_behind_and_is_false_needs_no_value() -> None:
    assert value("M > 0 and N // M > 1", M=0, N=5) is False


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("2 * M *", "invalid syntax at column"),
        ("", "invalid syntax"),
        ("M.real", "Attribute is not allowed in a formula at column 1"),
        ("M + N.real", "Attribute is not allowed in a formula at column 5"),
        ("open(M)", r"no function of formulas: open\(M\)"),
        ("__import__(M)", "no function of formulas"),
        ("min(M, key=N)", "no function of formulas"),
        ("(lambda: M)()", "no function of formulas"),
        ("[M][0]", "Subscript is not allowed"),
        ("max(x for x in (M, N))", "GeneratorExp is not allowed"),
        ("M * 'N'", "'N' is no number"),
        ("(M := 3)", "NamedExpr is not allowed"),
        ("f'{M}'", "JoinedStr is not allowed"),
    ],
)
def test_what_is_no_formula_is_refused_with_task_place_and_formula(formula: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        made(flops=formula)
    assert str(caught.value).startswith(f"task twice, flops = {formula!r}: ")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"flops": lambda d: d.M},
            "task twice, flops must be a text over the dims such as '2 \\* M \\* N', not a func",
        ),
        ({"reduction": "K"}, "task twice, reduction = 'K': 'K' is no dim; .*M, N"),
        ({"where": "M > n"}, "task twice, where = 'M > n': 'n' is no dim; did you mean N"),
        ({"gathered": "half", "derive": {"half": "P // 2"}}, "task twice, derive half = 'P // 2': 'P' is no dim"),
        ({"args": (data("x", "M Nn"),)}, "task twice, argument x: shape = 'M \\* Nn': 'Nn' is no dim"),
        ({"args": (data("x", "M N", fan_in="K"),)}, "argument x: fan_in = 'K': 'K' is no dim"),
        ({"args": (whole("x", "M N", 0, "n_high"),)}, "argument x: high = 'n_high': 'n_high' is no dim"),
        ({"args": (data("x", "M N"), Plain(name="k", formula="K"))}, "argument k = 'K': 'K' is no dim"),
        ({"out": ("M K",)}, "argument out0: shape = 'M \\* K': 'K' is no dim"),
    ],
)
def test_an_error_in_a_table_names_task_place_and_formula(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(**more)


def test_what_cannot_be_computed_names_task_place_formula_and_dims() -> None:
    task = made(flops="M // N")
    with pytest.raises(
        UsageError, match=r"task twice, flops = 'M // N' at M=3, N=0: integer division or modulo by zero"
    ):
        task.flops({"M": 3, "N": 0})


def test_a_shared_table_of_derived_names_may_hold_what_a_task_does_not_use() -> None:
    derive = {"three": 3, "wide": "N + K", "most": "three * N", "unused": "M"}
    task = made(derive=derive, args=(data("x", "M most"),))
    assert task.table.derive == {"three": 3, "most": "three * N"}
    assert task.bytes({"M": 2, "N": 5}, "float32") == 4 * (2 * 15 + 2 * 5)


def test_helpers_write_formulas() -> None:
    assert product_text("B H W") == "B * H * W"
    assert product_text("") == "1"
    assert nonempty((Dim(name="B"), Dim(name="C"), Dim(name="H")), "B") == "min(C, H) > 0"
    assert nonempty(ROWS, "M") == "N > 0"
    assert formula_names("max(M, 2 * half)", "here") == {"M", "half"}


def test_tables_of_built_in_tasks() -> None:
    table = find("attention").table
    assert table.where.startswith("S >= 4 and B * H * L * D > 0")
    assert table.reduction == "S + D"
    assert all(task.table.task == task.name for task in all_tasks().values())
