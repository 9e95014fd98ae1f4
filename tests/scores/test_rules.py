"""Times of two rules are neither pooled nor compared, and that is said."""

from __future__ import annotations

import dataclasses
import math

import pytest
from score_builders import rows

from kerneleval.records import Protocol, UsageError
from kerneleval.scores import Setting, find, score_all
from kerneleval.scores.common.by_task import compare_tasks
from kerneleval.scores.common.paired import compare
from kerneleval.scores.common.rules import old_rule, rule_of


def of(results, version):
    return [dataclasses.replace(r, protocol_version=version, run=f"v{version}") for r in results]


BACK = rows("a", [1.0, 2.0, 3.0], direction="backward")
FORTH = rows("a", [1.0, 2.0, 3.0])
ELSEWHERE = rows("b", [1.0, 2.0, 3.0], direction="backward")


def test_what_changed_are_backward_times():
    assert [rule_of(d, v) for d in ("forward", "backward") for v in (1, 2)] == [1, 1, 1, 2]
    assert rule_of("forward", Protocol.version + 1) == Protocol.version + 1  # nothing is known of it
    assert all(r.protocol_version == Protocol.version for r in BACK)


def test_backward_times_of_two_rules_are_not_scored_together():
    mixed = of(BACK, 1) + of(ELSEWHERE, 2)
    for score in (lambda: find("speedup_med")(mixed, Setting()), lambda: score_all(mixed)):
        with pytest.raises(UsageError, match="backward times of run v1 are by protocol version 1, those of run v2 by"):
            score()
    other = [dataclasses.replace(r, generator="h") for r in of(ELSEWHERE, 2)]
    with pytest.raises(UsageError, match="not scored together"):
        score_all(of(BACK, 1) + other)
    assert find("speedup_med")(of(FORTH, 1) + of(BACK, 2), Setting()).n == 6
    untimed = rows("b", [None] * 3, direction="backward")
    assert find("speedup_med")(of(BACK, 1) + of(untimed, 2), Setting()).n == 3


def test_a_comparison_leaves_them_out_and_says_so():
    found = compare(of(FORTH + BACK, 1), of(rows("a", [2.0, 4.0, 6.0]) + BACK, 2))
    assert {c.change for c in found.cells if c.direction == "backward"} == {"other_rule"}
    assert found.counts()["faster"] == 3 and found.counts()["other_rule"] == 3
    assert (found.speed.value, found.speed.n) == (pytest.approx(2.0), 3)
    assert found.rules.startswith("Backward speedups are not compared: the first are by protocol version 1, the second")
    assert compare(of(FORTH, 1), of(FORTH, 2)).rules == ""


def test_a_comparison_by_task_leaves_them_out_too():
    there = rows("a", [4.0], direction="backward", device="cuda") + rows("a", [6.0], device="cuda")
    found = compare_tasks(of(FORTH + BACK, 1), of(there, 2))
    by_direction = {pair.direction: pair.ratio for pair in found.pairs}
    assert math.isnan(by_direction["backward"]) and not math.isnan(by_direction["forward"])
    assert found.speed.value == pytest.approx(by_direction["forward"])
    assert found.rules.startswith("Backward speedups are not compared")


def test_an_old_run_says_which_rule_it_was_timed_by():
    def said(**changes):
        plain = dataclasses.asdict(dataclasses.replace(Protocol(), **changes))
        return old_rule(plain)

    assert said(version=1).startswith("Forward times are by protocol version 1, not 3: before version 3 they are call")
    assert said(version=2, directions=("backward",)).startswith("Backward times are by protocol version 2, not 3")
    assert said() == said(version=1, timed=False) == ""
