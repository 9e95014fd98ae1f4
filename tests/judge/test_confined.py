"""Confined programs that take too much, or say too much, are ended, and told why."""

from __future__ import annotations

import os
import re
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneleval.judge.binaries import confined
from kerneleval.judge.binaries.confined import run_confined, workplace
from kerneleval.sandbox import landlock


def _why_not() -> str:
    try:
        landlock.abi_version()
    except OSError as error:
        return f"not run: no Landlock here ({error})"
    return ""


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: Landlock is Linux's"),
    pytest.mark.skipif(sys.platform == "linux" and bool(_why_not()), reason=_why_not() or "never"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with workplace() as made:
        yield made
    assert not made.exists()


def of(folder: Path, code: str, seconds: float = 30.0) -> str:
    said = run_confined(folder, folder, ([sys.executable, "-I", "-c", code], [Path(sys.prefix)]), seconds, {})
    assert said.ended == said.text.startswith(("it ", "what it wrote"))
    return said.text


def test_the_end_of_what_it_prints_is_told(folder: Path) -> None:
    assert of(folder, "print('said')") == "said"
    tracemalloc.start()
    try:
        told = of(folder, "for n in range(400): print('x' * 100_000)\nprint('the end')")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert told.endswith("x\nthe end") and len(told) == 4000


def test_it_is_ended_after_its_time(folder: Path) -> None:
    started = time.monotonic()
    assert of(folder, "import time; time.sleep(60)", 1.0) == "it took longer than 1 s"
    assert time.monotonic() - started < 20


def test_it_is_ended_after_its_time_where_its_output_is_closed(folder: Path) -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(60)"
    assert of(folder, code, 1.0) == "it took longer than 1 s"


@pytest.mark.parametrize("closes", ["", "import os; os.close(1); os.close(2); "])
def test_memory_of_all_its_processes_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch, closes: str) -> None:
    monkeypatch.setattr(confined, "_MOST_MEMORY_BYTES", 300 << 20)
    code = closes + "import os, time; os.fork(); held = bytearray(200 << 20); time.sleep(30)"
    told = of(folder, code)
    assert told.startswith("it took ") and told.endswith(" MiB of memory; the limit is 300 MiB")


def test_the_number_of_its_processes_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "_MOST_PROCESSES", 12)
    code = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: break\ntime.sleep(30)"
    assert re.fullmatch(r"it had (1[3-9]|2\d) processes; the limit is 12", of(folder, code))


def test_its_files_together_are_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "_MOST_DISK_BYTES", 10 << 20)
    code = (
        "import os, time\n"
        "for n in range(20):\n"
        "    os.makedirs(f'{n}/below')\n"
        "    open(f'{n}/below/file', 'wb').write(os.urandom(1 << 20))\n"
        "time.sleep(30)"
    )
    told = of(folder, code)
    assert told.startswith("it wrote ") and told.endswith(" MiB; the limit is 10 MiB")


MEMFD = "import os, time; held = os.memfd_create('x'); os.write(held, bytes(64 << 20)); time.sleep(30)"
SHARED = (
    "import mmap, os, time\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0: break\n"
    "held = mmap.mmap(-1, 40 << 20)\n"
    "held.write(b'x' * (40 << 20))\n"
    "time.sleep(30)"
)
UNLINKED = (
    "import os, time\n"
    "held = []\n"
    "for n in range(4):\n"
    "    held.append(open(f'{n}', 'wb', buffering=0)); held[-1].write(os.urandom(16 << 20)); os.unlink(f'{n}')\n"
    "time.sleep(30)"
)


@pytest.mark.parametrize(("code", "limit"), [(MEMFD, "DISK"), (SHARED, "MEMORY"), (UNLINKED, "DISK")])
def test_what_no_folder_shows_counts(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, limit: str) -> None:
    least = 30 << 20 if limit == "DISK" else 140 << 20  # four processes with 40 MiB each, which they share with nobody
    monkeypatch.setattr(confined, f"_MOST_{limit}_BYTES", least)
    told = of(folder, code)
    assert told.startswith("it wrote " if limit == "DISK" else "it took "), told


@pytest.mark.parametrize("place", [".", "below"])
def test_closed_folders_are_no_way_out(folder: Path, place: str) -> None:
    if os.geteuid() == 0:
        pytest.skip("not run: the superuser reads closed folders")
    code = f"import os, time; os.makedirs('below', exist_ok=True); os.chmod({place!r}, 0o300); time.sleep(30)"
    assert of(folder, code) == "what it wrote cannot be looked at: Permission denied"


def test_a_closed_folder_is_removed() -> None:
    with workplace() as made:
        (made / "below").mkdir()
        (made / "below").chmod(0)
        made.chmod(0o300)
    assert not made.exists()


def test_a_sparse_file_takes_no_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "_MOST_DISK_BYTES", 10 << 20)
    assert of(folder, "import time; open('f', 'wb').truncate(1 << 30); time.sleep(1); print('done')") == "done"


def test_the_number_of_its_files_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "_MOST_FILES", 50)
    told = of(folder, "import time\nfor n in range(60): open(f'{n}', 'w')\ntime.sleep(30)")
    assert told == "it made more than 50 files"


def test_folders_that_are_too_deep_to_be_looked_at_are_no_way_out(folder: Path) -> None:
    code = "import os, time\nfor n in range(3000): os.mkdir('dd'); os.chdir('dd')\ntime.sleep(30)"
    assert of(folder, code).startswith("what it wrote cannot be looked at: ")
