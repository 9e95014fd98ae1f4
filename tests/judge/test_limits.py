from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneleval import devices
from kerneleval.judge import limits
from kerneleval.records import InfrastructureError, Limits, to_plain


def test_limits_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_FOR_S", 0.0)
    monkeypatch.setattr(limits, "_LEAST_S", 0.0)
    monkeypatch.setattr(limits, "_CACHES", 1)
    found = limits.measure(devices.find("cpu"), ("float32", "bfloat16", "int8"))
    assert [dtype for dtype, _ in found.flop_per_s] == ["float32", "bfloat16"]
    assert 1e8 < found.bandwidth_bytes_per_s < 1e13
    assert all(1e7 < rate < 1e16 for _, rate in found.flop_per_s)
    assert Limits.from_plain(to_plain(found)) == found


def test_no_memory_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "ones", full)
    with pytest.raises(InfrastructureError, match="no memory left to measure"):
        limits.measure(devices.find("cpu"), ())


def test_least_time() -> None:
    found = Limits(bandwidth_bytes_per_s=100.0, flop_per_s=(("float32", 10.0),))
    assert found.least_s(50.0, 100.0, "float32") == 5.0
    assert found.least_s(5.0, 100.0, "float32") == 1.0
    assert found.least_s(1e9, 100.0, "int8") == 1.0
