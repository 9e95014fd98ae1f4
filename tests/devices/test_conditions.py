"""What devices tell of themselves: NVML and RAPL as fakes that answer as the real ones do."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kerneleval import devices
from kerneleval.devices import cpu, cuda
from kerneleval.devices.cpu import Rapl


class Nvml:
    """The driver's library; what is not in ``values`` is not supported (status 3)."""

    def __init__(self, **values: int) -> None:
        self.values = values
        self.energy_mj = 1_000_000

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, _device: Any) -> int:
        return 0 if index.value == 0 else 2

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, _device: Any) -> int:
        return 0 if uuid.value == b"GPU-1" else 6

    def _give(self, name: str, out: Any) -> int:
        if name not in self.values:
            return 3
        out._obj.value = self.values[name]
        return 0

    def nvmlDeviceGetClockInfo(self, _device: Any, kind: Any, out: Any) -> int:
        return self._give({1: "sm", 2: "memory"}[kind.value], out)

    def nvmlDeviceGetTemperature(self, _device: Any, _sensor: Any, out: Any) -> int:
        return self._give("temperature", out)

    def nvmlDeviceGetPowerUsage(self, _device: Any, out: Any) -> int:
        return self._give("power", out)

    def nvmlDeviceGetEnforcedPowerLimit(self, _device: Any, out: Any) -> int:
        return self._give("power_limit", out)

    def nvmlDeviceGetPerformanceState(self, _device: Any, out: Any) -> int:
        return self._give("state", out)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _device: Any, out: Any) -> int:
        return self._give("reasons", out)

    def nvmlDeviceGetTotalEnergyConsumption(self, _device: Any, out: Any) -> int:
        assert isinstance(out._obj, ctypes.c_ulonglong), "the counter has 64 bits"
        return self._give("energy", out)

    def nvmlDeviceGetFieldValues(self, _device: Any, count: Any, out: Any) -> int:
        assert (count.value, out._obj.field) == (1, 82)
        out._obj.status = 0 if "memory_c" in self.values else 3
        out._obj.value = self.values.get("memory_c", 0)
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, _device: Any, count: Any, _room: Any) -> int:
        count._obj.value = 2
        return 7


def told(monkeypatch: pytest.MonkeyPatch, library: Any) -> dict[str, Any]:
    monkeypatch.setattr(cuda, "_nvml", lambda: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return devices.find("cuda").conditions()


def test_nvml_tells_energy_state_and_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Nvml(
        sm=1980,
        memory=3201,
        temperature=41,
        memory_c=52,
        power=312_000,
        power_limit=700_000,
        state=0,
        reasons=0x4,
        energy=2**40 + 5,
    )
    assert told(monkeypatch, library) == {
        "clock_sm_mhz": 1980,
        "clock_memory_mhz": 3201,
        "temperature_c": 41,
        "temperature_memory_c": 52,
        "power_mw": 312_000,
        "power_limit_mw": 700_000,
        "performance_state": 0,
        "energy_mj": 2**40 + 5,
        "throttled": ["power_cap"],
        "compute_processes": 2,
    }


def test_what_nvml_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, Nvml(sm=1000)) == {"clock_sm_mhz": 1000, "throttled": [], "compute_processes": 2}
    assert "temperature_memory_c" not in told(monkeypatch, Nvml(memory_c=0))
    assert told(monkeypatch, None) == {"nvml": "not available"}


def test_functions_that_an_old_driver_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        nvmlDeviceGetHandleByIndex_v2 = Nvml.nvmlDeviceGetHandleByIndex_v2  # noqa: N815
        nvmlDeviceGetComputeRunningProcesses_v3 = Nvml.nvmlDeviceGetComputeRunningProcesses_v3  # noqa: N815

    assert told(monkeypatch, Old()) == {"throttled": [], "compute_processes": 2}


