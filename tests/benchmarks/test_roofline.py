"""The roofline benchmark, without the judge: which cases it takes, and what it says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import Report

from benchmarks import roofline
from kerneleval import devices, tasks
from kerneleval.records import Case, CellResult, Failed, Passed, Samples, Timing

MACHINE = devices.find("cpu").machine()


def case(direction: str, size: int) -> Case:
    return Case(task="gelu", direction=direction, dims=(("M", size), ("N", size)), dtype="float32")  # type: ignore[arg-type]


def cell(fraction: float, size: int = 8) -> CellResult:
    timing = Timing(
        samples=Samples(candidate_ns=(1e4, 2e4, 3e4), baseline_ns=(1e4,) * 3, cache="warm"),
        speedup=1.0,
        low=0.9,
        high=1.1,
        noise=0.1,
        claim="inconclusive",
    )
    limit = {"iou": fraction, "mfu": None, "fraction": fraction, "bound": "memory"}
    return CellResult(case=case("forward", size), outcome=Passed(timing=timing, evidence={"limit": limit}))


def test_the_largest_case_of_each_direction() -> None:
    planned = [case("forward", 16), case("backward", 64), case("forward", 32), case("backward", 8)]
    task = tasks.find("gelu")
    assert set(roofline.chosen(task, planned, real=False)) == {planned[1], planned[2]}


def test_shapes_of_models_that_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "_BYTES", 2 * 4 * 20 * 20)
    planned = [case("forward", 16), case("forward", 32)]
    assert roofline.chosen(tasks.find("gelu"), planned, real=True) == planned[:1]
    assert roofline.chosen(tasks.find("gelu"), planned, real=False) == planned[1:]


def test_what_lies_above_1_is_listed(tmp_path: Path, capsys: Any) -> None:
    untimed = CellResult(case=case("forward", 1), outcome=Passed())
    failed = CellResult(case=case("forward", 2), outcome=Failed(stage="call", reason="crash"))
    rows = roofline.rows_of([cell(0.5), untimed, failed, cell(1.2, size=9)])
    assert [(row.fraction, row.us, row.cache) for row in rows] == [(0.5, 20.0, "warm"), (1.2, 20.0, "warm")]
    report = Report("roofline", replace(MACHINE, name="here"), tmp_path)
    roofline._tell(report, rows, [("k", "crash", "m")], ["gelu (model)"], 3.0)
    report.write()
    said = capsys.readouterr().out
    assert "above 1: 1\n  gelu/forward/M=9,N=9/float32/contiguous/standard: 1.2000 (memory" in said
    assert "not run for lack of time: gelu (model)" in said
    (written,) = tmp_path.glob("roofline-here-*.json")
    assert json.loads(written.read_text())["above_1"] == [rows[1].case.key]


def test_nothing_above_1_is_said_too(tmp_path: Path, capsys: Any) -> None:
    roofline._tell(Report("roofline", MACHINE, tmp_path), roofline.rows_of([cell(0.5)]), [], [], 1.0)
    assert "above 1: nothing" in capsys.readouterr().out
