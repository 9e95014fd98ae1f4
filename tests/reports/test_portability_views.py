"""The tables of ``matrix`` and ``differ``: whole words at 80 columns, every reason with its targets."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from kerneleval.records import (
    Apart,
    Case,
    CaseAnswers,
    DeviceAnswer,
    Differential,
    Element,
    Machine,
    Matrix,
    MatrixRow,
    Rung,
)
from kerneleval.reports.devices_view import render_differential, render_matrix

MACHINE = Machine(
    device="cpu",
    name="Intel(R) Xeon(R) Processor",
    arch="x86_64",
    memory_bytes=1 << 30,
    cache_bytes=1 << 20,
    units=2,
    driver="6.1",
    torch="2.13.0",
    triton="",
)
CASE = Case(task="gelu", direction="backward", dims=(("M", 4), ("N", 7)), dtype="bfloat16")
WORST = Element(output=0, shape=(4, 7), dtype="bfloat16", index=(1, 2), oracle=1.0, values={"cpu": 1.0, "opencl": 1.5})
APART = Apart(
    first="cpu",
    second="opencl",
    output=0,
    equal=20,
    of=28,
    relative_rms=3.8e-8,
    rms_of_bound=0.035,
    max_abs=1.5e-8,
    max_of_bound=0.013,
    worst=WORST,
)
DIFFERENTIAL = Differential(
    task="gelu",
    task_source="gelu",
    candidates={"cpu": "a", "opencl": "b"},
    sources={"cpu": "/a/long/way/to/the/files/gelu.cpp", "opencl": "/a/long/way/to/the/files/gelu.cl"},
    machines={"cpu": MACHINE, "opencl": dataclasses.replace(MACHINE, device="opencl")},
    cases=(
        CaseAnswers(
            case=CASE,
            answers=tuple(DeviceAnswer(device=name, answer="right", of_bound=0.05) for name in ("cpu", "opencl")),
            apart=(APART,),
        ),
    ),
)


def differing(width: int, **changed: object) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render_differential(dataclasses.replace(DIFFERENTIAL, **changed), console)  # type: ignore[arg-type]
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 140])
def test_what_differs_fits_the_terminal(width: int) -> None:
    lines = differing(width)
    assert not [line for line in lines if "…" in line]
    assert [line for line in lines if line.startswith("cpu     Intel(R)") and "gelu.cpp" in line]
    assert [line for line in lines if line.startswith("cpu, opencl  backward   0 bfloat16  71.43 %")]
    assert [line for line in lines if "share of the allowed error" in line]


def test_files_of_one_name_keep_their_folders() -> None:
    lines = differing(140, sources={"cpu": "one/gelu.py", "opencl": "two/gelu.py"})
    assert [line for line in lines if "one/gelu.py" in line]
    assert [line for line in lines if "two/gelu.py" in line]


def matrix_of(*rows: MatrixRow) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    render_matrix(Matrix(task="gelu", candidate="c" * 64, language="hip", rows=rows), console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def row(target: str, why: str) -> MatrixRow:
    rung = Rung(answer="not evaluated", why=why)
    return MatrixRow(target=target, product="", compiles=rung, runs=rung, correct=rung, fast=rung)


def test_a_reason_stands_once_with_all_its_targets() -> None:
    said = matrix_of(row("sm_80", "for AMD alone"), row("sm_90", "for AMD alone"), row("cpu", "does not run there"))
    assert "no target was tried; – is not evaluated" in said
    assert "not evaluated: sm_80, sm_90 (for AMD alone)" in said
    assert "not evaluated: cpu (does not run there)" in said
    tried = dataclasses.replace(row("gfx90a", ""), compiles=Rung(answer="yes"))
    assert "compiles for 1 of 1 target tried" in matrix_of(tried, row("sm_90", "for AMD alone"))
