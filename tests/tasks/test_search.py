"""Which tasks a query selects, and formulas as text."""

from __future__ import annotations

from typing import Any

import pytest

from kerneleval.records import UsageError
from kerneleval.tasks import all_tasks, find
from kerneleval.tasks.define import table_of
from kerneleval.tasks.formulas import formula_text
from kerneleval.tasks.search import Query

EVERY = tuple(all_tasks().values())
_LEAST = 4


def names(**wanted: Any) -> set[str]:
    return {task.name for task in Query(**wanted).select(EVERY)}


def test_an_empty_query_asks_for_nothing() -> None:
    assert Query().select(EVERY) == list(EVERY)


def test_of_several_values_one_will_do_and_of_several_fields_all() -> None:
    both = names(categories=("attention", "normalization"))
    assert both == names(categories=("attention",)) | names(categories=("normalization",))
    assert names(categories=("attention",), levels=(1,)) == both & names(levels=(1,)) - names(
        categories=("normalization",)
    )
    assert names(dtypes=("complex64",)) <= names(dtypes=("complex64", "float32"))


def test_words_may_stand_apart_in_any_case_in_name_or_formula() -> None:
    assert "softmax_cross_entropy" in names(text="Entropy SOFT")
    assert "rms_norm" in names(text="rms_norm")
    assert {"sigmoid", "silu"} <= names(text="sigmoid") | names(text="e ** -x")


def test_words_that_are_nowhere_are_told_with_near_names() -> None:
    with pytest.raises(
        UsageError, match=r"--search 'layer norn' is in no task's name or formula; did you mean .*layer_norm"
    ):
        Query(text="layer norn").select(EVERY)
    # a text that is somewhere, only not among those chosen otherwise, is no mistake
    assert names(text="attention", categories=("convolution",)) == set()


# --------------------------------------------------------------------------------------------------------------------
# Formulas
# --------------------------------------------------------------------------------------------------------------------


def _documented(d: Any) -> bool:
    """Why it is so.

    More of it.
    """
    values = list(d.own.values())
    return bool(values)


def _returned(d: Any) -> bool:
    """An expression all the same."""
    return d.M > _LEAST


def test_formulas_are_shown_in_names_of_dims_and_values_of_constants() -> None:
    times = 3
    assert formula_text(lambda d: times * d.M * d.N >= _LEAST) == "3 * M * N >= 4"
    assert formula_text(lambda d: max(d.M, 2) // 2) == "max(M, 2) // 2"
    one, other = (lambda d: d.M), (lambda d: d.N)
    assert (formula_text(one), formula_text(other)) == ("M", "N")
    assert formula_text(_returned) == "M > 4"


def test_what_is_no_expression_of_dims_is_told_by_its_docstring() -> None:
    def helper(d: Any) -> int:
        return int(d.M)

    assert formula_text(_documented) == "Why it is so."
    assert formula_text(lambda d: helper(d)) == ""
    assert formula_text(lambda d: d.own.get("M", 0)) == ""
    assert formula_text(None) == ""
    assert formula_text(eval("lambda d: d.M")) == ""  # no source


def test_tables_of_built_in_tasks() -> None:
    table = table_of(find("attention"))
    assert table is not None
    assert formula_text(table.formulas["where"]).startswith("S >= 4 and B * H * L * D > 0")
    assert formula_text(table.formulas["reduction"]) == "S + D"
    assert all(table_of(task) is not None for task in EVERY)
