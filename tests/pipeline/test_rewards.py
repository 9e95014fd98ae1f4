"""Rewards: what a verdict is worth, and a warm judge that many threads may ask."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from kerneleval import Rewarder, UsageError
from kerneleval.records import Case, CellResult, Failed, Machine, Passed, Protocol, SpeedupSummary, Trust, Verdict
from kerneleval.scores.common.rewards import of_verdict

MACHINE = Machine(device="cpu", name="a", arch="x", memory_bytes=1, cache_bytes=1, units=1, driver="d", torch="t")


def verdict(stage: str, reason: str, cells=(True, True), speedup=None) -> Verdict:
    case = Case(task="relu", direction="forward", dims=(("N", 4),), dtype="float32")
    outcomes = [Passed() if ok else Failed(stage=stage, reason=reason) for ok in cells]
    return Verdict(
        verdict="passed" if reason == "ok" else "failed",
        stage=stage,
        reason=reason,
        message="",
        task="relu",
        candidate="c",
        track="custom",
        trust=Trust(level="strong"),
        machine=MACHINE,
        protocol=Protocol(),
        speedup=speedup,
        cells=tuple(
            CellResult(case=dataclasses.replace(case, dims=(("N", i),)), outcome=o) for i, o in enumerate(outcomes)
        ),
    )


def timed(value: float, low: float, high: float, claim: str) -> Verdict:
    return verdict("timing", "ok", speedup=SpeedupSummary(value=value, low=low, high=high, claim=claim, cells=2))


def test_every_value_by_hand():
    assert of_verdict(verdict("build", "compile_error", (False, False))).value == 0.0
    assert of_verdict(verdict("call", "crash", (True, False))).value == 0.0
    assert of_verdict(verdict("honesty", "cached_result")).value == 0.0
    wrong = of_verdict(verdict("correctness", "wrong_output", (True, False)))
    assert (wrong.value, wrong.components["cells"]) == (0.1, 0.5)
    # being wrong everywhere is worth the same: what passes at zeros is no progress
    assert of_verdict(verdict("correctness", "wrong_output", (False, False))).value == 0.1
    assert of_verdict(verdict("correctness", "ok")).value == pytest.approx(0.4 + 0.6 / 3)  # right, not timed
    assert of_verdict(timed(1.02, 0.99, 1.05, "equal")).value == pytest.approx(0.6)
    assert of_verdict(timed(1.02, 1.001, 1.05, "inconclusive")).value == pytest.approx(0.6)
    assert of_verdict(timed(2.1, 2.0, 2.2, "faster")).value == pytest.approx(0.4 + 0.6 * 2 / 3)
    assert of_verdict(timed(9.0, 8.0, 10.0, "faster")).value == 1.0
    assert of_verdict(timed(0.45, 0.4, 0.5, "slower")).value == pytest.approx(0.4)
    assert of_verdict(timed(0.01, 0.009, 0.02, "slower")).value == pytest.approx(0.4)


def test_faster_is_worth_more_and_wrong_less_than_right():
    values = [of_verdict(timed(s * 1.05, s, s * 1.1, "faster")).value for s in (1.05, 1.3, 2.0, 3.9)]
    assert values == sorted(values)
    slow = of_verdict(timed(0.1, 0.09, 0.11, "slower")).value
    assert of_verdict(verdict("correctness", "wrong_output")).value < slow < values[0]


WRONG = "import torch\n\n\ndef relu(x):\n    return torch.zeros_like(x)\n"


def test_one_warm_judge_for_many_threads():
    with Rewarder("cpu", directions=("forward",), allow=("custom", "mixed", "library")) as rewarder:
        found: dict[str, float] = {}

        def ask(name: str, text: str) -> None:
            found[name] = rewarder(text, "relu", language="torch").value

        texts = {"wrong": WRONG, "again": WRONG, "broken": "def relu(x:\n", "leaky": WRONG.replace("zeros", "ones")}
        threads = [threading.Thread(target=ask, args=item) for item in texts.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {"wrong": 0.1, "again": 0.1, "broken": 0.0, "leaky": 0.1}
        first = rewarder.submit(WRONG, "relu", language="torch")
        assert first is rewarder.submit(WRONG, "relu", language="torch")  # judged once
        with pytest.raises(UsageError, match="no task"):
            rewarder(WRONG, "reluu")
        with pytest.raises(UsageError, match="empty"):
            rewarder(" ", "relu")
    with pytest.raises(UsageError, match="closed"):
        rewarder(WRONG, "relu")


def test_shapes_are_drawn_in_secret():
    with Rewarder("cpu") as one, Rewarder("cpu") as other:
        assert one._protocol.suite_seed != other._protocol.suite_seed
    with Rewarder("cpu", suite_seed=3) as fixed:
        assert fixed._protocol.suite_seed == 3
