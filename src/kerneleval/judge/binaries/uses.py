"""What a judged candidate's compiled kernels use of the processor: a finding of its verdict.

Binaries are disassembled beside the checks, before anything is timed, each content once in a judge's life. Libraries
are this program's own builds; Triton's binaries are sent by the worker, where the candidate could put others, and that
one was launched is the worker's word: the finding is what a binary says, and decides no verdict.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from kerneleval.judge.binaries.disassembly import Printed, content, of_cubins, of_library, printed
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.languages.binaries import elf
from kerneleval.languages.binaries.instructions import merged, read_code
from kerneleval.languages.binaries.nvidia import find_cuobjdump
from kerneleval.languages.common.native import library_name
from kerneleval.records import CodeUse, Finding, UsageError, UsesEvidence
from kerneleval.worker.host import WorkerError, WorkerFailure

_MOST_BINARIES, _MOST_LATER, _MOST_LIBRARIES = 24, 8, 4
"""Binaries of Triton that are read beside the checks, the newest first, and those that are read after them; libraries
of which what was printed is kept."""

_MOST_BYTES, _MOST_KNOWN, _MOST_SHOWN = 64 << 20, 1024, 16
_MOST_SENT_BYTES = 2 << 20
"""Of binaries that a worker sends: in one message, which may have 4 MiB."""
_SECONDS, _SENDING_S = 10.0, 30.0


@dataclass(frozen=True, kw_only=True)
class _Binary:
    kernel: str
    key: str
    """Hash of its code and name: the folder that its source lies in, which its debugging tables name, is another in
    each worker."""
    digests: frozenset[str]
    """Triton's own hashes of what it was made of, several where these gave the same."""
    data: bytes
    amd: bool


@dataclass
class Uses:
    """Reads binaries for one judge, which outlives its candidates. To be closed."""

    known: dict[str, tuple[CodeUse, ...]] = field(default_factory=dict)
    """By hash of the content."""
    _printed: dict[str, Printed] = field(default_factory=dict)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="uses"))

    def close(self) -> None:
        """Wait for what was begun."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def begin(self, loaded: Loaded) -> Begun | None:
        """Begin to read what lies there of a candidate that has been called; None: it is nothing that is read."""
        language = loaded.candidate.language
        if loaded.trusted:
            return None
        if language == "triton" and loaded.runner.device.name != "cpu":
            return self._thread.submit(self._begun, *_sent(loaded))
        return self._thread.submit(self._of_build, loaded) if language in ("cpp", "cuda") else None

    def _of_build(self, loaded: Loaded) -> Printed:
        candidate = loaded.candidate
        folder, gpu = loaded.pool.built(candidate), candidate.language == "cuda"
        data = content(folder / library_name(candidate), _MOST_BYTES)
        data = data or (content(folder / "candidate.cubin", _MOST_BYTES) if gpu else b"")
        if not data:
            return Printed(data=data, gpu=gpu, why="its build is gone, or larger than is read")
        key = hashlib.sha256(data).hexdigest()
        if key not in self._printed:
            while len(self._printed) >= _MOST_LIBRARIES:
                del self._printed[next(iter(self._printed))]
            self._printed[key] = printed(data, gpu=gpu, seconds=_SECONDS)
        return self._printed[key]

    def _begun(self, binaries: list[_Binary], why: str) -> _Cache:
        self._read(binaries[:_MOST_BINARIES])
        return binaries, why

    def _read(self, binaries: Sequence[_Binary]) -> None:
        fresh = {one.key: one for one in binaries if one.key not in self.known}
        if len(self.known) > _MOST_KNOWN:
            self.known.clear()
        for key, one in fresh.items():
            if one.amd:
                self.known[key] = (read_code(one.data.decode(errors="replace"), "amdgcn", one.kernel),)
        cubins = {key: one.data for key, one in fresh.items() if not one.amd}
        self.known |= of_cubins(cubins, _SECONDS)

    def end(self, loaded: Loaded, begun: Begun | None, launched: Collection[str]) -> Iterator[Finding]:
        """The finding, if there is something to tell; waits for what was begun.

        Args:
            launched: kernels, or entry points of a library, that were seen launched.
        """
        if begun is None:
            language = loaded.candidate.language
            if launched and language != "triton":  # on the CPU Triton is interpreted
                yield finding(UsesEvidence(kernels=(), why=f"what the compiler of {language} makes is not looked at"))
            return
        try:
            made = begun.result()
            if not launched:
                return
            of = of_library(made, launched) if isinstance(made, Printed) else self._of_launched(loaded, made, launched)
        except UsageError as error:
            of = UsesEvidence(kernels=(), why=f"the disassembler cannot be confined: {error}")
        except OSError as error:  # no room for files, or no process: that is no reason to judge nothing
            of = UsesEvidence(kernels=(), why=f"it could not be disassembled: {error}")
        yield finding(of)

    def _of_launched(self, loaded: Loaded, cache: _Cache, launched: Collection[str]) -> UsesEvidence:
        sent, why = cache
        if why:
            return UsesEvidence(kernels=(), why=why)
        binaries = self._with_later(loaded, sent)
        by_digest = [one for one in binaries if one.digests & loaded.binaries]
        chosen = by_digest or [one for one in binaries if one.kernel in launched]
        if not chosen:
            return UsesEvidence(kernels=(), why="there is no binary of a launched kernel")
        if not all(one.amd for one in chosen) and find_cuobjdump() is None:
            return UsesEvidence(kernels=(), why="no cuobjdump: install the CUDA toolkit or Triton")
        self._read([one for one in chosen if one.key not in self.known][:_MOST_LATER])
        unread = sum(one.key not in self.known for one in chosen)
        found = merged(use for one in chosen for use in self.known.get(one.key, ()) if use.kernel[:200] == one.kernel)
        says = [f"{unread} of {len(chosen)} binaries are not read"] if unread else []
        if not by_digest and len(chosen) > len({one.kernel for one in chosen}):
            says.append("which of several binaries of a name was launched is not told, so all count")
        absent = loaded.binaries.difference(*(one.digests for one in by_digest)) if by_digest else ()
        if absent:
            says.append(f"{len(absent)} binaries that were launched are not there")
        complete = not unread and not absent and {use.kernel[:200] for use in found} >= set(launched)
        return UsesEvidence(kernels=found, why="; ".join(says), complete=complete)

    def _with_later(self, loaded: Loaded, binaries: list[_Binary]) -> list[_Binary]:
        """With what was compiled after the cache had been sent, as checks call at other sizes, if any was launched."""
        if not loaded.binaries.difference(*(one.digests for one in binaries)):
            return binaries
        found = {one.key: one for one in binaries}
        for one in _sent(loaded)[0]:
            before = found.get(one.key, one)
            found[one.key] = replace(one, digests=one.digests | before.digests)
        return list(found.values())


_Cache = tuple[list[_Binary], str]
"""What lies in Triton's cache, or why that could not be had."""

