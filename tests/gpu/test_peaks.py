"""Peaks of the GPU that is here: below the data sheet, and not far below."""

from __future__ import annotations

import pytest

from kerneleval import devices
from kerneleval.devices.datasheet import product_of
from kerneleval.judge import peaks

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
