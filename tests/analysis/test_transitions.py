from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from kerneleval.analysis import transitions as learning
from kerneleval.analysis.formats import kernelbenchx
from kerneleval.analysis.transitions import (
    Step,
    counts,
    essence,
    really_changed,
    repair_bias,
    shares,
    steps_of_run,
    transitions,
)
from kerneleval.records import UsageError

CODE = "def run(x):\n    '''Doubles.'''\n    return x * 2  # twice\n"
BARE = "def run(x):\n  return x*2"
OTHER = "def run(x):\n    return x + x\n"

RIGHT = Step(
    task="t",
    chain="c",
    round=0,
    code=CODE,
    built=True,
    called=True,
    correct=True,
    speedup=1.0,
    low=0.99,
    high=1.01,
    noise=0.01,
)
WRONG = Step(
    task="t",
    chain="c",
    round=0,
    code=CODE,
    built=True,
    called=True,
    correct=False,
    stage="correctness",
    reason="wrong_output",
)


def after(speedup: float, code: str = OTHER, width: float = 0.01, **changes: object) -> Step:
    made = dataclasses.replace(
        RIGHT, round=1, code=code, speedup=speedup, low=speedup / (1 + width), high=speedup * (1 + width)
    )
    return dataclasses.replace(made, **changes)


def speed(before: Step, later: Step, **more: float) -> str:
    (found,) = transitions([[before, later]], **more)
    return found.speed


def test_the_same_code_never_changes_its_speed() -> None:
    assert speed(RIGHT, after(3.0)) == "faster"
    assert speed(RIGHT, after(3.0, CODE)) == "same_code"
    assert speed(RIGHT, after(3.0, BARE)) == "same_code"
    assert speed(RIGHT, after(0.3, BARE)) == "same_code"


def test_effects_within_noise_are_none() -> None:
    assert speed(RIGHT, after(1.012)) == "unchanged"  # within the noise floors
    assert speed(RIGHT, after(1.05)) == "faster"
    assert speed(RIGHT, after(1.05, width=0.2)) == "unchanged"  # within the intervals
    assert speed(RIGHT, after(0.9)) == "slower"
    bare = {"low": math.nan, "high": math.nan, "noise": math.nan}
    without = dataclasses.replace(RIGHT, **bare)
    assert speed(without, after(1.018, **bare)) == "unchanged"
    assert speed(without, after(1.03, **bare)) == "faster"
    assert speed(without, after(1.03, **bare), noise=0.05) == "unchanged"


def test_times_of_two_machines_are_not_compared() -> None:
    assert speed(RIGHT, after(3.0, machine="another")) == "other_machine"


def test_states_stage_by_stage() -> None:
    unbuilt = dataclasses.replace(WRONG, built=False, called=False, stage="build")
    chain = [unbuilt, WRONG, RIGHT, after(2.0), dataclasses.replace(WRONG, code=OTHER)]
    found = transitions([chain])
    assert [t.build for t in found] == ["rescued", "still_passing", "still_passing", "still_passing"]
    assert [t.correct for t in found] == ["still_failing", "rescued", "still_passing", "regressed"]
    assert [t.speed for t in found] == ["untimed", "newly_timed", "faster", "no_longer_timed"]
    assert counts(found)["correct"] == {"rescued": 1, "regressed": 1, "still_failing": 1, "still_passing": 1}
    of = shares(found)
    assert (of["rescue_rate"].value, of["rescue_rate"].n) == (0.5, 2)
    assert (of["regression_rate"].value, of["faster_rate"].value) == (0.5, 1.0)
    unknown = transitions([[dataclasses.replace(WRONG, built=None), RIGHT]])
    assert unknown[0].build == "not_told"


def test_rescued_kernels_beside_those_that_were_right() -> None:
    rescued = [[dataclasses.replace(WRONG, task=f"a{i}"), after(0.5 + i / 100, task=f"a{i}")] for i in range(20)]
    right = [[dataclasses.replace(RIGHT, task=f"b{i}"), after(1.5 + i / 100, task=f"b{i}")] for i in range(20)]
    bias = repair_bias(transitions([*rescued, *right]))
    assert (bias.rescued.value, bias.right_before.value) == (pytest.approx(0.595), pytest.approx(1.595))
    assert bias.rescued.low < bias.rescued.value < bias.rescued.high
    assert bias.p < 1e-6
    assert math.isnan(repair_bias(transitions(rescued)).p)
    assert "95 %" in repair_bias(transitions(rescued[:3])).rescued.note


