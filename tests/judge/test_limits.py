from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kerneleval import devices
from kerneleval.judge.machine import peaks
from kerneleval.records import InfrastructureError, Limits, Peak, Peaks, from_plain, to_plain

CPU = devices.find("cpu")


def known(**rates: float) -> Peaks:
    made = (Peak(name=name.replace("__", "/"), unit="B/s", best=rate) for name, rate in rates.items())
    return Peaks(machine="m", peaks=tuple(made))


def test_limits_are_the_best_peaks() -> None:
    found = peaks.limits_of(
        known(copy=10.0, read=12.0, write=5.0, cache=50.0, matrix__float32=3.0, vector__float32=4.0, matrix__int8=9.0),
        CPU,
        ("float32", "float16", "int8"),
    )
    assert found is not None
    assert found.bandwidth_bytes_per_s == 12.0
    assert found.flop_per_s == (("float32", 4.0), ("int8", 9.0))
    assert found.cache_bytes_per_s == 50.0
    assert from_plain(Limits, to_plain(found)) == found


def test_without_bandwidth_there_is_no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert peaks.limits_of(known(matrix__float32=3.0), CPU, ("float32",)) is None

    def measure(_device: Any, _machine: Any, name: str, _room: Any) -> Peak:
        return Peak(name=name, unit="B/s", why_not="too little room")

    monkeypatch.setattr(peaks, "measure", measure)
    with pytest.raises(InfrastructureError, match="cannot be measured: too little room"):
        peaks.measure_limits(CPU, CPU.machine(), tmp_path, ("float32",))


def test_only_what_is_needed_is_measured() -> None:
    assert peaks.needed(("float16", "bool")) == (
        *peaks.BANDWIDTHS,
        "cache",
        "matrix/float16",
        "vector/float16",
    )


def test_least_time() -> None:
    found = Limits(bandwidth_bytes_per_s=100.0, flop_per_s=(("float32", 10.0), ("tf32", 20.0)))
    assert found.least_s(50.0, 100.0, "float32") == 5.0
    assert found.least_s(50.0, 100.0, "float32", tf32=True) == 2.5
    assert found.least_s(5.0, 100.0, "float32") == 1.0
    assert found.least_s(1e9, 100.0, "int8") == 1.0


def test_what_the_caches_hold_moves_at_their_speed() -> None:
    """Caches of 100 bytes: of a window, 200 bytes may have been there already or stay there."""
    found = Limits(bandwidth_bytes_per_s=1.0, flop_per_s=(), cache_bytes_per_s=10.0, cache_bytes=100)
    assert found.memory_s(50.0) == 50.0
    assert found.memory_s(50.0, 1) == pytest.approx(5.0)
    assert found.memory_s(50.0, 4) == pytest.approx(5.0)
    assert found.memory_s(50.0, 8) == pytest.approx((200.0 + 20.0) / 8)
    assert found.memory_s(50.0, 10**6) == pytest.approx(50.0, rel=1e-3)
    old = Limits(bandwidth_bytes_per_s=1.0, flop_per_s=())
    assert old.memory_s(50.0, 4) == 50.0


def test_limits_of_older_stores_are_read() -> None:
    plain = {"bandwidth_bytes_per_s": 2.0, "flop_per_s": [["float32", 3.0]]}
    assert from_plain(Limits, plain).rate("float32") == 3.0
