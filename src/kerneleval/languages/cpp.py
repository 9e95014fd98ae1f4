"""C++ candidates: compiled by g++ into a shared library, called through the native ABI (``native.py``).

0.2 s a build instead of the 25 s of ``load_inline``, because no PyTorch header is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kerneleval.languages.binaries.elf import foreign_names, loader_names
from kerneleval.languages.common.base import Language, Loaded, cpu_identity, register, source_folder
from kerneleval.languages.common.compiler import candidate_flags, compile_into, find_tool, tool_version
from kerneleval.languages.common.native import Library, NativeLoaded, library_name
from kerneleval.records import Candidate, InfrastructureError

DEFAULT_FLAGS = ("-O3", "-march=native", "-fopenmp", "-std=c++20")
"""Flags before the candidate's own, which may override them."""

TIMEOUT_S = Language.longest_build_s
"""Longest compilation."""

CPU_S = 60
"""Longest that the compiler may compute; on a busy machine that takes longer. 128 unrolled products take 21 s."""

_FIXED_FLAGS = ("-fPIC", "-shared", "-fmax-errors=20", "-fdiagnostics-color=never")


@register
class Cpp(Language):
    """C++ source with ``extern "C"`` entry points, on the CPU."""

    name = "cpp"
    suffixes = (".cpp", ".cc", ".cxx")
    devices = ("cpu",)
    needs_build = True

    def build(self, candidate: Candidate, out_dir: Path, device: str, arch: str) -> None:
        """Compiles the candidate's C++ files into a library in ``out_dir``; see :meth:`Language.build`."""
        self.check_device(device)
        flags = candidate_flags(candidate, "g++")
        sources = [path for i, (path, _) in enumerate(candidate.files) if i == 0 or path.endswith(self.suffixes)]
        command = [cpp_compiler(), *DEFAULT_FLAGS, *flags, *_FIXED_FLAGS]
        with source_folder(candidate, out_dir) as folder:
            compile_into(out_dir / library_name(candidate), command, sources, folder, TIMEOUT_S, cpu_s=CPU_S)

    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        self.check_device(device)
        return NativeLoaded(Library(build_dir / library_name(candidate)), candidate, names, device)

    def foreign(self, candidate: Candidate, build_dir: Path) -> tuple[str, ...]:
        library = build_dir / library_name(candidate)
        return (*foreign_names(library), *loader_names(library))

    def missing(self, device: str) -> str:
        return missing_compiler()

    def toolchain(self, device: str, arch: str) -> str:
        """See :meth:`Language.toolchain`; holds the processor's instruction sets, because of ``-march=native``."""
        compiler = cpp_compiler()
        return "\n".join((self.name, tool_version(compiler), " ".join(DEFAULT_FLAGS + _FIXED_FLAGS), cpu_identity()))


def missing_compiler() -> str:
    """What to install where there is no C++ compiler; empty: there is one."""
    return "" if _find_compiler() else "a C++ compiler: install g++, or set CXX"


def _find_compiler() -> str | None:
    chosen = os.environ.get("CXX", "").strip()
    return find_tool([chosen] if chosen else ["g++", "c++"])


def cpp_compiler() -> str:
    """Path of the C++ compiler; raises InfrastructureError where there is none, or ``CXX`` names none."""
    compiler = _find_compiler()
    if compiler is None:
        chosen = os.environ.get("CXX", "").strip()
        raise InfrastructureError(
            f"CXX={chosen!r} is no program on PATH" if chosen else "no C++ compiler on PATH: install g++, or set CXX"
        )
    return compiler
