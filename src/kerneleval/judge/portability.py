"""A candidate compiled for GPUs that are not there.

Triton kernels come into being while a candidate runs, so its code is run for that: in a confined process, on zeros
(``languages/crosscompile``). What that process says of errors is taken as it is, for it harms nobody but the candidate;
that a kernel was compiled is believed only where a binary for the target lies there that has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneleval import languages
from kerneleval.languages import BuildError
from kerneleval.languages.amd import code_objects, unknown_target
from kerneleval.languages.crosscompile import Target, count, read_binary, widest_bytes
from kerneleval.languages.cubin import uses
from kerneleval.languages.nvidia import find_cuobjdump
from kerneleval.records import (
    Candidate,
    Case,
    CompiledKernel,
    InfrastructureError,
    MatrixRow,
    Rung,
    Task,
    TensorSpec,
    to_plain,
)
from kerneleval.worker import confined
from kerneleval.worker.sandbox import clean_environment, package_folders

__all__ = ["NOT_EVALUATED", "compile_for"]

NOT_EVALUATED = Rung(answer="not evaluated")

_S_PER_TARGET = 150.0
_MOST_BYTES = 64 << 20
_MOST_KERNELS = 512
_MOST_CHARS = 4000

_DISASSEMBLING_S = 120.0
_DISASSEMBLE = 'for file in */*.cubin; do "$0" -sass "$file" > "$file.sass" 2> /dev/null; done'

_BOOT = (
    "import sys; sys.path.append(sys.argv.pop(1)); from kerneleval.languages.crosscompile.program import main; "
    "sys.exit(main(sys.argv[1:]))"
)


def compile_for(
    candidate: Candidate, task: Task, cases: Sequence[Case], targets: Sequence[Target]
) -> tuple[MatrixRow, ...]:
    """A row for each target, in their order, its rung ``compiles`` answered where it can be.

    Args:
        candidate: the source.
        task: what it solves.
        cases: at which it is called, for Triton kernels to be launched; of modest sizes.
        targets: what to compile for.

    Raises:
        UsageError: this system cannot confine the candidate's code.
        InfrastructureError: a compiler is missing, or the machine failed.
    """
    if candidate.language == "triton":
        if task.module:
            why = "problem files bring weights, which this does not make"
            return tuple(_row(t, Rung(answer="not evaluated", why=why)) for t in targets)
        return _triton(candidate, task, cases, targets)
    if candidate.language in ("cuda", "hip"):
        return tuple(_native(candidate, target) for target in targets)
    why = f"{candidate.language} candidates have no kernels of their own to compile for a GPU"
    return tuple(_row(target, Rung(answer="not evaluated", why=why)) for target in targets)


def _row(target: Target, compiles: Rung, kernels: Sequence[CompiledKernel] = (), seconds: float = 0.0) -> MatrixRow:
    return MatrixRow(
        target=target.name,
        product=target.product,
        compiles=compiles,
        runs=NOT_EVALUATED,
        correct=NOT_EVALUATED,
        fast=NOT_EVALUATED,
        kernels=tuple(kernels),
        seconds=seconds,
    )


# --------------------------------------------------------------------------------------------------------------------
# CUDA and HIP C++
# --------------------------------------------------------------------------------------------------------------------


def _native(candidate: Candidate, target: Target) -> MatrixRow:
    """CUDA or HIP C++ by the target's own compiler, where it is installed and knows the target."""
    amd = target.vendor == "amd"
    if candidate.language == "hip" and not amd:
        return _row(target, Rung(answer="not evaluated", why="HIP C++ is compiled for AMD's GPUs alone"))
    device = "rocm" if amd else "cuda"
    language = languages.find(candidate.language)
    absent = language.missing(device) if amd else ""
    if why := f"it takes {absent}" if absent else unknown_target(target.name) if amd else "":
        return _row(target, Rung(answer="not evaluated", why=why))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        try:
            language.build(candidate, Path(folder), device, target.name)
        except BuildError as error:
            text = str(error)[:_MOST_CHARS]
            return _row(target, Rung(answer="no", why=text), seconds=time.perf_counter() - started)
        seconds = time.perf_counter() - started
        files = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    kernels = _amd_kernels(files, target) if amd else _nvidia_kernels(files)
    if amd and not kernels:  # a host function that computes nothing on the device, or a bundle that is compressed
        return _row(target, Rung(answer="not evaluated", why="no kernel can be read in what was compiled"), (), seconds)
    return _row(target, Rung(answer="yes"), kernels, seconds)


