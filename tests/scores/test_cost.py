from __future__ import annotations

import dataclasses
import math

import pytest
from score_builders import rows

from kerneleval.records import Origin
from kerneleval.scores import Setting, find


def sample(task, outcomes, usd, *, number=0, tokens=1000, judged_s=2.0):
    origin = Origin(money_usd=usd, tokens_in=tokens, tokens_out=10 * tokens, sample=number)
    cells = rows(task, outcomes, sample=number)
    return [dataclasses.replace(r, origin=origin, judged_s=judged_s) for r in cells]


def test_failed_samples_are_paid_for():
    cells = [
        *sample("a", [2.0, 2.0], 0.10),
        *sample("a", ["wrong_output", 2.0], 0.30, number=1),
        *sample("b", [1.0, 1.0], 0.20),
    ]
    found = find("cost")(cells, Setting())
    assert found["usd/sample"].value == pytest.approx(0.2)
    assert found["usd/correct"].value == pytest.approx(0.3)
    assert found["usd/accepted"].value == pytest.approx(0.6)
    assert found["tokens_out/correct"].value == pytest.approx(15_000)
    assert found["judging_s/sample"].value == pytest.approx(2.0)
    assert found["usd/sample"].n == 3
    assert found["usd/accepted"].high == math.inf  # of two tasks, one alone may be drawn
    assert "no upper end" in found["usd/accepted"].note


def test_what_nobody_recorded_is_left_out():
    found = find("cost")(rows("a", [2.0]), Setting())
    assert found == {}
    cells = [*sample("a", [2.0], 0.5), *sample("b", [2.0], 0.0)]
    found = find("cost")(cells, Setting())
    assert found["usd/sample"].value == pytest.approx(0.5)
    assert "recorded of 1 of 2 samples" in found["usd/sample"].note


def test_nothing_correct_has_no_price():
    found = find("cost")(sample("a", ["wrong_output"], 0.5), Setting())
    assert math.isnan(found["usd/correct"].value)
    assert "no correct sample" in found["usd/correct"].note


def test_coverage_by_the_groups_of_another_taxonomy():
    cells = [
        *(dataclasses.replace(r, group="Activation") for r in rows("a", [2.0])),
        *(dataclasses.replace(r, group="Loss") for r in rows("b", ["wrong_output"])),
        *rows("c", [2.0]),
    ]
    found = find("c_op_by_group")(cells, Setting())
    assert {key: of.value for key, of in found.items()} == {
        "Activation/forward": 1.0,
        "Activation/all": 1.0,
        "Loss/forward": 0.0,
        "Loss/all": 0.0,
        "all/forward": 0.5,
        "all/all": 0.5,
    }
    assert next(iter(found)) == "Activation/forward"
