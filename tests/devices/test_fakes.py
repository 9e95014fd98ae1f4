"""The vendors' device files over fakes: every call that they make, and what becomes of errors."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.devices.fakes import FAKES, Fake, FakeMetal, FakeRocm, FakeXpu, Hip, Namespace

from kerneleval import devices
from kerneleval.devices import rocm
from kerneleval.records import InfrastructureError, UsageError

GIB = 1 << 30
ROOT = Path(__file__).parents[2]


def test_an_allocator_that_counts_nothing_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch raises once ``torch.cuda.memory.change_current_allocator`` was called."""

    def raises() -> int:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats")

    device = FakeXpu()
    namespace = SimpleNamespace(max_memory_allocated=raises, reset_peak_memory_stats=raises)
    monkeypatch.setattr(device, "_namespace", lambda: namespace)
    device.reset_peak_memory()
    assert device.peak_memory_bytes() is None


def used(fake: Fake) -> Fake:
    """Everything that judge and worker ask of a device."""
    with fake.installed() as device:
        assert device.available() == ""
        machine, can = device.machine(), device.capabilities()
        assert machine.device == device.name and machine.units > 0
        assert (can.sharing, can.streams) == (device.sharing, device.streams)
        assert 0 < device.case_budget()[0] <= GIB and device.memory_budget_bytes() > 0
        assert device.largest_case_bytes() > 0
        device.warm_up()
        device.reset_peak_memory()
        assert (device.peak_memory_bytes() is not None) == can.peak_memory
        device.trim()
        device.settle()
        if device.name != "xpu":  # 256 MiB of passes take the CPU a while; there it is PyTorch's own
            device.delay()
        timer = device.timer()
        timer.start()
        timer.stop()
        assert timer.elapsed_ns() >= 0
        first = device.conditions()
        assert device.unsteady(first, first) == ""
        arena = device.allocate(1000)
        arena.bytes[:1000] = 7
        assert (device.own_storage(arena, 512, 8).numel(), device.own_storage(arena, 0, 0).numel()) == (8, 0)
        device.release(arena)
        if fake.hip is not None:  # in another process, and its errors
            with pytest.raises(
                InfrastructureError, match="hipIpcOpenMemHandle failed with HIP error 201: invalid device"
            ):
                device.open(device.allocate(64).handle, -1)
    return fake


@pytest.mark.parametrize("name", sorted(FAKES))
def test_a_device_calls_what_its_fake_has_and_nothing_else(name: str) -> None:
    fake = used(FAKES[name]())
    left = {"hipIpcCloseMemHandle"}  # of a process that opened memory, below
    assert fake.offered - fake.called <= left


@pytest.mark.parametrize("name", sorted(FAKES))
def test_the_page_on_hardware_names_every_faked_call(name: str) -> None:
    page = (ROOT / "docs" / "hardware.md").read_text()
    section = page.split(f"### {name}\n")[1].split("\n### ")[0].split("\n## ")[0]
    named = set(re.findall(r"`((?:torch\.|hip)[\w.]+)`", section.split("What remains unproven")[0]))
    assert named == FAKES[name]().offered


@pytest.mark.parametrize("name", sorted(FAKES))
def test_it_is_marked_as_not_run_on_hardware(name: str) -> None:
    assert devices.find(name).on_hardware is False
    page = (ROOT / "docs" / "hardware.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` ")]
    assert "**not run on hardware**" in row
    for shared in ("cpu", "cuda"):
        assert devices.find(shared).on_hardware is True