@pytest.mark.parametrize(
    ("visible", "told_of"),
    [
        ("0", 7.0),
        ("GPU-1,GPU-2", 7.0),
        ("GPU-2", "device GPU-2 not found"),
        ("3", "device 3 not found"),
        ("MIG-5", "there is no reading for MIG-5"),
    ],
)
def test_the_visible_device_is_asked(monkeypatch: pytest.MonkeyPatch, visible: str, told_of: Any) -> None:
    """Another card's joules would be told as the candidate's."""
    monkeypatch.setattr(cuda, "_nvml", lambda: Nvml(energy=7))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device = devices.find("cuda")
    assert device.energy_mj() == (told_of if isinstance(told_of, float) else None)
    assert device.conditions().get("nvml", 7.0) == told_of


def zone(root: Path, place: str, name: str, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    folder = root / place
    folder.mkdir(parents=True, exist_ok=True)
    for file, value in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", range_uj)):
        (folder / file).write_text(f"{value}\n")
    return folder


def test_packages_and_dram_add_up_and_begin_again(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000, range_uj=2_000_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 500_000)
    dram = zone(tmp_path, "intel-rapl:0:1", "dram", 70_000)
    for place, name in (("intel-rapl:0:0", "core"), ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0")):
        zone(tmp_path, place, name, 0)
    rapl = Rapl(tmp_path)
    assert rapl.read_mj() == 0.0
    (first / "energy_uj").write_text("1900000")
    (second / "energy_uj").write_text("600000")
    (dram / "energy_uj").write_text("71000")
    (tmp_path / "intel-rapl:0:0" / "energy_uj").write_text("9000000")
    assert rapl.read_mj() == pytest.approx(900 + 100 + 1)
    (first / "energy_uj").write_text("400000")  # past its range of two joules
    assert rapl.read_mj() == pytest.approx(1001 + 500)


def test_counters_that_are_not_there_or_not_ours_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rapl(tmp_path / "none").read_mj() is None
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    (folder / "energy_uj").unlink()
    (folder / "energy_uj").mkdir()  # reading it fails, as it does where only root may
    assert Rapl(tmp_path).read_mj() is None
    monkeypatch.setattr(cpu, "HOST", Rapl(tmp_path))
    assert "energy_mj" not in devices.find("cpu").conditions()


def test_the_host_tells_its_energy_where_it_may_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 5)
    monkeypatch.setattr(cpu, "HOST", Rapl(tmp_path))
    assert devices.find("cpu").conditions()["energy_mj"] == 0.0
    assert devices.find("cpu").conditions()["energy_mj"] == 0.0


def test_every_cache_counts_once(tmp_path: Path) -> None:
    def cache(processor: int, index: int, level: int, kind: str, shared: str, size: str) -> None:
        folder = tmp_path / f"cpu{processor}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for file, value in (("level", level), ("type", kind), ("shared_cpu_list", shared), ("size", size)):
            (folder / file).write_text(f"{value}\n")

    for processor in range(4):
        cache(processor, 0, 1, "Data", str(processor), "32K")
        cache(processor, 1, 1, "Instruction", str(processor), "32K")
        cache(processor, 2, 3, "Unified", "0-1" if processor < 2 else "2-3", "8M")
    assert cpu.caches_bytes(str(tmp_path)) == 4 * 32 * 2**10 + 2 * 8 * 2**20
    assert cpu.caches_bytes(str(tmp_path / "none")) == 0


def test_a_warning_of_nothing_is_not_told() -> None:
    """PyTorch's thread for gradients, when it meets a product before it has a context."""
    text = "Attempting to run cuBLAS, but there was no current CUDA context! Attempting to set the primary context..."
    code = f"import warnings; from kerneleval import devices; devices.find('cuda'); warnings.warn({text!r})"
    done = subprocess.run([sys.executable, "-c", f"{code}; warnings.warn('else')"], capture_output=True, check=True)
    assert done.stderr.splitlines()[0].endswith(b"UserWarning: else")
