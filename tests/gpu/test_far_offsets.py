"""Offsets beyond 31 bits on a GPU: who is wrong there, and what a verdict pays for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.attacks.specimens import Specimen, collect, got_its_due, judged

from kerneleval.judge import Judge
from kerneleval.judge.probes import cells, far
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import Finding, Protocol
from kerneleval.tasks import find

pytestmark = pytest.mark.gpu

ROOM = 31 << 30
"""Memory that a pointwise case in float16 may take."""


@pytest.fixture(scope="module")
def gpu() -> Iterator[Judge]:
    with Judge("cuda") as judge:
        if far.room_bytes(judge.device) < ROOM:
            pytest.skip(f"not run: {ROOM >> 30} GiB of device memory may be needed for one case")
        yield judge


@pytest.mark.parametrize("specimen", collect("cuda", "far"), ids=lambda one: one.name)
def test_who_is_wrong_beyond_31_bits(gpu: Judge, specimen: Specimen) -> None:
    verdict = judged(gpu, specimen)
    said = [finding for finding in verdict.findings if finding.check == "far_offsets"]
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"
    assert all(finding.level == "fail" or finding.message.startswith("right at") for finding in said), said
    assert said


@pytest.mark.parametrize("name", ["gelu", "softmax", "layer_norm", "sum", "transpose", "index_select", "cumsum"])
def test_the_library_is_right_there_and_it_takes_little(
    gpu: Judge, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    took: list[float] = []

    def timed(*given: Any) -> list[Finding]:
        began = time.perf_counter()
        found = cells.far_offsets(*given)
        took.append(time.perf_counter() - began)
        return found

    monkeypatch.setattr("kerneleval.judge.judge.far_offsets", timed)
    task, protocol = find(name), Protocol(tier="standard", timed=False, directions=("forward",), allow=("library",))
    verdict = gpu.check(baseline_candidate(task, protocol), task, protocol, trusted=True)
    assert verdict.verdict == "passed", verdict.message
    said = [finding.message for finding in verdict.findings if finding.check == "far_offsets"]
    assert said and all(one.startswith("right at") for one in said), said
    with capsys.disabled():
        print(f"{name}: {took[0]:.2f} s of {verdict.seconds:.1f}, {len(said)} cases")
