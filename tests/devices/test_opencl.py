"""The OpenCL device: what it says of itself, how one is chosen, what is said where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kerneleval import devices, languages
from kerneleval.languages import torch_device
from kerneleval.languages.common import opencl_runtime
from kerneleval.records import InfrastructureError

OPENCL = devices.find("opencl")


@pytest.fixture
def asked_anew() -> Iterator[None]:
    cached = (opencl_runtime._listed, opencl_runtime.described, opencl_runtime.opened)
    for one in cached:
        one.cache_clear()
    yield
    for one in cached:
        one.cache_clear()


@pytest.fixture
def there(asked_anew: None) -> None:
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")


def test_tensors_are_the_hosts() -> None:
    assert OPENCL.torch_device == "cpu" == torch_device("opencl")
    arena = OPENCL.allocate(64)
    try:
        assert arena.bytes.device.type == "cpu"
    finally:
        OPENCL.release(arena)


def test_it_is_another_machine_than_the_cpu(there: None) -> None:
    machine, host = OPENCL.machine(), devices.find("cpu").machine()
    assert machine.device == "opencl"
    assert machine.arch.count("/") == 1
    assert ("PoCL" in machine.driver) == machine.arch.startswith("pocl/")
    assert machine.fingerprint != host.fingerprint
    assert machine.host == host.name
    assert 0 < machine.units <= host.units


def test_a_device_is_chosen_by_a_part_of_its_name(there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(opencl_runtime.CHOICE, opencl_runtime.described().name[2:6].upper())
    assert OPENCL.available() == ""


def test_a_name_that_no_device_has_is_named(there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = opencl_runtime.described().name
    monkeypatch.setenv(opencl_runtime.CHOICE, "no such device")
    said = OPENCL.available()
    assert said.startswith("KERNELEVAL_OPENCL='no such device' is in no name of an OpenCL device; there are ")
    assert name in said
    opencl_runtime.described.cache_clear()
    with pytest.raises(InfrastructureError, match="no such device"):
        OPENCL.machine()


def test_what_to_install_is_said(asked_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyopencl" else find_spec(name))
    assert OPENCL.available() == f"OpenCL candidates need pyopencl and an OpenCL platform: {opencl_runtime.INSTALL}"
    assert languages.find("opencl").missing("opencl").endswith(opencl_runtime.INSTALL)


def test_a_machine_without_platform_is_told_so(there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl

    monkeypatch.setattr(pyopencl, "get_platforms", list)
    opencl_runtime._listed.cache_clear()
    assert OPENCL.available().startswith("no OpenCL platform has a device of the type CPU: pip install")


def test_a_runtime_that_does_not_know_the_processor_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL of LLVM 14 on Zen 5: whatever is compiled ends with ``unknown target CPU 'generic'``."""

    def device(target: str) -> SimpleNamespace:
        return SimpleNamespace(version=f"OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-{target}",
                               platform=SimpleNamespace(version="OpenCL 3.0 PoCL 3.0"))  # fmt: skip

    found = {"first": device("generic")}
    monkeypatch.delenv(opencl_runtime.CHOICE, raising=False)
    monkeypatch.setattr(opencl_runtime, "_listed", lambda: found)
    with pytest.raises(InfrastructureError, match=r"PoCL 3.0 does not know this processor.*intel-opencl-rt"):
        opencl_runtime._chosen()
    found["second"] = device("znver3")
    assert opencl_runtime._chosen() is found["second"]


def test_a_missing_linker_is_told(there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_runtime, "find_tool", lambda names: None)
    assert OPENCL.available().endswith("ld, by which PoCL links kernels: install binutils")
