"""What the candidate's kernels take of the GPU, from the binaries that were made of them: registers, local and shared
memory.

Binaries of CUDA sources are this program's own builds. Triton's lie in the worker's cache, which may be in memory that
the worker alone sees: it sends them, and the candidate could put others there. What they say is for the author of the
candidate, and decides nothing. Kernels that were compiled and never launched, as other configurations of a tuner, are
among them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneleval.judge.binaries.disassembly import content
from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.probes.calls import Calls
from kerneleval.languages.binaries.cubin import Use, uses
from kerneleval.records import Case, Finding, KernelResources, Outcome, ResourcesEvidence
from kerneleval.worker.host import WorkerError

__all__ = ["built", "sent", "told"]

_MOST_FILES, _MOST_BYTES = 4096, 64 << 20
"""Files that are looked at, and how much is read of binaries altogether."""

_MOST_SENT_BYTES = 2 << 20
"""Of binaries that a worker sends: in one message, which may have 4 MiB."""

_TIMEOUT_S = 30.0

_MOST_TOLD = 16


@register
def _check(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    if calls.device.name != "cuda" or calls.loaded.trusted:
        return
    worker = calls.loaded.runner.worker
    found = list(built(worker.directory))
    if not found and calls.loaded.candidate.language == "triton":
        try:
            answer = worker.request("binaries", {"most_bytes": _MOST_SENT_BYTES}, "binaries", timeout_s=_TIMEOUT_S)
        except WorkerError as error:  # a finding for information is no reason to reject anything
            yield Finding(level="info", message=f"its binaries could not be read: {error}"[:500])
            return
        found = list(sent(answer.get("files")))
    if found:
        yield told(found)


def built(folder: Path) -> Iterator[tuple[Use, int]]:
    """The kernels of all binaries in a worker's folder, and 0, the dynamic shared memory that is known of them."""
    left = _MOST_BYTES
    for path in _files(folder):
        if path.suffix in (".cubin", ".so"):
            data = content(path, left)
            left -= len(data)
            yield from ((use, 0) for use in uses(data))


def sent(files: Any) -> Iterator[tuple[Use, int]]:
    """The kernels of the binaries that a worker sent, each with the dynamic shared memory that Triton launches it with,
    in bytes. Whatever is no list of binaries holds none.
    """
    for one in files if isinstance(files, list) else []:
        if not isinstance(one, Mapping) or not isinstance(one.get("data"), str):
            continue
        shared = one.get("shared")
        with contextlib.suppress(binascii.Error, ValueError):
            for use in uses(base64.b64decode(one["data"], validate=True)):
                yield use, shared if type(shared) is int and 0 <= shared < 1 << 31 else 0


def told(found: Iterable[tuple[Use, int]]) -> Finding:
    """The finding: one row a kernel, with the least and the most where several were compiled under one name."""
    by_name: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for use, dynamic in found:
        by_name[use.kernel].append((use.registers, use.local_bytes, use.shared_bytes + dynamic))
    rows = tuple(
        KernelResources(
            kernel=name[:200],
            binaries=len(each),
            registers=(min(r for r, _, _ in each), max(r for r, _, _ in each)),
            local_bytes=(min(b for _, b, _ in each), max(b for _, b, _ in each)),
            shared_bytes=(min(b for _, _, b in each), max(b for _, _, b in each)),
        )
        for name, each in sorted(by_name.items())[:_MOST_TOLD]
    )
    return Finding(level="info", message="; ".join(map(_line, rows)), evidence=ResourcesEvidence(kernels=rows))


def _line(row: KernelResources) -> str:
    local = row.local_bytes
    spilled = f", {_range(local)} bytes of local memory a thread (spilled registers, arrays)" if local[1] else ""
    several = f" ({row.binaries} binaries)" if row.binaries > 1 else ""
    return (
        f"{row.kernel}{several}: {_range(row.registers)} registers a thread{spilled}, "
        f"{_range(row.shared_bytes)} bytes of shared memory a block"
    )


def _range(pair: Sequence[int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}"


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder that another process may be changing, in a fixed order; links are not followed."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                return
            yield Path(place, name)
