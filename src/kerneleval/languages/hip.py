"""HIP C++ candidates, on AMD's GPUs: compiled by hipcc, called through the native ABI. CUDA sources too, translated.

Written as CUDA's (``cuda.py``): with a host launcher, or device code alone with ``kerneleval-launch`` headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerneleval.languages.binaries import amd
from kerneleval.languages.binaries.elf import exported, foreign_names, loader_names
from kerneleval.languages.common.base import Language, Loaded, register, source_folder
from kerneleval.languages.common.compiler import candidate_flags
from kerneleval.languages.common.native import (
    NativeLoaded,
    built,
    check_kernels,
    device_launches,
    is_device_code,
    library_name,
)
from kerneleval.records import Candidate

_CODE = "candidate.hsaco"


@register
class Hip(Language):
    """HIP C++ source, on AMD GPUs."""

    name = "hip"
    suffixes = (".hip",)
    devices = ("rocm",)
    needs_build = True
    longest_build_s = amd.TIMEOUT_S

    def build(self, candidate: Candidate, out_dir: Path, device: str, arch: str) -> None:
        """Compiles for ``arch`` into a shared library or ``candidate.hsaco``; see :meth:`Language.build`. No GPU."""
        self.check_device(device)
        build(candidate, out_dir, arch, self.suffixes, candidate_flags(candidate, "hipcc"))

    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        self.check_device(device)
        return NativeLoaded(built(candidate, build_dir, _CODE, device, amd.HipModule), candidate, names, device)

    def foreign(self, candidate: Candidate, build_dir: Path) -> tuple[str, ...]:
        """See :meth:`Language.foreign`. The HIP runtime is linked dynamically: what needs the loader is the source."""
        library = build_dir / library_name(candidate)
        if not library.is_file():
            return ()  # device code alone
        return (*foreign_names(library), *loader_names(library))

    def missing(self, device: str) -> str:
        return amd.missing_hipcc()

    def known_for(self, candidate: Candidate) -> str:
        return self.known[is_device_code(candidate)]

    def toolchain(self, device: str, arch: str) -> str:
        return toolchain(self.name, arch)


def build(
    candidate: Candidate,
    out_dir: Path,
    arch: str,
    suffixes: Sequence[str],
    flags: Sequence[str],
    *,
    translate: bool = False,
) -> None:
    """Compile a candidate for an AMD GPU; see :meth:`Language.build`. Besides the main file, those with one of the
    suffixes are compiled; ``flags`` are hipcc's; ``translate``: it is CUDA source.
    """
    launches = device_launches(candidate)
    files = enumerate(candidate.files)
    sources = [path for i, (path, _) in files if i == 0 or (not launches and path.endswith(tuple(suffixes)))]
    with source_folder(candidate, out_dir) as folder:
        if translate:
            sources = amd.hipified(folder, sources)
        kind = ["-x", "hip"]  # also of what keeps its suffix because nothing had to be translated
        what, out = ("--genco", _CODE) if launches else ("-shared", library_name(candidate))
        amd.compile_hip([what, *flags, *kind, *sources], arch, folder, out_dir / out)
    if launches and (objects := amd.code_objects((out_dir / _CODE).read_bytes())):
        names = {name for _, code in objects for name in exported(code) if name.endswith(".kd")}
        check_kernels(out_dir / _CODE, launches, sorted(name.removesuffix(".kd") for name in names))


def toolchain(language: str, arch: str) -> str:
    """Compiler, flags and target; of CUDA sources the translator too."""
    translator = "" if language == "hip" else amd.hipify_version()
    return "\n".join((language, amd.hipcc_version(), " ".join(amd.FLAGS), arch, translator))
