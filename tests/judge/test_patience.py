"""How long a candidate's calls may take: an honest one compiles, an endless loop does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kerneleval.judge import Judge
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.timing.timer import session_s
from kerneleval.judge.windows.worker_pool import Loaded, LoadFailed
from kerneleval.pipeline import check
from kerneleval.records import Candidate
from kerneleval.worker import waiting as module
from kerneleval.worker.waiting import Patience, TimeLimit


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
    assert patience(language, device).limit(0.1, first=first) == TimeLimit(15.0, longest_s)


def test_a_window_may_take_fifty_times_as_long_as_its_references() -> None:
    assert [patience().limit(seconds, first=False).calls_s for seconds in (0.2, 0.4, 9.0)] == [15.0, 20.0, 120.0]


@pytest.mark.parametrize(("budget_s", "longest_s"), [(5.0, 40.0), (60.0, 120.0), (300.0, 600.0)])
def test_more_patience_gives_a_call_that_tunes_more(budget_s: float, longest_s: float) -> None:
    """FlagGems tunes a product for more than two minutes beside other work, and no option gave it more."""
    one = patience("triton", "cuda", budget_s)
    assert one.limit(0.1, first=True).longest_s == longest_s
    assert one.limit_of_loading(0.1).longest_s == (40.0 if budget_s < 60 else 2 * longest_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until a test sets it on."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def waits(one: Patience, clock: list[float], took_s: float, compiled_s: float = 0.0, held_s: float = 0.0) -> str:
    clock[0] += took_s
    return one.charge(took_s, took_s - held_s, compiled_s)


def test_the_budget_counts_all_that_is_waited_for_and_not_compiled(clock: list[float]) -> None:
    one = patience()
    assert waits(one, clock, 30.0) == "" and one.left_s == 30.0
    assert waits(one, clock, 40.0, compiled_s=39.0) == "" and one.left_s == 29.0
    assert waits(one, clock, 100.0, held_s=90.0) == "" and one.left_s == 19.0, "others kept it from running"
    assert "for 61 s in all, 60 s longer than the judge's own work" in waits(one, clock, 20.0)


def test_it_is_given_as_long_as_the_judge_works_and_its_references(clock: list[float]) -> None:
    one, other = patience(), patience("triton")
    clock[0] += 5.0
    one.give(3.0)
    other.give(3.0)
    assert (one.left_s, other.left_s) == (68.0, 160.0), "kernels that are interpreted get more"
    assert waits(one, clock, 67.0) == "" and "--patience" in waits(one, clock, 2.0)


@pytest.mark.parametrize("nap_s", [0.04, 0.45, 0.9])
def test_naps_add_up_however_short_they_are(nap_s: float, clock: list[float]) -> None:
    """A pace of fifty times the reference, half a second a window, two seconds a load: what was given each time was
    taken each time.
    """
    one, took_s = patience(), 0.0
    while not waits(one, clock, nap_s):
        clock[0] += 0.01
        one.give(0.001)
        took_s += nap_s
    assert took_s < 90.0


def test_signs_of_compiling_count_for_five_times_the_budget(clock: list[float]) -> None:
    """That it compiles is what the worker says."""
    one, took_s = patience(), 0.0
    while not waits(one, clock, 50.0, compiled_s=50.0):
        took_s += 50.0
    assert took_s == 350.0 and not one.limit(0.0, first=True).watched and not one.limit_of_loading(0.0).watched


def test_no_window_compiles_longer_than_all_may(clock: list[float]) -> None:
    one = patience()
    waits(one, clock, 295.0, compiled_s=295.0)
    assert one.limit(0.0, first=True) == TimeLimit(15.0, 20.0)
    assert one.limit_of_loading(0.0) == TimeLimit(15.0, 20.0)


def test_the_budget_is_the_protocols(clock: list[float]) -> None:
    one = patience(budget_s=5.0)
    assert waits(one, clock, 5.0) == "" and one.left_s == 0.0
    assert "5 s longer than" in waits(one, clock, 2.0)


SOURCE = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_judge", "_time"])
def test_every_answer_counts(step: str, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks and times have windows of their own, for which no reference is made."""
    went_on = getattr(Judge, step)

    def impatient(self: Judge, *args: Any) -> Any:
        loaded = next(arg for arg in args if isinstance(arg, (Loaded, Calls)))
        loaded = loaded.loaded if isinstance(loaded, Calls) else loaded
        loaded.patience._budget_s = -1e6
        return went_on(self, *args)

    monkeypatch.setattr(Judge, step, impatient)
    (tmp_path / "gelu.py").write_text(SOURCE)
    options: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["tiny"]}
    verdict = check(tmp_path / "gelu.py", "gelu", judge=judge, allow=("library",), tier="quick", **options)
    assert verdict.reason == "timeout" and "longer than the judge's own work" in verdict.message, verdict.message


def test_sessions_of_timed_cells_are_given(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right kernel that is slower than the baseline keeps the judge waiting in every timed window."""
    given: list[float] = []
    monkeypatch.setattr(Patience, "give", lambda self, seconds: given.append(seconds))
    (tmp_path / "gelu.py").write_text(SOURCE)
    options: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["tiny"]}
    verdict = check(tmp_path / "gelu.py", "gelu", judge=judge, allow=("library",), tier="quick", **options)
    assert verdict.verdict == "passed", verdict.message
    assert given.count(session_s("quick", judge.device)) == 1
    assert session_s("precise", judge.device) == 14.0


def test_loading_counts(judge: Judge) -> None:
    with pytest.raises(LoadFailed, match="kept the judge waiting"):
        Loaded(judge.pool, Candidate(files=(("gelu.py", SOURCE),), language="torch"), ("gelu",), patience_s=-1e6)
