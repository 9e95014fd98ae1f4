"""What binaries use of a processor, by disassemblers that run confined: they read what a candidate may have written.

Nothing of a binary is run. What is printed is read up to a limit, and what a disassembler does wrong, or too slowly, is
no text.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kerneleval.judge.binaries.confined import run_confined, workplace
from kerneleval.languages.binaries import elf
from kerneleval.languages.binaries.instructions import (
    kernels_reached,
    listing,
    merged,
    reached,
    read_code,
    sass_functions,
)
from kerneleval.languages.binaries.kernels import cuda_kernels, device_binaries
from kerneleval.languages.binaries.nvidia import find_cuobjdump
from kerneleval.languages.common.compiler import find_tool
from kerneleval.records import CodeUse, UsesEvidence

_MOST_TEXT_BYTES, _MOST_TEXTS_BYTES = 32 << 20, 128 << 20
"""What is read of one text, and of all of a library."""

_MOST_MEMORY_KIB = 4 << 20
_MOST_KERNELS, _MOST_ENTRIES = 64, 16
"""Most kernels that are reported; most entry points of the CPU that are read, each with all that it calls."""

_DISASSEMBLE = (
    f"ulimit -f {_MOST_TEXT_BYTES >> 9}; ulimit -v {_MOST_MEMORY_KIB}; n=0; "
    'for file in *.cubin; do [ -f "$file" ] || continue; "$0" -sass "$file" > "$file.txt" 2> /dev/null & '
    "n=$((n + 1)); [ $((n % $2)) -eq 0 ] && wait; done; "
    '[ -f host.so ] && { "$1" -R host.so; "$1" -d --no-show-raw-insn host.so; } > host.so.txt 2> /dev/null; wait'
)


def of_cubins(binaries: Mapping[str, bytes], seconds: float) -> dict[str, tuple[CodeUse, ...]]:
    """What the kernels of NVIDIA's device binaries use; one that cannot be disassembled is left out.

    Args:
        binaries: key -> a cubin.

    Raises:
        UsageError: this system cannot confine the disassembler.
    """
    tool = find_cuobjdump()
    if tool is None or not binaries:
        return {}
    keys = list(binaries)
    texts = _texts({f"{number}.cubin": binaries[key] for number, key in enumerate(keys)}, tool, "", seconds)
    return {
        key: found
        for number, key in enumerate(keys)
        if (found := _sass(binaries[key], texts.get(f"{number}.cubin", "")))
    }


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What disassemblers printed of a shared library, or of a cubin whose entry points are kernels."""

    data: bytes
    gpu: bool
    """Whether it holds device binaries that count."""
    code: tuple[CodeUse, ...] = ()
    """Of a GPU all kernels in it."""
    host: str = ""
    why: str = ""
    """Why there is nothing; empty: there is something."""


def printed(data: bytes, *, gpu: bool, seconds: float) -> Printed:
    """Disassemble a shared library.

    Args:
        gpu: whether it holds device binaries that count.

    Raises:
        UsageError: this system cannot confine the disassembler.
    """
    cuobjdump, objdump = find_cuobjdump() if gpu else None, find_tool(["objdump"])
    if gpu and cuobjdump is None:
        return Printed(data=data, gpu=gpu, why="no cuobjdump: install the CUDA toolkit or Triton")
    files: dict[str, bytes] = {}
    if gpu:
        files = {f"{number}.cubin": one for number, one in enumerate(device_binaries(data)) if cuda_kernels(one)}
    if not elf.is_device(data) and objdump is not None:
        files["host.so"] = data
    elif not gpu:
        return Printed(data=data, gpu=gpu, why="no objdump: install binutils")
    texts = _texts(files, cuobjdump or "", objdump or "", seconds)
    found = [use for name, one in files.items() if name != "host.so" for use in _sass(one, texts.get(name, ""))]
    why = "" if found or (texts.get("host.so") and not gpu) else "nothing could be disassembled"
    return Printed(data=data, gpu=gpu, code=tuple(found), host=texts.get("host.so", ""), why=why)


def of_library(of: Printed, entries: Collection[str]) -> UsesEvidence:
    """What the entry points of a library use: of a GPU the kernels that they can launch, of the CPU their code.

    Args:
        entries: names of functions, or kernels of a cubin.
    """
    if of.why:
        return UsesEvidence(kernels=(), why=of.why)
    if not of.gpu:
        return _of_host(of.host, entries, of.data)
    kernels = frozenset(use.kernel for use in of.code)
    if elf.is_device(of.data):
        launched, known = kernels & frozenset(entries), True
    else:
        launched, known = kernels_reached(listing(of.host), entries, kernels)
    why = "" if known else "which of its kernels are launched is not told, so all count"
    found = merged(use for use in of.code if use.kernel in launched)
    return UsesEvidence(kernels=found[:_MOST_KERNELS], why=why, complete=len(found) <= _MOST_KERNELS)


def _texts(files: Mapping[str, bytes], cuobjdump: str, objdump: str, seconds: float) -> dict[str, str]:
    """File name -> what the disassembler prints of it."""
    with workplace() as folder:
        for name, data in files.items():
            (folder / name).write_bytes(data)
        abreast = str(max(os.cpu_count() or 1, 1))
        readable = [Path(tool).resolve().parent for tool in (cuobjdump, objdump) if tool]
        words = ["/bin/sh", "-c", _DISASSEMBLE, cuobjdump, objdump, abreast]
        if run_confined(folder, folder, (words, readable), seconds, {}).ended:
            return {}  # any text may be cut off
        found, left = {}, _MOST_TEXTS_BYTES
        for name in files:
            found[name] = content(folder / f"{name}.txt", min(left, _MOST_TEXT_BYTES))
            left -= len(found[name])
    return {name: text.decode(errors="replace") for name, text in found.items() if text.strip()}


def _sass(binary: bytes, text: str) -> tuple[CodeUse, ...]:
    """Of the kernels that the binary's own tables name."""
    kernels = {kernel.name for kernel in cuda_kernels(binary)}
    return merged(read_code(body, "sass", name) for name, body in sass_functions(text) if name in kernels)


def _of_host(text: str, entries: Collection[str], data: bytes) -> UsesEvidence:
    isa = {62: "x86", 183: "arm"}.get(struct.unpack_from("<H", data.ljust(20, b"\0"), 18)[0], "")
    if not isa or not text:
        why = "nothing could be disassembled" if isa else "its instruction set is none that is read here"
        return UsesEvidence(kernels=(), why=why)
    code = listing(text)
    found: list[CodeUse] = []
    says: list[str] = []
    there = sorted(set(entries) & code.bodies.keys())
    for entry in there[:_MOST_ENTRIES]:
        of = reached(code, [entry])
        if not of.all_known and not says:
            says.append("it calls through pointers, so all functions of its library count")
        others = of.names if of.all_known else code.bodies.keys()
        own = [entry, *sorted(name for name in others if name != entry and name in code.bodies and "@" not in name)]
        found.append(replace(read_code("".join(code.bodies[name] for name in own), isa), kernel=entry))
    if absent := sorted(set(entries) - code.bodies.keys()):
        says.append(f"no code under the name {absent[0][:80]}")
    if unread := len(there) - len(found):
        says.append(f"{unread} of {len(there)} entry points are not looked at")
    return UsesEvidence(kernels=tuple(found), why="; ".join(says), complete=not absent and not unread)


def content(path: Path, most: int) -> bytes:
    """The content of a regular file that another process wrote; empty for a link, a pipe, a larger file or none."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_size <= most:
                return stream.read(most)
    return b""