@pytest.mark.slow
def test_intervals_of_medians_hold_the_truth() -> None:
    """95 % at least, as order statistics have it, and not much more."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        chains = [
            [dataclasses.replace(WRONG, task=f"a{i}"), after(float(np.exp(x)), task=f"a{i}")]
            for i, x in enumerate(generator.normal(0, 0.3, 25))
        ]
        median = repair_bias(transitions(chains)).rescued
        held += median.low <= 1.0 <= median.high
    assert 0.92 * 400 <= held < 400
    assert stats.binom.cdf(held, 400, 0.957) > 1e-4


@pytest.mark.parametrize(
    ("one", "other", "changed"),
    [
        (CODE, BARE, False),
        (CODE, OTHER, True),
        ("int f() { return 1; } // one", "int f()\n{\n  return 1; /* 1 */\n}", False),
        ("int f() { return 1; }", "int f() { return 2; }", True),
        ("#define N 4\nint f();", "#define N 8\nint f();", True),
        ("def f(:", "def f(:  # no Python", False),
        ("", "\0", True),
    ],
)
def test_what_counts_as_a_change_of_code(one: str, other: str, changed: bool) -> None:
    assert really_changed(one, other) is changed
    assert really_changed(other, one) is changed


def test_deeply_nested_code_is_compared_as_text() -> None:
    deep = "(" * 100_000
    assert essence(deep) == deep


def test_pairs_are_of_real_changes_alone() -> None:
    chains = [
        [WRONG, after(2.0)],
        [RIGHT, after(2.0)],
        [RIGHT, after(2.0, CODE)],
        [RIGHT, after(1.001)],
        [WRONG, after(2.0, BARE)],
        [RIGHT, dataclasses.replace(WRONG, code=OTHER)],
        [WRONG, after(2.0, "")],
    ]
    found = transitions(chains)
    rows = list(learning.pairs(found))
    assert [row["kind"] for row in rows] == ["correction", "optimisation"]
    assert rows[0]["failed_reason"] == "wrong_output"
    assert (rows[1]["before"], rows[1]["after"], rows[1]["ratio"]) == (CODE, OTHER, 2.0)
    assert set(rows[0]) == set(learning.COLUMNS)
    assert learning.left_out(found) == {
        "the code did not change": 2,
        "the speed is unchanged": 1,
        "the second is wrong": 1,
        "a source is missing": 1,
    }


# --------------------------------------------------------------------------------------------------------------------
# KernelBench-X's corpus
# --------------------------------------------------------------------------------------------------------------------


def line(**changes: object) -> dict[str, object]:
    side = {"call_ok": True, "exe_ok": True, "perf_ok": True, "speedup": 1.25, "error": ""}
    return {
        "task_id": "Activation/gelu.py",
        "from_round": "round_0",
        "to_round": "round_1",
        "kind": "speedup_increase",
        "before": side,
        "after": {**side, "speedup": 1.26},
        "before_code": CODE,
        "after_code": CODE,
        **changes,
    }


def test_a_corpus_is_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    failed = {"call_ok": True, "exe_ok": False, "perf_ok": False, "speedup": None, "error": "off by one"}
    path.write_text("\n".join(map(json.dumps, [line(), line(before=failed, kind="exe_fail_to_pass")])) + "\n\n")
    one, other = kernelbenchx.read(path)
    assert one.kinds == ("speedup_increase",)
    (same, rescued) = transitions([[one.before, one.after], [other.before, other.after]])
    assert (same.speed, same.code_changed, same.ratio) == ("same_code", False, pytest.approx(1.008))
    assert (rescued.correct, rescued.speed, rescued.before.message) == ("rescued", "newly_timed", "off by one")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "line 1: this is not JSON"),
        ("[1]", "line 1: a record is an object, got list"),
        (json.dumps(line(before=None)), "line 1: before must be an object, got None"),
        (json.dumps(line(to_round="last")), "line 1: a round is called round_N, got 'last'"),
        (json.dumps(line(after_code=3)), "line 1: after_code must be a text, got 3"),
        (json.dumps(line(after={"call_ok": 1})), "line 1, after: call_ok must be true or false, got 1"),
        (json.dumps(line(after={"call_ok": True, "exe_ok": True, "speedup": -1})), "speedup must be a positive number"),
        (json.dumps(line(after={"call_ok": True, "exe_ok": True, "speedup": math.nan})), "speedup must be a positive"),
        ("\n", "holds no record"),
    ],
)
def test_what_is_no_corpus_is_named(tmp_path: Path, bad: str, said: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(bad)
    with pytest.raises(UsageError, match=said):
        kernelbenchx.read(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: no such file"):
        kernelbenchx.read(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        kernelbenchx.read(tmp_path / "bytes.jsonl")


def test_no_chain_in_a_run_without_parents() -> None:
    assert steps_of_run([], {}) == []
