"""Calls without an end on a GPU are told soon; compiling and tuning for longer than a call may take are not held up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.specimens import Specimen, collect, got_its_due, judged

from kerneleval.judge import Judge
from kerneleval.pipeline import check
from kerneleval.worker import waiting

pytestmark = pytest.mark.gpu

HANGS = ("gpu/hang", "gpu/hang_while_tuned", "exhaustion/hang_in_triton", "exhaustion/hang_in_backward")
SPECIMENS = [one for one in collect("cuda") if one.name in HANGS]

OPTIONS: dict[str, Any] = {
    "dtypes": ["float32"], "directions": ["forward"], "categories": ["small"], "timed": False,
    "allow": ["custom", "mixed", "library"],
}  # fmt: skip

TUNED = """
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK": size, "UNROLLED": count}, num_warps=warps)
    for size in (64, 128, 256, 512, 1024)
    for count in (8, 16, 24, 32)
    for warps in (2, 4, 8)
]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def _gelu(source, target, n, BLOCK: tl.constexpr, UNROLLED: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + places, mask=places < n)
    y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    for step in tl.static_range(UNROLLED):
        y = tl.where(y > 1e30 + step, tl.exp(y) + tl.sin(y), y)
    tl.store(target + places, y, mask=places < n)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _gelu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
"""

COMPILED = """
import torch


@torch.compile(mode="max-autotune-no-cudagraphs")
def gelu(x):
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge("cuda", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


@pytest.mark.parametrize("specimen", [pytest.param(one, id=one.name) for one in SPECIMENS])
def test_a_call_without_an_end_is_told_and_the_next_candidate_judged(
    specimen: Specimen, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "CALLS_S", 6.0)
    verdict = judged(judge, specimen)
    assert got_its_due(specimen, verdict), verdict.message
    assert "within 120 s" not in verdict.message, "nothing looked like a compiler for so long"
    honest = Path(__file__).parents[1] / "attacks" / "honest" / "torch_gelu.py"
    assert check(honest, "gelu", judge=judge, **OPTIONS).verdict == "passed"


@pytest.mark.parametrize("text", [TUNED, COMPILED], ids=["tuned", "compiled"])
def test_compiling_and_tuning_may_take_longer_than_a_call(
    text: str, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "CALLS_S", 3.0)
    file = tmp_path / "gelu.py"
    file.write_text(text)
    verdict = check(file, "gelu", judge=judge, **OPTIONS)
    assert verdict.verdict == "passed", verdict.message
