"""Every specimen gets the verdict that it names, at the stage and for the reason that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.attacks.specimens import Specimen, cases, collect, elsewhere, every, got_its_due, judged

from kerneleval.judge import Judge
from kerneleval.judge.timing.effort import HOST_TIERS
from kerneleval.languages.common import opencl_runtime

SPECIMENS = [s for s in collect("cpu") if s.path.parent.name not in ("exhaustion", "far")]


@pytest.mark.parametrize("specimen", cases(SPECIMENS))
def test_gets_its_due(judge: Judge, specimen: Specimen) -> None:
    verdict = judged(judge, specimen)
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"


def test_merging_once_a_window_was_split_is_found_without_chance(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the split windows that are for certain: one after another that it saw."""
    monkeypatch.setitem(HOST_TIERS, "quick", replace(HOST_TIERS["quick"], one_split_in=1 << 62))
    (specimen,) = [one for one in every("laziness") if one.path.stem == "merged_after_split"]
    verdict = judged(judge, replace(specimen, categories=("small",)))
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"


@pytest.fixture(scope="module")
def opencl_judge() -> Iterator[Judge]:
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")
    with Judge("opencl") as judge:
        yield judge


@pytest.mark.parametrize("specimen", cases(collect("opencl")))
def test_gets_its_due_in_opencl(opencl_judge: Judge, specimen: Specimen) -> None:
    verdict = judged(opencl_judge, specimen)
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"


def test_specimens_for_other_devices_are_counted_as_not_run() -> None:
    assert set(elsewhere("cpu")) == {"cuda", "opencl"}
    assert set(elsewhere("opencl")) == {"cpu", "cuda"}
    assert {one.device for one in collect("opencl")} == {"opencl"}
