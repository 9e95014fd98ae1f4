"""What wrong cases share is told by contrast, and only where chance does not explain it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.judge.conftest import case_of

from kerneleval.judge import Judge
from kerneleval.judge.causes import shared
from kerneleval.pipeline import check
from kerneleval.records import Case, Failed, Outcome, Passed
from kerneleval.tasks import find

SIZES = (1, 7, 16, 48, 64, 96, 100, 128, 200, 256, 513, 1024, 1500, 2048)


def message(wrong: Callable[[Case], bool], reason: str = "wrong_output", **more: tuple[str, ...]) -> str:
    """What is told of a candidate that is wrong in some of many cases of softmax."""
    places = itertools.product(
        SIZES, more.get("layout", ("contiguous",)), more.get("dtype", ("float32",)), ("standard", "outlier")
    )
    chance = random.Random(1)
    cases = [
        case_of("softmax", {"M": chance.randint(1, 99), "N": n}, dtype=dtype, layout=layout, distribution=distribution)
        for n, layout, dtype, distribution in places
    ]
    failed = Failed(stage="correctness", reason=reason, message="it is wrong")  # type: ignore[arg-type]
    passed = Passed()
    outcomes: dict[Case, Outcome] = {case: failed if wrong(case) else passed for case in cases}
    found = shared(find("softmax"), outcomes)
    return found[0].message if found else ""


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda c: c.dims_map["N"] & (c.dims_map["N"] - 1) != 0, "have N that is no power of two"),
        (lambda c: c.dims_map["N"] % 16 != 0, "have N that is no multiple of 16"),
        (lambda c: c.dims_map["N"] > 1024, "have N of 1500 or more (right up to 1024)"),
        (lambda c: c.dims_map["N"] < 16, "have N of 7 or less (right from 16 on)"),
        (lambda c: c.layout == "transposed", "have the layout transposed"),
        (lambda c: c.layout != "contiguous", "have another layout than contiguous"),
        (lambda c: c.dtype == "float16", "have the dtype float16"),
        (lambda c: c.distribution == "outlier", "have the distribution outlier"),
        (
            lambda c: c.dtype == "float16" and c.dims_map["N"] > 256,
            "right ones with the dtype float16, have N of 513 or more (right up to 256)",
        ),
    ],
)
def test_what_all_wrong_cases_share_is_told(wrong: Callable[[Case], bool], told: str) -> None:
    said = message(wrong, layout=("contiguous", "transposed", "sliced"), dtype=("float32", "float16"))
    assert told in said


def test_nothing_is_told_of_what_chance_explains() -> None:
    chance = random.Random(2)
    odd = {n: chance.random() < 0.5 for n in SIZES}
    assert message(lambda c: odd[c.dims_map["N"]] != (c.distribution == "outlier")) == ""
    assert message(lambda c: c.dims_map["N"] == 1 and c.distribution == "outlier") == "", (
        "one case shares all with itself"
    )
    assert message(lambda c: True) == ""
    assert message(lambda c: False) == ""


def test_cases_that_hide_errors_and_unsupported_ones_say_nothing() -> None:
    task = find("softmax")
    failed = Failed(stage="correctness", reason="wrong_output", message="it is wrong")
    refused = Failed(stage="load", reason="unsupported", message="no bfloat16")
    wrong = [case_of("softmax", {"M": 4, "N": n}) for n in (100, 300, 500, 700, 900)]
    right = [case_of("softmax", {"M": 4, "N": n}) for n in (8, 16, 32, 64, 80, 96, 256, 512, 1024, 2048)]
    hidden = case_of("softmax", {"M": 4, "N": 600}, distribution="zeros")
    outcomes: dict[Case, Outcome] = dict.fromkeys(wrong, failed) | dict.fromkeys(right, Passed())
    outcomes[hidden] = Passed()
    outcomes[case_of("softmax", {"M": 4, "N": 128}, dtype="bfloat16")] = refused
    (finding,) = shared(task, outcomes)
    assert "all 5 cases with wrong_output, and none of 10 right ones of standard data, have N" in finding.message
    assert "no multiple of 8" in finding.message
    assert finding.evidence == {"cases": [case.key for case in wrong]}


def test_cases_that_were_not_run_are_not_wrong() -> None:
    """After a hang all later cases have its reason, and the plan lists forward before backward."""
    task, hung = find("softmax"), Failed(stage="call", reason="timeout", message="no answer within 15 s")
    forward = [case_of("softmax", {"M": 4, "N": n}) for n in range(10, 40)]
    backward = [case_of("softmax", {"M": 4, "N": n}, direction="backward") for n in range(10, 30)]
    later = Failed(stage="call", reason="timeout", message="not run after: no answer within 15 s")
    outcomes = dict.fromkeys(forward, Passed()) | {backward[0]: hung} | dict.fromkeys(backward[1:], later)
    assert shared(task, outcomes) == []


def test_right_cases_of_data_that_hide_an_error_do_not_count_for_sizes() -> None:
    said = message(
        lambda c: c.dtype == "float16" and c.dims_map["N"] > 256 and c.distribution == "standard",
        dtype=("float32", "float16"),
    )
    assert "have N of 513 or more (right up to 256)" in said


@pytest.mark.slow
def test_a_verdict_begins_its_findings_with_the_cause(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "softmax.py"
    path.write_text(
        "import torch\n\ndef softmax(x):\n    out = torch.softmax(x, -1)\n"
        "    if x.shape[-1] & (x.shape[-1] - 1):\n        out[..., -1] = 0\n    return out\n"
    )
    verdict = check(
        path,
        task="softmax",
        judge=judge,
        tier="quick",
        timed=False,
        dtypes=("float32",),
        directions=("forward",),
        allow=("custom", "mixed", "library"),
    )
    assert verdict.findings[0].check == "cause"
    assert "N that is no power of two" in verdict.findings[0].message
