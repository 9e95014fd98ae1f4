"""Whole verdicts on a device whose memory is staged: the CPU, with a mirror of its own for the worker.

Everything but the hardware is real: judge, worker, windows, clock. The device and the names that languages have for it
are put into a copy of the package, as ``tests/test_contributing.py`` does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kerneleval
from kerneleval.devices import cpu, typed_view
from kerneleval.devices.common import staged
from kerneleval.devices.common.base import SynchronisedClock
from kerneleval.records import InfrastructureError
from kerneleval.worker.staging import Staging

DEVICE = '''
"""The CPU behind a mirror: has no fp64, so that the oracle's place shows."""

import dataclasses

from kerneleval.devices import register
from kerneleval.devices.cpu import Cpu
from kerneleval.devices.common.staged import Staged


@register
class Mirrored(Staged, Cpu):
    name = "mirrored"
    on_hardware = False

    def machine(self):
        return dataclasses.replace(super().machine(), device=self.name)

    def capabilities(self):
        return dataclasses.replace(super().capabilities(), fp64=False)
'''

OVER_A_FAKE = '''
"""The file of the Metal device over the fake of what it calls, in every process."""

from kerneleval.devices import register
from kerneleval.devices.common.fakes import FakeMetal

installed = FakeMetal.fake().installed()  # kept: it ends with its last reference
installed.__enter__()


@register
class Apple(FakeMetal):
    name = "apple"
