"""Root directories of hosts: made, removed, and removed later for hosts that were killed.

Only directories that carry this program's mark and whose host no longer runs are touched. Processes that such a host
left are ended by ``reaper.py``.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from kerneleval.records import UsageError, from_plain
from kerneleval.sandbox import processes
from kerneleval.sandbox.reaper import kill_all, remove
from kerneleval.sandbox.slot import MARK, Slot, claim, host_word

__all__ = ["PREFIX", "make_root", "remove_root", "sweep"]

PREFIX = "kerneleval-"
"""How the names of root directories begin."""


def make_root(directory: str | Path | None = None) -> Path:
    """A new directory for the slots of this process, in ``directory`` or where temporary files go."""
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory)).resolve()
    root.chmod(0o711)  # users of workers must pass
    (root / MARK).write_text(json.dumps(host_word()))
    return root


def remove_root(root: Path) -> list[str]:
    """Remove a directory that :func:`make_root` made, and all in it; returns what stays, in words."""
    return remove(str(root))


def sweep(directory: str | Path | None = None, prefix: str = PREFIX) -> list[str]:
    """Remove what dead hosts of this user left in ``directory``.

    Looks at directories named ``prefix`` and anything, of this user, that hold slots; a slot whose host still runs is
    left alone. Nothing outside of those directories is touched, and no link is followed.

    Args:
        directory: where hosts make their root directories; default: where temporary files go.
        prefix: how the names of those begin.

    Returns:
        what could not be ended or removed, in words.
    """
    leftovers: list[str] = []
    for root in sorted(Path(directory or tempfile.gettempdir()).glob(prefix + "*")):
        if not _is_own_directory(root):
            continue
        slots = [base for base in sorted(root.glob("slot-*")) if _is_own_directory(base)]
        for base in slots:
            word = _read(base / MARK)
            if word is not None and not _lives(word):
                leftovers += _end(_slot(word, base), base)
        word = _read(root / MARK)
        if word is not None and not _lives(word):
            leftovers += remove(str(root))
    return leftovers


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return path.is_dir() and not path.is_symlink() and status.st_uid == os.geteuid()


def _read(path: Path) -> dict[str, Any] | None:
    """What a host wrote there; None where it is not a host's, or is being written just now."""
    try:
        word = json.loads(path.read_text())
        known = isinstance(word["host"], int) and isinstance(word["started"], str)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return word if known else None


def _slot(word: dict[str, Any], base: Path) -> Slot | None:
    try:
        slot = from_plain(Slot, word["slot"])
    except (KeyError, TypeError, UsageError):
        return None
    return slot if Path(slot.base) == base.resolve() else None


def _lives(word: dict[str, Any]) -> bool:
    return processes.is_running(word["host"]) and processes.start_time(word["host"]) == word["started"]


def _end(slot: Slot | None, base: Path) -> list[str]:
    if slot is None:
        return remove(str(base))
    if slot.uid >= 0 and not claim(slot.uid):
        return remove(str(base))  # another host has the user, and took it when it ran nothing
    return kill_all(slot, -1)
