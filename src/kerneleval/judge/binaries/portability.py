"""A candidate compiled for GPUs that are not there.

Triton kernels come into being while a candidate runs, so its code is run for that: in a confined process, on zeros
(``languages/crosscompile``). Compilers of CUDA and HIP C++ run confined too, for what they read and write is the
source's choice. What that process says of errors is taken as it is, for it harms the candidate alone;
that a kernel was compiled is believed only where a binary for the target lies there that has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneleval import languages
from kerneleval.judge.binaries.confined import run_confined, workplace
from kerneleval.judge.binaries.disassembly import content, of_cubins, of_library, printed
from kerneleval.languages.binaries.amd import code_objects, unknown_target
from kerneleval.languages.binaries.elf import exported, is_device
from kerneleval.languages.binaries.instructions import read_code
from kerneleval.languages.binaries.kernels import Kernel, cuda_kernels, read_binary
from kerneleval.languages.binaries.nvidia import cuda_folders, specific_arch
from kerneleval.languages.common.launches import read_launches
from kerneleval.languages.common.native import entry_names
from kerneleval.languages.crosscompile.targets import Target
from kerneleval.records import (
    Candidate,
    Case,
    CodeUse,
    CompiledKernel,
    InfrastructureError,
    MatrixRow,
    Rung,
    Task,
    TensorSpec,
    to_plain,
)
from kerneleval.sandbox.reach import package_folders

NOT_EVALUATED = Rung(answer="not evaluated")

_S_PER_TARGET = 150.0
_MOST_BYTES = 64 << 20
_MOST_KERNELS = 512
_MOST_CUBINS = 512
_MOST_CHARS = 4000

_DISASSEMBLING_S = 120.0

_Uses = Sequence[CodeUse]

_S_PER_BUILD = 330.0
"""Compilers end by themselves before."""

_BOOT = (
    "import sys; sys.path.append(sys.argv.pop(1)); from kerneleval.languages.crosscompile.{} import main; "
    "sys.exit(main(sys.argv[1:]))"
)


def compile_for(
    candidate: Candidate, task: Task, cases: Sequence[Case], targets: Sequence[Target]
) -> tuple[MatrixRow, ...]:
    """A row for each target, in their order, its rung ``compiles`` answered where it can be.

    Args:
        cases: at which it is called, for Triton kernels to be launched; of modest sizes. Of a direction and dtype the
            first that the candidate does not declare unsupported.

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
        return tuple(_native(candidate, task, target) for target in targets)
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


def _native(candidate: Candidate, task: Task, target: Target) -> MatrixRow:
    if target.vendor == "amd":
        return _by_hipcc(candidate, target)
    if candidate.language == "hip":
        return _row(target, Rung(answer="not evaluated", why="HIP C++ is compiled for AMD's GPUs alone"))
    return _cuda(candidate, task, target)


def _by_hipcc(candidate: Candidate, target: Target) -> MatrixRow:
    """Where hipcc is installed and knows the target; CUDA C++ as hipify translates it."""
    language = languages.find(candidate.language)
    absent = language.missing("rocm")
    if why := f"it takes {absent}" if absent else unknown_target(target.name):
        return _row(target, Rung(answer="not evaluated", why=why))
    with workplace() as folder:
        started = time.perf_counter()
        if text := _build(candidate, folder, "rocm", target.name):
            return _row(target, Rung(answer="no", why=text), seconds=time.perf_counter() - started)
        seconds = time.perf_counter() - started
        files = _built(folder)
    kernels = [
        _compiled(one)
        for data in files
        for _, code in code_objects(data)
        for one in read_binary(code)
        if one.arch == target.name
    ]
    if not kernels:  # a host function that computes nothing on the device, or a bundle that is compressed
        return _row(target, Rung(answer="not evaluated", why="no kernel can be read in what was compiled"), (), seconds)
    return _row(target, Rung(answer="yes"), kernels, seconds)


def _cuda(candidate: Candidate, task: Task, target: Target) -> MatrixRow:
    """Compiled as the judge would compile it: from Hopper on for the architecture-specific variant. Whether the plain
    one would have done is noted, for what needs the other runs on no later GPU.
    """
    with workplace() as folder:
        started = time.perf_counter()
        if text := _build(candidate, folder, "cuda", target.name):
            return _row(target, Rung(answer="no", why=text), seconds=time.perf_counter() - started)
        seconds = time.perf_counter() - started
        kernels = [kernel for data in _built(folder) for kernel in _of_build(candidate, task, data)]
    specific, needs = specific_arch(target.name), ""
    if f"sm_{specific}" != target.name:
        with workplace() as folder:
            needs = _build(candidate, folder, "cuda", target.name, plain=True)
    built_for = f"sm_{specific}" if needs else ""
    why = f"only for {built_for}, which no other GPU runs; for plain {target.name}: {needs}" if needs else ""
    row = _row(target, Rung(answer="yes", why=why[:_MOST_CHARS]), kernels, seconds)
    return replace(row, only_for=built_for)