Begun = Future[_Cache] | Future[Printed]
"""What is read meanwhile."""


def _sent(loaded: Loaded) -> _Cache:
    """Binaries of Triton's cache, in memory that the worker alone sees, so it sends them; or why there are none."""
    try:
        message = {"most_bytes": _MOST_SENT_BYTES}
        answer = loaded.runner.worker.request("binaries", message, "binaries", timeout_s=_SENDING_S)
    except (WorkerError, WorkerFailure) as error:  # if it is gone, the checks will say what that means
        return [], f"its binaries could not be read: {error}"[:500]
    amd = loaded.runner.device.name == "rocm"
    return [one for one in read_sent(answer.get("files")) if one.amd == amd], ""


def read_sent(files: Any) -> list[_Binary]:
    """The binaries that a worker sent, each content once; whatever is no list of binaries holds none."""
    found: dict[str, _Binary] = {}
    for one in files if isinstance(files, list) else []:
        if not isinstance(one, Mapping) or not all(isinstance(one.get(n), str) for n in ("data", "kernel", "kind")):
            continue
        try:
            data = base64.b64decode(one["data"], validate=True)
        except ValueError:  # none of Triton's
            continue
        kernel, digest = one["kernel"][:200], one.get("hash")
        key = hashlib.sha256(f"{elf.code_digest(data)} {kernel}".encode(errors="replace")).hexdigest()
        digests = frozenset([digest] if isinstance(digest, str) and digest else [])
        if key in found:
            digests |= found[key].digests
        if data:
            found[key] = _Binary(kernel=kernel, key=key, digests=digests, data=data, amd=one["kind"] == "amdgcn")
    return list(found.values())


def finding(of: UsesEvidence) -> Finding:
    """The finding about compiled kernels."""
    lines = [*map(line, of.kernels[:_MOST_SHOWN]), *([of.why] if of.why else [])]
    kernels = tuple(replace(use, kernel=use.kernel[:200]) for use in of.kernels[:_MOST_SHOWN])
    evidence = replace(of, kernels=kernels, complete=of.complete and len(of.kernels) <= _MOST_SHOWN)
    return Finding(check="uses", level="info", message="; ".join(lines), evidence=evidence)


def line(use: CodeUse) -> str:
    """One kernel's, for people."""
    parts = []
    for name, number in use.classes:
        first = next((one.mnemonic for one in use.lines if one.unit == name), "")
        parts.append(f"{number} {name}{f' ({first})' if first else ''}")
    where = "memory" if use.isa in ("x86", "arm") else "global memory"
    if use.widest_bytes:
        parts.append(f"{use.widest_bytes} bytes at most an access to {where}")
    if use.vectorised is not None:
        parts.append(f"{use.vectorised:.0%} of {use.accesses} accesses wide")
    return f"{use.kernel[:200]}: {use.instructions} instructions" + "".join(f", {part}" for part in parts)
