"""How long a candidate's calls may take: an honest one compiles, an endless loop does not."""

from __future__ import annotations

import pytest

from kerneleval.judge.probes import patience as module
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until a test sets it on."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_the_budget_counts_what_is_beyond_the_references_pace(clock: list[float]) -> None:
    one = patience()
    assert one.charge(48.0, 1.0) == "" and one.left_s == 60.0, "fifty times as slow as the reference"
    assert one.charge(30.0, 0.0) == "" and 30.0 < one.left_s < 31.0
    assert one.charge(40.0, 0.0, compiled_s=39.0) == "", "compiling is its own"
    assert "it kept the judge waiting 60 s longer than 50 times" in one.charge(40.0, 0.0)


@pytest.mark.parametrize(("took_s", "reference_s"), [(0.45, 1e-5), (0.9, 0.009)])
def test_naps_too_short_for_the_budget_add_up(took_s: float, reference_s: float, clock: list[float]) -> None:
    """Half a second, and fifty times the little that the judge needs, is given once and not in every window."""
    one, windows = patience(), 0
    while windows < 300 and one.charge(took_s, reference_s) == "":
        windows += 1
        clock[0] += took_s + 0.05
    assert 60.0 < windows * took_s < 85.0


def test_windows_that_take_as_long_as_the_judges_own_work_for_them_are_no_naps(clock: list[float]) -> None:
    one = patience()
    for _ in range(10_000):
        clock[0] += 0.25
        assert one.charge(0.1, 0.001) == ""
    assert one.left_s == 60.0


def test_interpreted_kernels_may_take_tenths_of_a_second_a_window(clock: list[float]) -> None:
    one, other = patience("triton"), patience("triton", "cuda")
    for _ in range(400):
        clock[0] += 0.5
        assert one.charge(0.4, 0.001) == ""
        other.charge(0.4, 0.001)
    assert one.left_s == 60.0 and other.left_s < 0.0


def test_what_is_beside_calls_counts_too(clock: list[float]) -> None:
    one = patience()
    for _ in range(3):
        one.spend(17.0)
        assert one.charge(0.01, 0.001) == ""
    one.spend(17.0)
    assert "kept the judge waiting" in one.charge(0.01, 0.001)


def test_compiling_ends_at_some_time() -> None:
    one = patience()
    for _ in range(5):
        assert one.charge(110.0, 0.0, compiled_s=110.0) == "" and one.limit(0.0, first=True).watched
    one.charge(110.0, 0.0, compiled_s=110.0)
    assert not one.limit(0.0, first=True).watched


def test_the_budget_is_the_protocols(clock: list[float]) -> None:
    one = patience(budget_s=5.0)
    assert one.charge(5.0, 0.0) == "" and 0.0 < one.left_s < 0.5
    assert "kept the judge waiting 5 s longer" in one.charge(2.0, 0.0)