def _build(candidate: Candidate, folder: Path, device: str, arch: str, *, plain: bool = False) -> str:
    """Build confined in a folder (for ``arch`` alone, without the features that are its own, where ``plain``); the
    compiler's words where it does not compile, empty: it does.

    Raises:
        UsageError: this system cannot confine the compiler.
        InfrastructureError: a tool is missing.
    """
    out = folder / "out"
    out.mkdir()
    spec = {"candidate": to_plain(candidate), "device": device, "arch": arch, "plain": plain}
    (folder / "spec.json").write_text(json.dumps(spec))
    argv, readable = _program(folder, "building")
    kits = [Path(root) for name in ("ROCM_PATH", "HIP_PATH") if (root := os.environ.get(name, "").strip())]
    kits = [path for path in (*cuda_folders(), *kits, Path("/opt")) if path.is_dir()]
    said = run_confined(out, out, (argv, [*readable, *kits]), _S_PER_BUILD, {}).text
    answer = _mapping(out / "built.json")
    if answer is None:
        return f"the process that compiles ended without a result{f': {said}' if said else ''}"
    if machine := _text(answer.get("machine")):
        raise InfrastructureError(machine)
    return _text(answer.get("error"))


def _built(folder: Path) -> list[bytes]:
    return [content(path, _MOST_BYTES) for path in sorted((folder / "out" / "build").iterdir())[:_MOST_KERNELS]]


def _compiled(one: Kernel) -> CompiledKernel:
    return CompiledKernel(name=one.name, registers=one.registers, spilled=one.spilled, shared_bytes=one.shared_bytes)


def _of_build(candidate: Candidate, task: Task, data: bytes) -> list[CompiledKernel]:
    """Its kernels that the task's entry points can launch."""
    names = [name for each in entry_names(candidate, [task.name]) for name in each]
    there = [] if is_device(data) else sorted(set(exported(data, 2)))
    entries = [found for found in there if any(found == name or found.startswith(f"{name}_") for name in names)]
    found = of_library(
        printed(data, gpu=True, seconds=_DISASSEMBLING_S), entries or list(read_launches(candidate.main))
    )
    code = {use.kernel: use for use in found.kernels}
    kernels = []
    for one in cuda_kernels(data):
        if code and one.name not in code:
            continue  # it is not launched
        kernel = _compiled(one)
        kernels.append(with_use(kernel, code[one.name]) if one.name in code else kernel)
    return kernels