def _nvidia_kernels(files: Sequence[bytes]) -> list[CompiledKernel]:
    return [
        CompiledKernel(name=use.kernel, registers=use.registers, spilled=use.local_bytes, shared_bytes=use.shared_bytes)
        for data in files
        for use in uses(data)
    ]


def _amd_kernels(files: Sequence[bytes], target: Target) -> list[CompiledKernel]:
    """Of the code objects that are for the target, by their own headers."""
    return [
        CompiledKernel(name=one.name, registers=one.registers, spilled=one.spilled, shared_bytes=one.shared_bytes)
        for data in files
        for _, code in code_objects(data)
        for one in read_binary(code)
        if one.arch == target.name
    ]


# --------------------------------------------------------------------------------------------------------------------
# Triton
# --------------------------------------------------------------------------------------------------------------------


def _triton(
    candidate: Candidate, task: Task, cases: Sequence[Case], targets: Sequence[Target]
) -> tuple[MatrixRow, ...]:
    folder = Path(tempfile.mkdtemp(prefix="kerneleval-targets-"))
    try:
        out = folder / "out"
        out.mkdir()
        spec = {
            "candidate": to_plain(candidate),
            "names": [task.name],
            "targets": [target.name for target in targets],
            "calls": [_call(task, case) for case in cases],
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        said = _run(folder, _compiling(folder), _S_PER_TARGET * len(targets))
        if not any(place.is_dir() for place in out.iterdir()):  # it came to no target: none of its doing
            raise InfrastructureError(f"nothing could be compiled: {said[-1000:]}")
        _disassemble(folder)
        return tuple(_found(target, out / target.name, said) for target in targets)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _call(task: Task, case: Case) -> dict[str, Any]:
    arguments = [
        {"shape": list(a.shape), "dtype": a.dtype, "grad": a.differentiable}
        if isinstance(a, TensorSpec)
        else {"value": a.value}
        for a in task.arguments(case.dims_map, case.dtype)
    ]
    backward = case.direction == "backward"
    return {"key": case.key, "dims": dict(case.dims), "args": arguments, "backward": backward}


def _compiling(folder: Path) -> tuple[list[str], list[Path]]:
    """The command line of the process that compiles, and what it reads."""
    package = Path(__file__).resolve().parents[1]
    copy = (
        folder / "package" / package.name
    )  # of what it needs: the rest of this package is not the candidate's to read
    for part in ("languages", "records"):
        shutil.copytree(package / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "__init__.py", copy)
    argv = [sys.executable, "-c", _BOOT, str(copy.parent), str(folder / "spec.json"), str(folder / "out")]
    return argv, [folder / "package", folder / "spec.json", *map(Path, package_folders())]


def _disassemble(folder: Path) -> None:
    """SASS beside each of NVIDIA's binaries, where there is a disassembler; it reads what a candidate may have written,
    so it is confined too.
    """
    tool = find_cuobjdump()
    if tool is not None:
        argv = ["/bin/sh", "-c", _DISASSEMBLE, tool]
        _run(folder, (argv, [Path(tool).resolve().parent]), _DISASSEMBLING_S)


def _run(folder: Path, what: tuple[Sequence[str], Sequence[Path]], seconds: float) -> str:
    """Run something confined that may write into ``out``; what it printed last."""
    argv, readable = what
    words = confined.command(argv, readable, [folder / "out"])
    environment = clean_environment() | {"HOME": str(folder / "out"), "TMPDIR": str(folder / "out")}
    environment |= {"TRITON_HOME": str(folder / "out"), "PYTHONPATH": os.pathsep.join(package_folders())}
    process = subprocess.Popen(
        words,
        cwd=folder / "out",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        printed = f"compiling took longer than {seconds:.0f} s".encode()
    finally:
        if process.poll() is None:  # SIGTERM to the monitor ends all that it started
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2 * confined.GRACE_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return printed.decode(errors="replace").strip()[-_MOST_CHARS:]


def _found(target: Target, folder: Path, said: str) -> MatrixRow:
    """What is believed of what the process left for a target."""
    try:
        told = json.loads(_content(folder / "found.json") or b"null")
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, Mapping):
        last = _content(folder / "said.txt").decode(errors="replace").strip()[-_MOST_CHARS:] or said
        during = _content(folder / "compiling.txt").decode(errors="replace")[:200]
        where = f"{during}: the compiler" if during else "the process that compiles"
        return _row(target, Rung(answer="no", why=f"{where} ended without a result{f': {last}' if last else ''}"))
    if error := _text(told.get("error")):
        return _row(target, Rung(answer="no", why=error))
    kernels, seconds = _kernels(target, folder, told.get("kernels"))
    raised = [_text(call.get("error")) for call in _maps(told.get("calls"))]
    failed = next((f"{kernel.name}: {kernel.error}" for kernel in kernels if kernel.error), "")
    if failed:
        return _row(target, Rung(answer="no", why=failed), kernels, seconds)
    if why := next(filter(None, raised), ""):
        return _row(target, Rung(answer="no", why=f"a call raised: {why}"), kernels, seconds)
    if not kernels:
        return _row(target, Rung(answer="not evaluated", why="no Triton kernel was launched"))
    return _row(target, Rung(answer="yes"), kernels, seconds)


def _kernels(target: Target, folder: Path, told: Any) -> tuple[list[CompiledKernel], float]:
    """Each kernel once, by its binary."""
    found: dict[tuple[str, str, str], CompiledKernel] = {}
    for row in _maps(told)[:_MOST_KERNELS]:
        name, file, error = _text(row.get("kernel")), _text(row.get("file")), _text(row.get("error"))
        if (name, file, error) in found:
            continue
        shared, seconds = row.get("shared"), row.get("seconds")
        kernel = CompiledKernel(
            name=name,
            error=error,
            seconds=float(seconds) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e6 else 0.0,
        )
        if not error:
            kernel = _believed(kernel, target, folder, file, shared if type(shared) is int and shared > 0 else 0)
        found[name, file, error] = kernel
    return list(found.values()), sum(kernel.seconds for kernel in found.values())


def _believed(kernel: CompiledKernel, target: Target, folder: Path, file: str, dynamic: int) -> CompiledKernel:
    in_binary = read_binary(_content(folder / Path(file).name)) if file else ()
    for one in in_binary:
        if one.name == kernel.name and one.arch == target.name:
            shared = max(one.shared_bytes, 0) + dynamic
            kernel = replace(kernel, registers=one.registers, spilled=one.spilled, shared_bytes=shared)
            return _disassembled(kernel, target, folder / Path(file).name)
    return replace(kernel, error=f"there is no binary of it for {target.name}")


def _disassembled(kernel: CompiledKernel, target: Target, binary: Path) -> CompiledKernel:
    """With what its text says: of NVIDIA's this program's own disassembly, of AMD's the compiler's output as the
    candidate's process left it.
    """
    amd = target.vendor == "amd"
    text = _content(binary.with_suffix(".amdgcn") if amd else Path(f"{binary}.sass")).decode(errors="replace")
    if not text.strip():
        return kernel
    found = tuple(count(text, amd=amd).items())
    return replace(kernel, instructions=found, widest_bytes=widest_bytes(text, amd=amd))


def _content(path: Path) -> bytes:
    """What a regular file holds that somebody else wrote; nothing of a link, a pipe, or one that is too large."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES:
                return stream.read(_MOST_BYTES)
    return b""


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:_MOST_CHARS] if isinstance(value, str) else ""
