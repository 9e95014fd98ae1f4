"""The matrix tells kernels apart by what they use: H and R of the rubric for each target, with the instructions."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tests.pipeline import uses_specimens as specimens

from kerneleval import pipeline
from kerneleval.records import CandidateSpec, Matrix, MatrixRow, Protocol
from kerneleval.reports.devices_view import render_matrix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's"),
]
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="not run: no nvcc")


def matrix(tmp_path: Path, text: str, name: str, *targets: str) -> tuple[Matrix, dict[str, MatrixRow]]:
    path = tmp_path / name
    path.write_text(text)
    protocol = Protocol(dtypes=("float16",), directions=("forward",))
    found = pipeline.matrix(CandidateSpec(source=str(path), task="matmul"), protocol, targets=targets, judged=False)
    return found, {row.target: row for row in found.rows}


def levels(row: MatrixRow) -> tuple[int | None, int | None]:
    assert row.representation is not None and row.hardware is not None, row
    return row.representation.level, row.hardware.level


def units(row: MatrixRow) -> set[str]:
    return {name for kernel in row.kernels for name, _ in kernel.instructions}


def test_triton_for_hopper_and_portable_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
    targets = ("sm_80", "sm_90", "gfx942")
    _, hopper = matrix(tmp_path, specimens.HOPPER_TRITON, "hopper.py", *targets)
    shown, portable = matrix(tmp_path, specimens.PORTABLE_TRITON, "portable.py", *targets)
    for rows in (hopper, portable):
        assert {row.compiles.answer for row in rows.values()} == {"yes"}, [row.compiles for row in rows.values()]

    assert {"wgmma", "TMA"} <= units(hopper["sm_90"])
    assert levels(hopper["sm_90"]) == (2, 4)
    assert any("UTMALDG" in line for line in hopper["sm_90"].hardware.lines)  # type: ignore[union-attr]
    assert "TMA" not in units(hopper["sm_80"])  # there descriptors are ordinary loads, and the binary decides
    assert levels(hopper["sm_80"]) == (2, 2)
    assert "not in the compiled code, so not counted: triton.language.make_tensor_descriptor" in (
        hopper["sm_80"].hardware.reason  # type: ignore[union-attr]
    )

    assert "wgmma" in units(portable["sm_90"]) and "TMA" not in units(portable["sm_90"])
    assert {target: levels(row) for target, row in portable.items()} == dict.fromkeys(targets, (2, 2))
    assert "HGMMA.64x64x16.F32 (wgmma), " in portable["sm_90"].hardware.reason  # type: ignore[union-attr]
    assert portable["sm_90"].hardware.reason.endswith(", as its compiler chose")  # type: ignore[union-attr]
    assert "(mma)" in portable["gfx942"].hardware.reason  # type: ignore[union-attr]

    console = Console(file=io.StringIO(), width=80)
    render_matrix(shown, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    told = " ".join(printed.split())
    assert "sm_90: H (hardware) 2, in its source; compiled: 2 HGMMA.64x64x16.F32 (wgmma), " in told
    assert "sm_80, sm_90, gfx942: R (representation) 2, in its source" in told
    assert max(map(len, printed.split("compiles for")[0].splitlines())) <= 80


@needs_nvcc
def test_cuda_for_hopper_and_portable_cuda(tmp_path: Path) -> None:
    _, hopper = matrix(tmp_path, specimens.HOPPER_CUDA, "hopper.cu", "sm_80", "sm_90", "sm_100")
    _, portable = matrix(tmp_path, specimens.PORTABLE_CUDA, "portable.cu", "sm_80", "sm_100")

    assert {target: row.compiles.answer for target, row in hopper.items()} == {
        "sm_80": "no",
        "sm_90": "yes",
        "sm_100": "no",
    }
    assert "wgmma" in hopper["sm_100"].compiles.why
    assert hopper["sm_90"].only_for == "sm_90a"
    assert "only for sm_90a" in hopper["sm_90"].compiles.why and "for plain sm_90" in hopper["sm_90"].compiles.why
    assert {"wgmma", "TMA", "mbarrier"} <= units(hopper["sm_90"])
    assert levels(hopper["sm_90"]) == (4, 4)
    assert any("HGMMA.64x8x16" in line for line in hopper["sm_90"].hardware.lines)  # type: ignore[union-attr]

    for row in portable.values():
        assert (row.compiles.answer, row.compiles.why, row.only_for) == ("yes", "", ""), row.compiles.why
        assert levels(row) == (4, 1)
        assert "no instruction of a special unit" in row.hardware.reason  # type: ignore[union-attr]


@needs_nvcc
def test_what_is_not_launched_or_not_compiled_does_not_count(tmp_path: Path) -> None:
    _, decoy = matrix(tmp_path, specimens.DECOY, "decoy.cu", "sm_90")
    assert [kernel.name for kernel in decoy["sm_90"].kernels] == ["_Z6simplePK6__halfS1_PS_lll"]
    assert levels(decoy["sm_90"]) == (4, 1)
    assert "not in the compiled code, so not counted: " in decoy["sm_90"].hardware.reason  # type: ignore[union-attr]
    _, dead = matrix(tmp_path, specimens.DEAD, "dead.cu", "sm_80")
    assert levels(dead["sm_80"]) == (4, 1)


def test_another_case_is_tried_where_the_first_is_declared_unsupported(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
    text = specimens.PORTABLE_TRITON.replace(
        "    c = torch.empty",
        """    if torch.cuda.get_device_capability() == (8, 0):
        raise NotImplementedError("never")
    if k & (k - 1):
        raise NotImplementedError(f"no power of two: {k}")
    c = torch.empty""",
    )
    _, found = matrix(tmp_path, text, "powers.py", "sm_80", "sm_90")
    assert found["sm_90"].compiles.answer == "yes", found["sm_90"].compiles.why
    assert found["sm_80"].compiles.answer == "not evaluated"
    assert "it declares what was tried unsupported: NotImplementedError: never" in found["sm_80"].compiles.why
