"""Measured peaks: what is measured, what is kept, what a device cannot do."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneleval import devices
from kerneleval.judge.machine import peaks, vector_rate
from kerneleval.records import InfrastructureError, Peak, Peaks, from_plain, to_plain

CPU = devices.find("cpu")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays and few samples: how good the figures are is no question here."""
    for name, value in {
        "_REPEATS": 3,
        "_FOR_S": 0.0,
        "_ENOUGH_S": 0.05,
        "_LEAST_S": 1e-4,
        "_LEAST_BYTES": 2**22,
        "_LARGEST": 512,
    }.items():
        monkeypatch.setattr(peaks, name, value)
    monkeypatch.setattr(peaks, "caches_bytes", lambda: 2**20)
    monkeypatch.setattr(CPU, "largest_case_bytes", lambda: 2**22)


@pytest.mark.parametrize("name", [n for n in peaks.NAMES if n != "matrix/tf32"])
def test_every_peak_of_this_machine_is_a_rate_or_says_why_not(name: str) -> None:
    found = peaks.measure(CPU, CPU.machine(), name)
    assert found.name == name
    assert len(found.date) == len("2026-01-01")
    if found.why_not:
        assert name.rsplit("/", maxsplit=1)[-1] in found.why_not
        assert found.best == 0
    else:
        assert 1e6 < found.median <= found.best < 1e16
        assert found.n >= 3
        assert found.how


def test_memory_is_measured_by_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate may start more threads than the judge has, by ``OMP_NUM_THREADS`` or whoever imports it."""
    seen: list[int] = []

    def streamed(*_given: Any, **_named: Any) -> Any:
        seen.append(torch.get_num_threads())
        return peaks._Found(rates=(1.0,), call_s=1.0, how="")

    monkeypatch.setattr(peaks, "_streamed", streamed)
    monkeypatch.setattr(peaks, "processors", lambda: 3)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        peaks.measure(CPU, CPU.machine(), "copy")
        assert set(seen) == {3} and torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_rate_counts_the_bytes_that_are_read_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that says 1 ms a call: the largest arrays, of 8 MiB together, are then the fastest."""
    monkeypatch.setattr(peaks, "_timed_s", lambda _device, _call, count: 1e-3 * count)
    found = {name: peaks.measure(CPU, CPU.machine(), name) for name in peaks.BANDWIDTHS}
    for name, peak in found.items():
        assert peak.best == pytest.approx(2**23 * 1e3, rel=2e-3), name


def test_operations_of_a_product_are_two_for_each_multiply_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_timed_s", lambda _device, _call, count: 1e-3 * count)
    assert peaks.measure(CPU, CPU.machine(), "matrix/float32").best == pytest.approx(2 * 512**3 * 1e3)


def test_the_chains_compute_what_they_are_said_to() -> None:
    call, operations, how = vector_rate.vector_work(CPU, "float64", 100)
    call()
    numbers = operations / 200
    assert numbers == int(numbers)
    assert "threads" in how


def test_chains_that_come_out_elsewhere_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_rate, "_ADDEND", 1.5)
    with pytest.raises(InfrastructureError, match="came out at 3, not at 2"):
        vector_rate.vector_work(CPU, "float32", 100)


def test_without_a_compiler_vector_units_are_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    vector_rate._library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    try:
        found = peaks.measure(CPU, CPU.machine(), "vector/float32")
    finally:
        vector_rate._library.cache_clear()
    assert "no-such-compiler" in found.why_not


def test_types_without_products_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: Any, **_options: Any) -> None:
        raise RuntimeError("not implemented for 'Half'\nwith a second line")

    monkeypatch.setattr(torch, "mm", refuse)
    found = peaks.measure(CPU, CPU.machine(), "matrix/float16")
    assert found.why_not == "PyTorch has no matrix products of float16 here: not implemented for 'Half'"
    assert "sm_80" in peaks.measure(CPU, CPU.machine(), "matrix/tf32").why_not


def test_no_memory_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_given: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch, "ones", full)
    with pytest.raises(InfrastructureError, match="no memory left to measure"):
        peaks.measure(CPU, CPU.machine(), "copy")


def test_arrays_that_the_caches_would_hold_are_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "caches_bytes", lambda: 2**30)
    assert "must be larger than the caches" in peaks.measure(CPU, CPU.machine(), "copy").why_not


@pytest.mark.parametrize("before", [False, True])
def test_tf32_is_as_it_was(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    seen = []

    def product(*_given: Any) -> Any:
        seen.append(torch.backends.cuda.matmul.allow_tf32)
        raise RuntimeError("no more")

    monkeypatch.setattr(peaks, "_product", product)
    hopper = dataclasses.replace(CPU.machine(), arch="sm_90")
    own = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before
    try:
        peaks.measure(CPU, hopper, "matrix/tf32")
        peaks.measure(CPU, hopper, "matrix/float32")
        assert seen == [True, False]
        assert torch.backends.cuda.matmul.allow_tf32 is before
    finally:
        torch.backends.cuda.matmul.allow_tf32 = own


def test_peaks_are_measured_once_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measure(_device: Any, _machine: Any, name: str, _room: Any) -> Peak:
        if name == "triad":
            raise KeyboardInterrupt
        asked.append(name)
        return Peak(name=name, unit="B/s", best=float(len(asked)), median=1.0, n=1)

    monkeypatch.setattr(peaks, "measure", measure)
    machine = CPU.machine()
    first = peaks.known(CPU, machine, tmp_path, ("read", "copy"))
    assert [p.name for p in first.peaks] == ["copy", "read"]
    assert peaks.known(CPU, machine, tmp_path, ("copy",)) == first
    assert peaks.cached(machine, tmp_path) == first
    more = peaks.known(CPU, machine, tmp_path, ("copy", "cache"))
    assert asked == ["read", "copy", "cache"]
    assert [p.name for p in more.peaks] == ["copy", "read", "cache"]
    peaks.known(CPU, machine, tmp_path, ("copy",), again=True)
    assert asked == ["read", "copy", "cache", "copy"]
    other = dataclasses.replace(machine, torch="2.99")
    assert peaks.cached(other, tmp_path) is None
    with pytest.raises(KeyboardInterrupt):
        peaks.known(CPU, machine, tmp_path, ("write", "triad"))
    kept = peaks.cached(machine, tmp_path)
    assert kept is not None and kept.find("write") is not None, "whoever is interrupted goes on from there"


@pytest.mark.parametrize("text", ["", "[]", '{"machine": "x", "peaks": [{"name": 3}]}', '{"more": 1}'])
def test_a_broken_file_is_told_and_removed(tmp_path: Path, text: str) -> None:
    machine = CPU.machine()
    path = tmp_path / "peaks" / f"{machine.fingerprint}-v1.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InfrastructureError, match="has been removed; measure again"):
        peaks.cached(machine, tmp_path)
    assert peaks.cached(machine, tmp_path) is None


def test_records_come_back() -> None:
    peak = Peak(name="copy", unit="B/s", best=2.0, median=1.5, n=7, how="so", date="2026-11-24")
    found = Peaks(machine="ab", peaks=(peak,))
    assert from_plain(Peaks, json.loads(json.dumps(to_plain(found)))) == found
    assert found.find("copy") == peak
    assert found.find("read") is None
    assert found.rate("copy", "read") == 2.0
    assert found.rate("read") == 0.0
    assert math.isfinite(found.rate())
