"""What the candidate's kernels take of the GPU, from the binaries that were made of them: registers, local and shared
memory.

Binaries of CUDA sources are this program's own builds. Triton's lie in the worker's cache, where the candidate could
put others: what they say is told to whoever wrote it, and decides nothing. Kernels that were compiled and never
launched, as other configurations of a tuner, are among them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kerneleval.judge.cells import CellJudge
from kerneleval.judge.disassembly import content
from kerneleval.languages.cubin import Use, uses
from kerneleval.records import Case, Evidence, Outcome

__all__ = ["CHECK", "NEEDS_WORKER", "binaries", "told"]

NEEDS_WORKER = False

_MOST_FILES, _MOST_BYTES = 4096, 64 << 20
"""Files that are looked at, and how much is read of binaries altogether."""

_MOST_TOLD = 16


def _check(judge: CellJudge, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Evidence]:
    if judge.device.name != "cuda" or judge.loaded.trusted:
        return
    found = list(binaries(judge.loaded.runner.worker.directory))
    if found:
        yield told(found)


def binaries(folder: Path) -> Iterator[tuple[Use, int]]:
    """The kernels of all binaries in a worker's folder, each with the dynamic shared memory that Triton launches it
    with, in bytes.
    """
    left = _MOST_BYTES
    for path in _files(folder):
        if path.suffix in (".cubin", ".so"):
            data = content(path, left)
            left -= len(data)
            for use in uses(data):
                yield use, _dynamic(path.with_suffix(".json"))


def told(found: Iterable[tuple[Use, int]]) -> Evidence:
    """The finding: one row a kernel, with the least and the most where several were compiled under one name."""
    by_name: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for use, dynamic in found:
        by_name[use.kernel].append((use.registers, use.local_bytes, use.shared_bytes + dynamic))
    rows = [
        {
            "kernel": name[:200],
            "binaries": len(each),
            "registers": [min(r for r, _, _ in each), max(r for r, _, _ in each)],
            "local_bytes": [min(b for _, b, _ in each), max(b for _, b, _ in each)],
            "shared_bytes": [min(b for _, _, b in each), max(b for _, _, b in each)],
        }
        for name, each in sorted(by_name.items())[:_MOST_TOLD]
    ]
    return {"level": "info", "message": "; ".join(map(_line, rows)), "kernels": rows}


def _line(row: Evidence) -> str:
    local = row["local_bytes"]
    spilled = f", {_range(local)} bytes of local memory a thread (spilled registers, arrays)" if local[1] else ""
    several = f" ({row['binaries']} binaries)" if row["binaries"] > 1 else ""
    return (
        f"{row['kernel']}{several}: {_range(row['registers'])} registers a thread{spilled}, "
        f"{_range(row['shared_bytes'])} bytes of shared memory a block"
    )


def _range(pair: Sequence[int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}"


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder that somebody else may be changing, in a fixed order; links are not followed."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                return
            yield Path(place, name)


def _dynamic(path: Path) -> int:
    """Of Triton's description beside a binary; 0: it says nothing."""
    with contextlib.suppress(ValueError, RecursionError):
        described = json.loads(content(path, 1 << 20) or b"{}")
        shared = described.get("shared") if isinstance(described, dict) else None
        if type(shared) is int and 0 <= shared < 1 << 31:
            return shared
    return 0


CHECK = _check
