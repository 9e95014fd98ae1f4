"""Libraries that ``PYTHONPATH`` names: candidates can import them, and their kernels are not the candidate's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.pipeline import check
from kerneleval.records import Verdict
from kerneleval.sandbox import reach

LIBRARY = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + places, mask=places < n)
    tl.store(y + places, v * tl.sigmoid(v), mask=places < n)


def silu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
CANDIDATE = """
import triton
from carried_library import kernels


def silu(x):
    return kernels.silu(x)
"""
SPY = """
import torch


def silu(x):
    with open({path!r}) as file:
        file.read()
    return torch.nn.functional.silu(x)
"""


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library, beside a file that is no library."""
    root = tmp_path_factory.mktemp("carried")
    package = root / "libraries" / "carried_library"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text(LIBRARY)
    (root / "secret.txt").write_text("not for candidates")
    return root


@pytest.fixture(scope="module")
def judge(carried: Path, tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(carried / "libraries"), *sys.path]))
        with Judge("cpu", tmp_path_factory.mktemp("cache")) as judge:
            yield judge


def _check(judge: Judge, source: str, directory: Path) -> Verdict:
    path = directory / "silu.py"
    path.write_text(source)
    return check(path, "silu", judge=judge, dtypes=["float32"], directions=["forward"], categories=["tiny", "small"],
                 tier="quick", timed=False, allow=("custom", "mixed", "library"))  # fmt: skip


@pytest.mark.slow
def test_a_candidate_calls_a_carried_library(judge: Judge, tmp_path: Path) -> None:
    verdict = _check(judge, CANDIDATE, tmp_path)
    assert verdict.verdict == "passed", verdict.message
    assert verdict.track == "library"  # as if the library were installed


def test_what_lies_beside_the_library_stays_closed(judge: Judge, carried: Path, tmp_path: Path) -> None:
    verdict = _check(judge, SPY.format(path=str(carried / "secret.txt")), tmp_path)
    assert (verdict.stage, verdict.reason) == ("call", "exception")
    assert "FileNotFoundError" in verdict.message or "PermissionError" in verdict.message


def test_wide_folders_are_no_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library, work = tmp_path / "library", tmp_path / "work" / "here"
    for folder in (library, work / "own"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(work)
    package_root = Path(reach.__file__).parents[2]
    named = [library, work, tmp_path / "work", Path("/"), Path("/tmp"), package_root, tmp_path / "missing", library]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", *(str(p) for p in named), "own"]))
    assert reach.package_folders() == [os.path.realpath(library), os.path.realpath(work / "own")]
