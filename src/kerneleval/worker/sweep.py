"""Clean up after hosts that were killed: directories of their slots, and processes that still run in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from kerneleval.records import UsageError
from kerneleval.worker import processes
from kerneleval.worker.reaper import kill_all, remove
from kerneleval.worker.slot import MARK, Slot, claim

__all__ = ["sweep"]


def sweep(directory: str | Path, prefix: str = "kerneleval-") -> list[str]:
    """Remove what dead hosts of this user left in ``directory``.

    Looks at directories named ``prefix`` and anything, of this user, that hold slots; a slot whose host still runs is
    left alone. Nothing outside of those directories is touched, and no link is followed.

    Args:
        directory: where hosts make their root directories.
        prefix: how the names of those begin.

    Returns:
        what could not be ended or removed, in words.
    """
    leftovers: list[str] = []
    for root in sorted(Path(directory).glob(prefix + "*")):
        if not _is_own_directory(root):
            continue
        slots = [base for base in sorted(root.glob("slot-*")) if _is_own_directory(base)]
        for base in slots:
            word = _read(base / MARK)
            if word is None or _lives(word):
                continue
            leftovers += _end(word, base)
        if slots and not any(root.iterdir()):
            root.rmdir()
    return leftovers


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return path.is_dir() and not path.is_symlink() and status.st_uid == os.geteuid()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        word = json.loads(path.read_text())
        slot = Slot.from_plain(word["slot"])
        known = Path(slot.base) == path.parent and isinstance(word["host"], int) and isinstance(word["started"], str)
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return None  # not a slot of ours, or one that is being made just now
    return {"slot": slot, "host": word["host"], "started": word["started"]} if known else None


def _lives(word: dict[str, Any]) -> bool:
    return processes.is_running(word["host"]) and processes.start_time(word["host"]) == word["started"]


def _end(word: dict[str, Any], base: Path) -> list[str]:
    slot: Slot = word["slot"]
    if slot.uid >= 0 and not claim(slot.uid):
        return remove(str(base))  # another host has the user, and took it when it ran nothing
    return kill_all(slot, -1)
