"""Which tasks a query selects."""

from __future__ import annotations

from typing import Any

import pytest

from kerneleval.records import UsageError
from kerneleval.tasks import all_tasks
from kerneleval.tasks.search import Query

EVERY = tuple(all_tasks().values())


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