def test_every_device_has_a_row() -> None:
    page = (ROOT / "docs" / "hardware.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert sorted(rows) == list(devices.names())
    for name, row in rows.items():
        assert ("**not run on hardware**" in row) != devices.find(name).on_hardware


def test_calls_that_the_real_function_would_not_take_are_errors() -> None:
    space = Namespace("torch.mps", torch.mps, {"synchronize": lambda: None})
    space.synchronize()
    assert space.called == {"synchronize"}
    with pytest.raises(TypeError, match="too many positional"):
        space.synchronize(0)
    with pytest.raises(AttributeError, match=r"the fake of torch\.mps has no 'empty_cache'"):
        space.empty_cache()
    with pytest.raises(AttributeError):
        Namespace("torch.mps", torch.mps, {"max_memory_allocated": lambda: 0}).max_memory_allocated()


def test_the_fakes_have_nothing_that_pytorch_has_not() -> None:
    for make in FAKES.values():
        for space in make().namespaces:
            for name in space.offered:
                assert inspect.signature(getattr(space._real, name)) is not None


@pytest.mark.parametrize(
    ("fake", "why"),
    [
        (FakeRocm.fake(present=False), "sees no AMD GPU"),
        (FakeMetal.fake(present=False), "sees no GPU"),
        (FakeMetal.fake(built=False), "built without MPS"),
        (FakeXpu.fake(present=False), "sees no Intel GPU"),
    ],
)
def test_a_device_that_is_not_there_says_why(fake: Fake, why: str) -> None:
    with fake.installed() as device:
        assert why in device.available()


def test_a_hip_build_is_never_taken_for_cuda_nor_the_other_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = devices.find("cuda")
    with FakeRocm.fake().installed() as device:
        assert "its device is called rocm" in cuda.available()
        assert device.available() == ""
        assert devices.default().name == "rocm"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert cuda.available() == ""
    assert "built without ROCm" in rocm.Rocm().available()
    assert devices.default().name == "cuda"


@pytest.mark.parametrize(("name", "make"), [("xpu", FakeXpu.fake), ("metal", FakeMetal.fake)])
def test_the_default_is_the_accelerator_that_is_there(name: str, make: Any) -> None:
    assert devices.default().name == "cpu"
    with make().installed():
        assert devices.default().name == name


def test_the_architecture_is_without_its_settings() -> None:
    with FakeRocm.fake(arch="gfx90a:sramecc+:xnack-").installed() as device:
        assert device.machine().arch == "gfx90a"
        can = device.capabilities()
        assert (can.int8_matrix, can.fp8, can.tf32, can.fp64) == (True, False, False, True)
    with FakeRocm.fake(arch="gfx1201").installed() as device:
        assert device.capabilities().fp8


def test_what_has_no_fp64_says_so() -> None:
    with FakeMetal.fake().installed() as device:
        can = device.capabilities()
        assert [d for d in ("float64", "complex128", "float32", "bfloat16") if can.computes(d)] == [
            "float32",
            "bfloat16",
        ]
    with FakeXpu.fake(fp64=False).installed() as device:
        assert not device.capabilities().computes("float64")
        assert device.judge_device == "cpu"  # where the oracle runs


def test_a_worker_opens_what_the_judge_allocated(tmp_path: Path) -> None:
    """Over two processes, as on a GPU: through nothing but the handle."""
    fake = FakeRocm.fake()
    with fake.installed() as device:
        arena = device.allocate(4096)
        arena.bytes[:] = 5
        child = os.fork()
        if not child:
            status = 1
            try:
                there = device.open(arena.handle, -1)
                fine = bool((there.bytes == 5).all()) and there.nbytes == 4096
                device.own_storage(there, 512, 16).fill_(9)
                del there.bytes
                device.release(there)
                status = 0 if fine and "hipIpcCloseMemHandle" in fake.called else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (arena.bytes[512:528] == 9).all() and (arena.bytes[528:] == 5).all() and (arena.bytes[:512] == 5).all()
        device.release(arena)
        device.release(arena)  # a second time is nothing


def test_reserves_are_given_back_before_the_device_is_called_full() -> None:
    fake = FakeRocm.fake(hip=Hip(memory_bytes=1 << 20))
    with (
        fake.installed() as device,
        pytest.raises(InfrastructureError, match="hipMalloc failed with HIP error 2: out of"),
    ):
        device.allocate(2 << 20)
    assert "torch.cuda.empty_cache" in fake.called


def test_memory_that_cannot_be_shared_is_an_error_of_the_machine() -> None:
    with FakeRocm.fake(hip=Hip(ipc=False)).installed() as device:
        with pytest.raises(InfrastructureError, match="hipIpcGetMemHandle failed with HIP error 1: invalid argument"):
            device.allocate(512)
        with pytest.raises(InfrastructureError, match="hipIpcOpenMemHandle failed with HIP error 1"):
            device.open({"nbytes": 4, "ipc": b"none".ljust(64, b"\0").hex()}, -1)


def test_pointers_are_passed_whole() -> None:
    with pytest.raises(TypeError, match="c_ulong"):
        Hip().hipFree(1 << 40)  # type: ignore[arg-type]
    assert Hip().hipFree(ctypes.c_uint64(1 << 40)) == 1


def test_what_cannot_be_read_of_the_conditions_is_told() -> None:
    with FakeRocm.fake().installed() as device:
        found = device.conditions()
        assert found["clock_sm_mhz"] == 2100 and "amdsmi" in found["amdsmi"] and "temperature_c" not in found
        assert found["power_mw"] == 350_000  # of watts
        assert "went from 2100 to 1500 MHz" in device.unsteady(found, found | {"clock_sm_mhz": 1500.0})


def test_the_hip_library_is_looked_for_and_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    rocm._hip.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(f"{name}: no such file")))
    with pytest.raises(InfrastructureError, match=r"HIP runtime library does not load: libamdhip64.so.7: no such file"):
        rocm._hip()
    rocm._hip.cache_clear()


def test_a_judge_of_a_device_that_is_not_here_says_what_to_do() -> None:
    from kerneleval.judge.judge import Judge

    for name in FAKES:
        with pytest.raises(UsageError, match=f"device '{name}' cannot be used here: this PyTorch .* is built without"):
            Judge(name)
