"""Judges of several GPUs side by side: each has a processor of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from kerneleval.judge.windows import locks
from kerneleval.judge.windows.locks import CpuPin

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not run: names of sockets are Linux's")

TAKES_ONE = """
from pathlib import Path
from kerneleval.judge.windows import locks
locks._TOPOLOGY = Path("/none")
taken = locks.CpuPin(alone=True)
print(taken.processor, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = uuid.uuid4().hex[:8]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    for processor, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        file = tmp_path / f"cpu{processor}" / "topology" / "thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{siblings} of {name}\n")  # nobody else's names, which have room for 108 bytes
    monkeypatch.setattr(locks, "_TOPOLOGY", tmp_path)


def test_no_two_judges_sit_on_one_processor_or_beside_one_another() -> None:
    """All workers waited, and of a GPU computed, on the last processor: two judges of two GPUs shared it."""
    first, second, third = (CpuPin(alone=True) for _ in range(3))
    assert (first.processor, second.processor) == (3, 2), "1 and 0 are hyperthreads of these"
    assert third.processor == 3, "no judge fails for it"
    first.leave()
    fourth = CpuPin(alone=True)
    assert fourth.processor == 3
    for one in (second, third, fourth):
        one.leave()


def test_where_processors_are_the_device_all_share_the_first() -> None:
    assert [CpuPin(alone=False).processor for _ in range(2)] == [0, 0]


@pytest.mark.slow
def test_a_seat_is_free_when_its_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(locks, "_TOPOLOGY", Path("/none"))  # hyperthreads are processors here
    other = subprocess.Popen(
        [sys.executable, "-c", TAKES_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = int(other.stdout.readline())
    mine = CpuPin(alone=True)
    try:
        assert mine.processor != theirs or len(os.sched_getaffinity(0)) < 2
    finally:
        mine.leave()
        other.kill()
        other.communicate()
    again = CpuPin(alone=True)
    assert again.processor == theirs
    again.leave()