def _triton(
    candidate: Candidate, task: Task, cases: Sequence[Case], targets: Sequence[Target]
) -> tuple[MatrixRow, ...]:
    with workplace("kerneleval-targets-") as folder:
        out = folder / "out"
        out.mkdir()
        spec = {
            "candidate": to_plain(candidate),
            "names": [task.name],
            "targets": [target.name for target in targets],
            "calls": [_call(task, case) for case in cases],
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        settings = {"TRITON_HOME": str(out), "PYTHONPATH": os.pathsep.join(package_folders())}
        said = run_confined(out, out, _program(folder, "program"), _S_PER_TARGET * len(targets), settings).text
        if not any(place.is_dir() for place in out.iterdir()):  # it came to no target: none of its doing
            raise InfrastructureError(f"nothing could be compiled: {said[-1000:]}")
        cubins = {str(path): content(path, _MOST_BYTES) for path in sorted(out.glob("sm_*/*.cubin"))[:_MOST_CUBINS]}
        known = of_cubins(cubins, _DISASSEMBLING_S)
        return tuple(_found(target, out / target.name, said, known) for target in targets)


def _call(task: Task, case: Case) -> dict[str, Any]:
    arguments = [
        {"shape": list(a.shape), "dtype": a.dtype, "grad": a.differentiable}
        if isinstance(a, TensorSpec)
        else {"value": a.value}
        for a in task.arguments(case.dims_map, case.dtype)
    ]
    backward = case.direction == "backward"
    kind = f"{case.direction} {case.dtype}"
    return {"key": case.key, "kind": kind, "dims": dict(case.dims), "args": arguments, "backward": backward}


def _program(folder: Path, name: str) -> tuple[list[str], list[Path]]:
    package = Path(__file__).resolve().parents[2]
    copy = (
        folder / "package" / package.name
    )  # of what it needs: the rest of this package is not the candidate's to read
    for part in ("languages", "records"):
        shutil.copytree(package / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "__init__.py", copy)
    argv = [sys.executable, "-c", _BOOT.format(name), str(copy.parent), str(folder / "spec.json"), str(folder / "out")]
    return argv, [folder / "package", folder / "spec.json", *map(Path, package_folders())]


def _found(target: Target, folder: Path, said: str, known: Mapping[str, _Uses]) -> MatrixRow:
    answer = _mapping(folder / "found.json")
    if answer is None:
        last = content(folder / "said.txt", _MOST_BYTES).decode(errors="replace").strip()[-_MOST_CHARS:] or said
        during = content(folder / "compiling.txt", _MOST_BYTES).decode(errors="replace")[:200]
        where = f"{during}: the compiler" if during else "the process that compiles"
        return _row(target, Rung(answer="no", why=f"{where} ended without a result{f': {last}' if last else ''}"))
    if error := _text(answer.get("error")):
        return _row(target, Rung(answer="no", why=error))
    kernels, seconds = _kernels(target, folder, answer.get("kernels"), known)
    calls = _maps(answer.get("calls"))
    raised = [_text(call.get("error")) for call in calls if call.get("unsupported") is not True]
    declared = [_text(call.get("error")) for call in calls if call.get("unsupported") is True]
    failed = next((f"{kernel.name}: {kernel.error}" for kernel in kernels if kernel.error), "")
    if failed:
        return _row(target, Rung(answer="no", why=failed), kernels, seconds)
    if why := next(filter(None, raised), ""):
        return _row(target, Rung(answer="no", why=f"a call raised: {why}"), kernels, seconds)
    if not kernels:
        why = f"it declares what was tried unsupported: {declared[-1]}" if declared else "no Triton kernel was launched"
        return _row(target, Rung(answer="not evaluated", why=why))
    return _row(target, Rung(answer="yes"), kernels, seconds)


def _kernels(target: Target, folder: Path, rows: Any, known: Mapping[str, _Uses]) -> tuple[list[CompiledKernel], float]:
    """Each kernel once, by its binary."""
    found: dict[tuple[str, str, str], CompiledKernel] = {}
    for row in _maps(rows)[:_MOST_KERNELS]:
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
            dynamic = shared if type(shared) is int and shared > 0 else 0
            kernel = _believed(kernel, target, folder / Path(file).name if file else None, dynamic, known)
        found[name, file, error] = kernel
    return list(found.values()), sum(kernel.seconds for kernel in found.values())


def _believed(
    kernel: CompiledKernel, target: Target, binary: Path | None, dynamic: int, known: Mapping[str, _Uses]
) -> CompiledKernel:
    in_binary = read_binary(content(binary, _MOST_BYTES)) if binary else ()
    for one in in_binary:
        if one.name == kernel.name and one.arch == target.name:
            shared = max(one.shared_bytes, 0) + dynamic
            kernel = replace(kernel, registers=one.registers, spilled=one.spilled, shared_bytes=shared)
            return _disassembled(kernel, target, binary, known) if binary else kernel
    return replace(kernel, error=f"there is no binary of it for {target.name}")


def _disassembled(kernel: CompiledKernel, target: Target, binary: Path, known: Mapping[str, _Uses]) -> CompiledKernel:
    """With what its text says: of NVIDIA's this program's own disassembly, of AMD's the compiler's output as the
    candidate's process left it.
    """
    if target.vendor == "amd":
        text = content(binary.with_suffix(".amdgcn"), _MOST_BYTES).decode(errors="replace")
        use = read_code(text, "amdgcn", kernel.name) if text.strip() else None
    else:
        use = next((one for one in known.get(str(binary), ()) if one.kernel == kernel.name), None)
    return kernel if use is None or not use.instructions else with_use(kernel, use)


def with_use(kernel: CompiledKernel, use: CodeUse) -> CompiledKernel:
    """The kernel with what its code uses."""
    return replace(kernel, instructions=use.classes, widest_bytes=use.widest_bytes, code=use)


def _mapping(path: Path) -> Mapping[str, Any] | None:
    """What a process left in a file, if that is a mapping."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content(path, _MOST_BYTES) or b"null")
        return found if isinstance(found, Mapping) else None
    return None


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:_MOST_CHARS] if isinstance(value, str) else ""
