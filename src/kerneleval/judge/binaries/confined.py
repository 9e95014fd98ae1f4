"""Confined programs: they read what a candidate may have written, or run it to see what it launches, and are watched.

The kernel limits what such a process reaches (``sandbox/jail.py``), not what all its processes take together: memory,
disk and their number are looked at from outside, and a program that takes too much is ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kerneleval.sandbox import jail, processes
from kerneleval.sandbox.reach import clean_environment
from kerneleval.sandbox.reaper import remove

_MOST_MEMORY_BYTES = 12 << 30
"""Of all its processes together; LLVM and nvcc take one or two gigabytes."""

_MOST_DISK_BYTES, _MOST_FILES = 4 << 30, 100_000
"""What lies in its folder, and in files that it holds open and has removed; a build of twelve targets leaves some
hundred megabytes."""

_MOST_PROCESSES = 500
"""Of a build, at one moment: compilers start a few programs for each processor."""

_LOOK_S, _REST = 0.25, 10
_MOST_CHARS, _KEPT_BYTES = 4000, 16000
_CHUNK = 1 << 16


class LastOutput(NamedTuple):
    """What a confined program printed last."""

    text: str
    """At most 4,000 characters; or why it was ended."""
    ended: bool = False
    """Whether it was, for it took too long, or too much: what it left may be cut off anywhere."""


@contextlib.contextmanager
def workplace(prefix: str = "kerneleval-code-") -> Iterator[Path]:
    """A new folder, removed afterwards with what confined programs left in it, however deep or closed that is."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
        for left in remove(str(folder)):
            warnings.warn(f"what a confined program left stays there: {left}", stacklevel=3)


def run_confined(
    folder: Path,
    writable: Path,
    what: tuple[Sequence[str], Sequence[Path]],
    seconds: float,
    settings: Mapping[str, str],
) -> LastOutput:
    """Run something confined that may write into one folder; what it printed last, or why it was ended.

    Args:
        writable: the folder that it may change; also its home, and where its temporary files go.
        what: its words, and what it may read beside the system.
        seconds: limit of its time; it is ended then, or where it has too much memory, disk or processes.

    Raises:
        UsageError: this system cannot confine it.
    """
    argv, readable = what
    words = jail.command(argv, readable, [writable])
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=clean_environment() | {"HOME": str(writable), "TMPDIR": str(writable)} | dict(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return _watched(process, writable, seconds)
    finally:
        if process.poll() is None:  # SIGTERM to the monitor ends all that it started
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2 * jail.GRACE_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _watched(process: subprocess.Popen[bytes], writable: Path, seconds: float) -> LastOutput:
    """The end of what it prints until it ends, or why it is to be ended now."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    printed, opened = b"", True
    ends = time.monotonic() + seconds
    looks = 0.0  # at once
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while opened or process.poll() is None:
            now = time.monotonic()
            if now >= ends:
                return LastOutput(f"it took longer than {seconds:.0f} s", ended=True)
            if now >= looks:
                if why := _too_much(process.pid, writable):
                    return LastOutput(why, ended=True)
                ended = time.monotonic()
                looks = ended + max(_LOOK_S, _REST * (ended - now))  # what is measured beside it must not feel it
            wait_s = max(min(looks, ends) - time.monotonic(), 0)
            if not opened:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=wait_s)
            elif selector.select(wait_s):
                with contextlib.suppress(BlockingIOError):
                    chunk = os.read(pipe, _CHUNK)
                    opened = bool(chunk)
                    printed = (printed + chunk)[-_KEPT_BYTES:]
    return LastOutput(printed.decode(errors="replace").strip()[-_MOST_CHARS:])


def _too_much(pid: int, writable: Path) -> str:
    """What it takes beyond the limits; empty: nothing."""
    pids = processes.descendants(pid)
    if len(pids) > _MOST_PROCESSES:
        return f"it had {len(pids)} processes; the limit is {_MOST_PROCESSES}"
    used = processes.resident_bytes(pids) + processes.shared_bytes(pids)
    if used > _MOST_MEMORY_BYTES:
        return f"it took {used >> 20} MiB of memory; the limit is {_MOST_MEMORY_BYTES >> 20} MiB"
    number, size = 0, processes.deleted_bytes(pids)
    folders = [str(writable)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    number += 1
                    if number > _MOST_FILES:
                        return f"it made more than {_MOST_FILES} files"
                    with contextlib.suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        except FileNotFoundError:
            continue  # gone meanwhile
        except OSError as error:  # deeper than a path can be, or closed: no build closes a folder
            return f"what it wrote cannot be looked at: {error.strerror}"
    if size > _MOST_DISK_BYTES:
        return f"it wrote {size >> 20} MiB; the limit is {_MOST_DISK_BYTES >> 20} MiB"
    return ""
