"""Peaks of the GPU that is here: below the data sheet, and not far below."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kerneleval import devices
from kerneleval.devices.common.datasheet import product_of
from kerneleval.judge import Judge
from kerneleval.judge.machine import peaks
from kerneleval.pipeline import check

pytestmark = [pytest.mark.gpu, pytest.mark.serial]


@pytest.mark.parametrize("name", peaks.NAMES)
def test_peaks_are_below_the_data_sheet_and_not_far_below(name: str) -> None:
    device = devices.find("cuda")
    machine = device.machine()
    found = peaks.measure(device, machine, name)
    if found.why_not:
        pytest.skip(found.why_not)
    assert found.median > 0.5 * found.best, "the machine was not steady"
    product = product_of(machine)
    stated = product.figure(name) if product else 0.0
    if stated:
        assert 0.4 < found.best / stated < 1.05, f"{found.best:.3g} of {stated:.3g}"


def test_caches_are_faster_than_memory() -> None:
    device = devices.find("cuda")
    machine = device.machine()
    assert peaks.measure(device, machine, "cache").best > peaks.measure(device, machine, "copy").best


GELU = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"


def test_an_honest_kernel_is_never_impossible(new_cache: Callable[[], Path], tmp_path: Path) -> None:
    """Windows that the caches hold and windows that they cannot hold, against limits that were measured just now."""
    path = tmp_path / "gelu.py"
    path.write_text(GELU)
    with Judge("cuda", new_cache()) as judge:
        peaks.known(judge.device, judge.machine, judge.pool.cache_dir, (*peaks.BANDWIDTHS, "cache"), again=True)
        verdict = check(
            path,
            "gelu",
            judge=judge,
            allow=("library",),
            dtypes=["float32"],
            directions=["forward"],
            distributions=["standard"],
            categories=["small", "medium", "large"],
        )
        assert verdict.verdict == "passed", verdict.message
        fractions = [c.outcome.evidence["limit"]["iou"] for c in verdict.cells if c.outcome.timing]  # type: ignore[union-attr]
        assert fractions
        assert all(0 < fraction < 1.05 for fraction in fractions)
