"""With which case a candidate's process begins: chance decides, and the verdict keeps the order of the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kerneleval.judge import Judge
from kerneleval.judge import judge as judge_module
from kerneleval.judge.probes.cells import opening
from kerneleval.pipeline import check
from kerneleval.records import Case, Failed, Protocol, Verdict
from kerneleval.tasks import find
from kerneleval.worker import waiting

FEW: dict[str, Any] = {
    "dtypes": ("float32", "float16"),
    "directions": ("forward",),
    "categories": ("tiny", "small", "power_of_two"),
    "distributions": ("standard",),
    "timed": False,
}
DIVIDED = """
divided = None


def square(x):
    global divided
    divided = x.numel() % 16 == 0 if {anew} else divided
    out = x * x
    if divided and x.numel() % 16:
        out.view(-1)[x.numel() // 16 * 16 :] = 0
    return out
"""
FIRST_DTYPE = """
dtype = None


def square(x):
    global dtype
    dtype = x.dtype if {anew} else dtype
    return x.to(dtype).square().to(x.dtype)
"""


def planned(judge: Judge) -> tuple[Case, ...]:
    return judge.plan(find("square"), Protocol(**FEW))


def judged(judge: Judge, folder: Path, source: str, **options: Any) -> Verdict:
    path = folder / "square.py"
    path.write_text(source)
    return check(path, "square", judge=judge, allow=("library", "mixed", "custom"), **{**FEW, **options})


def begins_with(monkeypatch: pytest.MonkeyPatch, dtype: str, category: str) -> None:
    def chosen(task: object, cases: tuple[Case, ...]) -> list[Case]:
        return [case for case in cases if (case.dtype, case.shape_category) == (dtype, category)][:1]

    monkeypatch.setattr(judge_module, "opening", chosen)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("fail_fast", [False, True])
@pytest.mark.parametrize(("source", "name"), [(DIVIDED, "divided"), (FIRST_DTYPE, "dtype")], ids=["size", "dtype"])
def test_what_the_first_call_left_is_seen(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str, fail_fast: bool
) -> None:
    begins_with(monkeypatch, "float16", "power_of_two")
    wrong = judged(judge, tmp_path, source.format(anew=f"{name} is None"), fail_fast=fail_fast)
    assert (wrong.verdict, wrong.reason) == ("failed", "wrong_output"), wrong.message
    assert any("process began with square/forward" in finding.message for finding in wrong.findings)
    right = judged(judge, tmp_path, source.format(anew="True"), fail_fast=fail_fast)
    assert right.verdict == "passed", right.message
    assert [cell.case for cell in right.cells] == list(planned(judge))


def test_the_first_failure_of_the_plan_is_told(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begins_with(monkeypatch, "float16", "power_of_two")
    source = "def square(x):\n    return x * x if x.shape[0] < 40 and x.element_size() == 4 else x\n"
    fast = judged(judge, tmp_path, source, fail_fast=True)
    plan = list(planned(judge))
    assert [cell.case for cell in fast.cells] == plan[: len(fast.cells)]
    failed = [isinstance(cell.outcome, Failed) for cell in fast.cells]
    assert failed == [False] * (len(failed) - 1) + [True]
    assert fast.cells[-1].case.dtype == "float32"
    assert fast.replay.endswith(fast.cells[-1].case.key)


def test_what_is_given_up_at_once_is_called_no_more(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins_with(monkeypatch, "float16", "small")
    monkeypatch.setattr(waiting, "CALLS_S", 2.0)
    source = "import time\n\n\ndef square(x):\n    time.sleep(60 if x.element_size() == 2 else 0)\n    return x * x\n"
    fast = judged(judge, tmp_path, source, fail_fast=True, patience_s=2)
    assert (fast.reason, len(fast.cells)) == ("timeout", 1)
    assert "/float16/" in fast.replay


def test_chance_decides(judge: Judge) -> None:
    plan = planned(judge)
    drawn = [opening(find("square"), plan) for _ in range(200)]
    assert all({case.dtype for case in cases} == {"float32", "float16"} for cases in drawn)
    assert all(set(cases) <= set(plan) for cases in drawn)
    first = [cases[0] for cases in drawn]
    assert {case.dtype for case in first} == {"float32", "float16"}
    assert {"small", "power_of_two"} <= {case.shape_category for case in first}
    divided = [case for case in first if case.dims_map["M"] * case.dims_map["N"] % 16 == 0]
    assert 100 < len(divided) < 200


def test_what_a_candidate_does_not_support_begins_nothing(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(task: object, cases: tuple[Case, ...]) -> list[Case]:
        return [
            next(c for c in cases if (c.dtype, c.shape_category) == (d, "power_of_two")) for d in FEW["dtypes"][::-1]
        ]

    monkeypatch.setattr(judge_module, "opening", chosen)
    source = DIVIDED.format(anew="divided is None").replace(
        "    global divided\n", "    global divided\n    if x.element_size() == 2:\n        raise NotImplementedError\n"
    )
    assert judged(judge, tmp_path, source).reason == "wrong_output"


def test_a_single_case_begins_with_itself(judge: Judge) -> None:
    assert opening(find("square"), planned(judge)[:1]) == []