'''

EDITS = {
    "languages/torch.py": ('devices = ("cpu"', 'devices = ("mirrored", "apple", "cpu"'),
    "languages/common/base.py": ('"metal": "mps"', '"mirrored": "cpu", "apple": "cpu", "metal": "mps"'),
}

RIGHT = "import torch\n\n\ndef gelu(x):\n    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))\n"

SOURCES = {
    "right": RIGHT,
    "wrong": RIGHT.replace("0.5 *", "0.4999 *"),
    "writes": RIGHT.replace("    return", "    y = x.detach()\n    out =") + "    y[..., -1:] += 1\n    return out\n",
    "same": "import torch\n\n\ndef gelu(x):\n    return x.view(x.shape)\n",
    "late": """
import threading
import time

import torch


def gelu(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    held = x.detach()

    def later():
        time.sleep(0.005)
        out.copy_(0.5 * held * (1 + torch.erf(held * 0.7071067811865476)))

    threading.Thread(target=later).start()
    return out
""",
}

CHECKED = {"mirrored": list(SOURCES), "apple": ["right", "wrong", "writes"]}

CHECK = """
import json, sys
import kerneleval
from kerneleval import devices, tasks
from kerneleval.judge.timing.statistics import Noise
from kerneleval.judge.timing.timer import CLASSES_NS, NoiseFigures
from kerneleval.records import Protocol
folder = sys.argv[1]

def checked(judge, name):
    verdict = kerneleval.check(f"{folder}/{name}.py", "gelu", judge=judge, tier="quick", dtypes=["float32"],
        categories=("small",), allow=("custom", "mixed", "library"), fail_fast=name != "right")
    return {
        "verdict": verdict.verdict, "reason": verdict.reason, "message": verdict.message,
        "device": verdict.machine.device,
        "marked": [f.level for f in verdict.findings if "not run on hardware" in f.message],
        "timed": sum(getattr(c.outcome, "timing", None) is not None for c in verdict.cells),
        "backward": sum(c.case.direction == "backward" for c in verdict.cells),
    }

found = {}
for device, names in json.loads(sys.argv[2]).items():
    with kerneleval.Judge(device) as judge:
        steady = NoiseFigures(call=(Noise(spread=0.01, between=0.01),) * len(CLASSES_NS), device=())
        judge.noise = lambda *_: steady
        found[device] = {name: checked(judge, name) for name in names}
        task = next(t for t in tasks.all_tasks().values() if "float64" in t.dtypes and "float32" in t.dtypes)
        planned = sorted({case.dtype for case in judge.plan(task, Protocol())})
        left_out = [judge.left_out(task, Protocol(dtypes=dtypes)) for dtypes in ((), ("float64",))]
        found[device + " dtypes"] = [planned, *left_out]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kerneleval-test-") as name:
        root = Path(name)
        root.chmod(0o755)
        shutil.copytree(kerneleval.__path__[0], root / "kerneleval", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "kerneleval" / "devices" / "mirrored.py").write_text(DEVICE)
        (root / "kerneleval" / "devices" / "apple.py").write_text(OVER_A_FAKE)
        shutil.copy(Path(__file__).with_name("fakes.py"), root / "kerneleval" / "devices" / "common")
        for path, (before, after) in EDITS.items():
            file = root / "kerneleval" / path
            text = file.read_text()
            assert text.count(before) == 1, path
            file.write_text(text.replace(before, after))
        for candidate, source in SOURCES.items():
            (root / f"{candidate}.py").write_text(source)
        yield root


@pytest.fixture(scope="module")
def found(package: Path) -> Any:
    """What one process finds on both devices: it loads PyTorch once."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(package), json.dumps(CHECKED)],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=package,
        env=os.environ | {"PYTHONPATH": str(package), "KERNELEVAL_CACHE_DIR": str(package / "cache")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_verdicts_over_staged_memory(found: Any) -> None:
    on_mirrored = dict(found["mirrored"])
    right = on_mirrored.pop("right")
    assert (right["verdict"], right["device"]) == ("passed", "mirrored"), right
    assert right["marked"] == ["warn"]
    assert right["timed"] == 2 and right["backward"] > 3
    assert {one["verdict"] for one in on_mirrored.values()} == {"failed"}, on_mirrored
    assert on_mirrored["wrong"]["reason"] == "wrong_output", on_mirrored["wrong"]
    assert on_mirrored["writes"]["reason"] == "input_mutation", on_mirrored["writes"]
    assert on_mirrored["late"]["reason"] == "wrong_output", on_mirrored["late"]


def test_verdicts_through_the_file_of_the_metal_device(found: Any) -> None:
    """As above, where no worker is paused; all that the device's file asks of Metal is asked of the fake."""
    on_apple = dict(found["apple"])
    right = on_apple.pop("right")
    assert (right["verdict"], right["device"], right["marked"]) == ("passed", "apple", ["warn"]), right
    assert right["timed"] == 2 and right["backward"] > 3
    reasons = {name: one["reason"] for name, one in on_apple.items()}
    assert reasons == {"wrong": "wrong_output", "writes": "input_mutation"}


def test_dtypes_that_the_device_lacks_are_left_out_and_told(found: Any) -> None:
    planned, told, alone = found["mirrored dtypes"]
    assert planned == ["float32"]
    assert len(told) == len(alone) == 1
    assert told[0].startswith("float64 is left out: ") and "(mirrored)" in told[0]


class Mirrored(staged.Staged, cpu.Cpu):
    """As the one of the copy."""


def test_a_mirror_holds_what_was_staged_and_nothing_when_it_was_retired() -> None:
    device = Mirrored()
    given = device.allocate(4096)
    arena = device.open(given.handle, os.dup(given.fd))
    staging = Staging(device)
    try:
        one, other = device.own_storage(arena, 512, 16), device.own_storage(arena, 1024, 16)
        view = typed_view(other, torch.float32, (2, 2), (2, 1), 0)
        given.bytes[512:2048] = 63
        assert not one.any() and view.abs().sum() == 0
        staging.stage(arena, 2048)
        assert (one == 63).all() and (other == 63).all() and (view == view[0, 0]).all() and view[0, 0] > 0
        view[0, 0] = 7.0
        assert (given.bytes[512:2048] == 63).all()
        staging.retire(arena, 2048)
        assert not other.any()
        staging.give_back(arena)
        assert (given.bytes[1028:2048] == 63).all() and not (given.bytes[1024:1028] == 63).all()
    finally:
        device.release(arena)
        device.release(given)
    assert arena.mirror is None


def test_an_honest_clock_waits_for_the_device() -> None:
    waited = []
    clock = SynchronisedClock(lambda: waited.append(None))
    clock.start()
    clock.stop()
    assert len(waited) == 2 and clock.elapsed_ns() >= 0


def test_staged_memory_that_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "ftruncate", refused)
    with pytest.raises(InfrastructureError, match="cannot share 512 bytes of memory with a worker"):
        Mirrored().allocate(512)


def test_memory_is_shared_on_systems_without_anonymous_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where Metal is; the object has no name any more."""
    monkeypatch.delattr(os, "memfd_create")
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    device = Mirrored()
    given = device.allocate(4096)
    there = device.open(given.handle, os.dup(given.fd))
    given.bytes[:] = 3
    assert there.nbytes == 4096 and bool((there.bytes == 3).all())
    left = set(os.listdir("/dev/shm")) - before if before else set()
    assert not any(name.startswith("kerneleval-") and "hip" not in name for name in left)
    device.release(there)
    device.release(given)
