"""What counts as a change between two verdicts, and what is noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from kerneleval.records import (
    SHAPE_CATEGORIES,
    Case,
    CellResult,
    Failed,
    Finding,
    Machine,
    Outcome,
    Passed,
    Protocol,
    Samples,
    SpeedupSummary,
    Timing,
    Trust,
    Verdict,
)
from kerneleval.scores.common.changes import KINDS, compare

MACHINE = Machine(device="cpu", name="a", arch="x", memory_bytes=1, cache_bytes=1, units=2, driver="6", torch="2.13.0")


def case(i: int, shift: int = 0) -> Case:
    return Case(
        task="gelu",
        direction="forward",
        dims=(("M", 4 + i + shift), ("N", 7)),
        dtype="float32",
        shape_category=SHAPE_CATEGORIES[i],
    )


def timing(speedup: float, half: float = 0.02, noise: float = 0.015) -> Timing:
    low, high = speedup / (1 + half), speedup * (1 + half)
    return Timing(samples=Samples(), speedup=speedup, low=low, high=high, noise=noise, claim="inconclusive")


def verdict(outcomes: list[Outcome], shift: int = 0, **more: Any) -> Verdict:
    failed = next((o for o in outcomes if isinstance(o, Failed) and o.reason != "unsupported"), None)
    timed = any(isinstance(o, Passed) and o.timing is not None for o in outcomes)
    values: dict[str, Any] = {
        "verdict": "passed" if failed is None else "failed",
        "stage": "timing" if failed is None else failed.stage,
        "reason": "ok" if failed is None else failed.reason,
        "message": "",
        "task": "gelu",
        "candidate": "ab" * 32,
        "track": "custom",
        "trust": Trust(level="strong"),
        "machine": MACHINE,
        "protocol": Protocol(),
        "speedup": SpeedupSummary(value=1.0, low=0.9, high=1.1, claim="equal", cells=1) if timed else None,
        "cells": tuple(CellResult(case=case(i, shift), outcome=o) for i, o in enumerate(outcomes)),
    }
    return Verdict(**{**values, **more})


def timed(speedups: list[float], shift: int = 0, half: float = 0.02, **more: Any) -> Verdict:
    return verdict([Passed(timing=timing(s, half)) for s in speedups], shift, **more)


def wrong(reason: str = "wrong_output", stage: str = "correctness") -> Failed:
    return Failed(stage=stage, reason=reason)


def kinds(before: Verdict, after: Verdict) -> list[str]:
    found = [change.kind for change in compare(before, after).changes]
    assert set(found) <= set(KINDS)
    return found


RIGHT = Passed()


def test_speedups_by_two_rules_are_not_compared():
    back = SpeedupSummary(value=1.0, low=0.9, high=1.1, claim="equal", cells=3, direction="backward")
    sides = [timed([speed] * 3, speedup=back, protocol=Protocol(version=v)) for speed, v in ((1.0, 1), (3.0, 2))]
    found = compare(*sides)
    assert not found.changes
    assert found.notes == ("speedups not compared: timed by protocol version 1 then, 2 now",)
    forward = [timed([speed] * 3, protocol=Protocol(version=v)) for speed, v in ((1.0, 1), (3.0, 2))]
    assert kinds(*forward) == ["speedup"]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (verdict([RIGHT, RIGHT]), verdict([RIGHT, RIGHT]), []),
        (verdict([RIGHT, RIGHT]), verdict([RIGHT, wrong()]), ["passed->failed"]),
        (verdict([RIGHT, wrong()]), verdict([RIGHT, RIGHT]), ["failed->passed"]),
        (verdict([wrong()]), verdict([wrong("crash", "call")]), ["reason"]),
        (verdict([RIGHT]), verdict([RIGHT], track="mixed"), ["track"]),
        (verdict([RIGHT]), verdict([wrong()], track="mixed"), ["passed->failed", "track"]),
        (verdict([wrong()], track=""), verdict([RIGHT]), ["failed->passed"]),
        (verdict([wrong(), RIGHT]), verdict([RIGHT, wrong()], shift=9), []),
        (verdict([wrong(), RIGHT]), verdict([wrong("crash", "call"), wrong()], shift=9), []),
        (verdict([wrong("unsupported", "call"), RIGHT]), verdict([RIGHT, RIGHT], shift=9), []),
        (verdict([RIGHT, wrong()], verdict="passed", reason="ok"), verdict([RIGHT, RIGHT]), ["cells"]),
        (verdict([wrong("unsupported", "call")]), verdict([RIGHT]), ["cells"]),
        (verdict([RIGHT], verdict="failed", reason="crash"), verdict([wrong("crash", "call")]), ["cells"]),
    ],
    ids=[
        "same",
        "failed",
        "passed",
        "reason",
        "track",
        "both",
        "undecided",
        "another-cell",
        "first-another",
        "unsupported",
        "passed-against-cells",
        "passed-nowhere",
        "failed-against-cells",
    ],
)
def test_verdict_reason_and_track(before: Verdict, after: Verdict, found: list[str]) -> None:
    assert kinds(before, after) == found


def test_who_knows_the_planned_sizes_alone_supports_none_elsewhere() -> None:
    knows = verdict([wrong("hard_coded_shapes", "call")])  # as a store keeps the cells of one that failed as a whole
    none = {"verdict": "failed", "stage": "call", "reason": "unsupported"}
    assert kinds(knows, verdict([wrong("unsupported", "call")], shift=9, **none)) == []
    assert kinds(knows, verdict([wrong("unsupported", "call")], **none)) == ["reason"], "at the same sizes it is news"


SPEEDS = [1.1, 1.5, 0.9, 2.0, 1.3, 1.2, 1.6, 1.4]


def scaled(factor: float) -> list[float]:
    return [s * factor for s in SPEEDS]


def test_a_speedup_that_fell_in_every_cell_is_a_change() -> None:
    (change,) = compare(timed(SPEEDS), timed(scaled(0.7))).changes
    assert (change.kind, change.before) == ("speedup", "1.34x")
    assert change.after == "0.938x over 8 pairs of cells, 0.7 times as fast"


@pytest.mark.parametrize(
    "after",
    [
        timed(scaled(0.98)),  # within both floors
        timed(scaled(0.7), half=1.5),  # within the intervals
        timed([*SPEEDS[:-1], SPEEDS[-1] * 0.2]),  # one cell that was disturbed, as the scatter shows
        timed([1.6, 0.7, 1.5, 1.0, 2.2, 1.9, 0.8, 1.2], shift=50),  # other shapes: other speeds
    ],
    ids=["floor", "interval", "one-cell", "other-shapes"],
)
def test_noise_is_no_change(after: Verdict) -> None:
    assert kinds(timed(SPEEDS), after) == []
    assert compare(timed(SPEEDS), after).notes == ()


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (timed(SPEEDS[:2]), timed([0.3, 0.3]), "less than 3"),
        (timed(SPEEDS), timed(scaled(0.3), machine=dataclasses.replace(MACHINE, driver="7")), "another machine"),
        (
            timed(SPEEDS),
            timed(scaled(0.3), findings=(Finding(check="conditions", level="warn", message="busy"),)),
            "unsteady now",
        ),
        (timed(SPEEDS), timed(scaled(0.3), protocol=Protocol(baseline="compile")), "against eager then, compile now"),
        (timed(SPEEDS), verdict([RIGHT]), "only one of the two was timed"),
    ],
)
def test_speedups_that_cannot_be_compared_are_said_to_be_so(before: Verdict, after: Verdict, why: str) -> None:
    compared = compare(before, after)
    assert compared.changes == ()
    assert [why in note for note in compared.notes] == [True]


def test_the_same_kernel_measured_twice_does_not_change() -> None:
    """2000 pairs of verdicts that differ by noise alone, of which part is common to all cells of a session."""
    generator = np.random.default_rng(20240607)
    false = 0
    for _ in range(2000):
        runs = []
        for _ in range(2):
            common = generator.normal(0, 0.003)
            own = generator.normal(0, 0.01, len(SPEEDS))
            runs.append(timed([s * float(np.exp(common + o)) for s, o in zip(SPEEDS, own, strict=True)]))
        false += bool(compare(*runs).changes)
    assert false <= 2
