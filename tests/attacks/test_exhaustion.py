"""A candidate that dies, hangs or takes everything is its own outcome and nobody else's."""

from __future__ import annotations

import os
import time

import pytest

from kerneleval.judge import Judge, cells
from kerneleval.pipeline import check
from tests.attacks.specimens import Specimen, collect

pytestmark = pytest.mark.xdist_group("judge")

SPECIMENS = collect("cpu", "exhaustion")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):
    with Judge("cpu", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


def _processes() -> set[int]:
    return {int(p) for p in os.listdir("/proc") if p.isdigit()}


@pytest.mark.parametrize("specimen", SPECIMENS, ids=[s.name for s in SPECIMENS])
def test_is_that_candidates_outcome(judge: Judge, specimen: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CALL_TIMEOUT_S", 5.0)
    monkeypatch.setattr("kerneleval.judge.bench._LOAD_TIMEOUT_S", 5.0)
    before = _processes()
    started = time.monotonic()
    options = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"], "tier": "quick"}
    verdict = check(specimen.path, specimen.task, judge=judge, allow=specimen.allow, **options)
    assert (verdict.verdict, verdict.stage) == ("failed", specimen.stage), verdict.message
    assert verdict.reason in specimen.reasons, verdict.message
    assert verdict.message
    assert time.monotonic() - started < 60
    # the judge goes on, with nothing left behind: only its zygote and one fresh spare may be new
    assert len(_processes() - before) <= 3
    honest = check(
        specimen.path.parent.parent / "honest" / "torch_gelu.py", "gelu", judge=judge, allow=("library",), **options
    )
    assert honest.verdict == "passed", honest.message
