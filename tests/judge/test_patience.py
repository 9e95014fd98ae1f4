"""How long a candidate's calls may take: an honest one compiles, an endless loop does not."""

from __future__ import annotations

import pytest

from kerneleval.judge.probes.patience import Patience
from kerneleval.records import Candidate
from kerneleval.worker.host import TimeLimit


def patience(language: str = "torch", device: str = "cpu", budget_s: float = 60.0) -> Patience:
    return Patience(Candidate(files=(("gelu.py", "import torch\n"),), language=language), device, budget_s)


@pytest.mark.parametrize(
    ("language", "device", "first", "longest_s"),
    [
        ("torch", "cpu", True, 120.0),
        ("torch", "cpu", False, 0.0),
        ("triton", "cuda", True, 120.0),
        ("triton", "cuda", False, 0.0),
        ("triton", "cpu", False, 120.0),  # its interpreter says that it goes on
        ("cpp", "cpu", True, 0.0),  # it was built before
        ("cuda", "cuda", True, 0.0),
    ],
)
def test_only_where_something_may_compile_are_signs_of_it_heard(
    language: str, device: str, first: bool, longest_s: float
) -> None:
    assert patience(language, device).limit(0.1, first=first) == TimeLimit(20.0, longest_s)


def test_the_budget_counts_what_is_beyond_the_references_pace() -> None:
    one = patience()
    assert one.charge(50.0, 1.0) == "", "fifty times as slow as the reference"
    assert one.charge(30.0, 0.0) == "" and 30.0 < one.left_s < 31.0
    assert one.charge(40.0, 0.0, compiled_s=39.0) == "", "compiling is its own"
    assert "kept the judge waiting 60 s longer than 50 times" in one.charge(40.0, 0.0)


def test_compiling_ends_at_some_time() -> None:
    one = patience()
    for _ in range(16):
        assert one.charge(110.0, 0.0, compiled_s=110.0) == "" and one.limit(0.0, first=True).watched
    one.charge(110.0, 0.0, compiled_s=110.0)
    assert not one.limit(0.0, first=True).watched


def test_the_budget_is_the_protocols() -> None:
    one = patience(budget_s=5.0)
    assert one.charge(5.0, 0.0) == "" and one.left_s == 0.5
    assert "kept the judge waiting 5 s longer" in one.charge(2.0, 0.0)
