"""On a GPU: the joules of a call in a verdict of the precise tier, from the card's own counter."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kerneleval.judge import Judge
from kerneleval.judge.timing.statistics import Noise
from kerneleval.judge.timing.timer import CLASSES_NS, NoiseFigures
from kerneleval.pipeline import check
from kerneleval.records import Passed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or torch.version.cuda is None, reason="no NVIDIA GPU"),
]


def test_a_precise_verdict_tells_joules(
    new_cache: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power lies between an idle card's and the most that any card draws; a call's energy is power times its time."""
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    with Judge("cuda", new_cache()) as judge:
        none = NoiseFigures(call=(Noise(spread=0.0, between=0.0),) * len(CLASSES_NS), device=())
        monkeypatch.setattr(judge, "noise", lambda *_: none)
        read_s = timeit.timeit(judge.device.energy_mj, number=40) / 40
        print(f"NVML's counter is read in {read_s * 1e3:.2f} ms")
        verdict = check(
            path,
            "gelu",
            judge=judge,
            tier="precise",
            allow=("library",),
            dtypes=["float32"],
            directions=["forward"],
            distributions=["standard"],
            categories=["large"],
        )
    assert verdict.verdict == "passed", verdict.message
    timed = [c.outcome for c in verdict.cells if isinstance(c.outcome, Passed) and c.outcome.timing is not None]
    assert timed
    for outcome in timed:
        energy = outcome.evidence["energy"]
        print(energy)
        assert "why_not" not in energy, energy
        assert outcome.timing is not None
        samples = outcome.timing.samples
        for side, taken_ns in (("candidate", samples.candidate_ns), ("baseline", samples.baseline_ns)):
            assert 50 < energy[f"{side}_w"] < 1500
            assert 0.5 <= energy[f"{side}_busy"] <= 1
            joules = energy[f"{side}_w"] * statistics.median(taken_ns) / 1e9
            assert energy[f"{side}_j"] == pytest.approx(joules, rel=0.2)
