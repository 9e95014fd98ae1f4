"""CUDA C++ candidates: with a host launcher through nvcc, device code alone through NVRTC (or nvcc's ``-cubin``).

Which of the two a file is, it says itself: device code has ``kerneleval-launch`` headers (``launches.py``). Neither
reads PyTorch's headers, which is what makes ``load_inline`` cost more than a minute for a ``.cu``.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kerneleval.languages import hip
from kerneleval.languages.binaries import amd
from kerneleval.languages.binaries.elf import foreign_names, kernel_names
from kerneleval.languages.binaries.nvidia import (
    DeviceModule,
    Nvrtc,
    cuda_folders,
    find_nvrtc,
    include_folders,
    specific_arch,
)
from kerneleval.languages.common.base import BuildError, Language, Loaded, register, source_folder
from kerneleval.languages.common.compiler import candidate_flags, compile_into, find_tool, tool_version
from kerneleval.languages.common.native import (
    NativeLoaded,
    built,
    check_kernels,
    device_launches,
    is_device_code,
    library_name,
)
from kerneleval.records import Candidate, InfrastructureError

TIMEOUT_S = 300.0
"""Longest compilation by nvcc."""

# The runtime is linked statically: the library then loads whatever runtime version PyTorch brought, and both use the
# device's primary context, so that PyTorch's pointers and streams, which are the driver's, hold in the candidate too.
_NVCC_FLAGS = ("-O3", "-std=c++17", "-cudart", "static", "-Xcompiler", "-fPIC", "--no-compress")
_CUBIN = "candidate.cubin"
_LOADER_CALL = re.compile(
    r"\b(dlopen|dlsym|dlvsym|dlmopen|dl_iterate_phdr|cudaGetDriverEntryPoint\w*|posix_spawnp?|popen|f?exec[lv]p?e?(?=\s*\())"
    r"\b"
)


@register
class Cuda(Language):
    """CUDA C++ source, on NVIDIA GPUs; on AMD's what hipify makes of it (``hip.py``)."""

    name = "cuda"
    suffixes = (".cu",)
    devices = ("cuda", "rocm")
    needs_build = True
    longest_build_s = TIMEOUT_S

    def build(self, candidate: Candidate, out_dir: Path, device: str, arch: str) -> None:
        """Compiles for ``arch`` into a shared library or ``candidate.cubin``; see :meth:`Language.build`. No GPU."""
        self.check_device(device)
        if _on_amd(device):
            flags = amd.translated_flags(candidate_flags(candidate, "nvcc"), candidate.files[0][0])
            hip.build(candidate, out_dir, arch, self.suffixes, flags, translate=True)
            return
        self._build(candidate, out_dir, specific_arch(arch))

    def why_not_plain(self, candidate: Candidate, arch: str) -> str:
        """The compiler's words where the source does not compile for an architecture without the features that are that
        one's alone; empty: it does. :meth:`build` compiles with them from Hopper on.
        """
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._build(candidate, Path(folder), arch.removeprefix("sm_"))
            except BuildError as error:
                return str(error)
        return ""

    def _build(self, candidate: Candidate, out_dir: Path, target: str) -> None:
        launches = device_launches(candidate)
        library = find_nvrtc() if launches else None
        flags = candidate_flags(candidate, "nvrtc" if library else "nvcc")
        with source_folder(candidate, out_dir) as folder:
            if library:
                _compile_by_nvrtc(library, candidate, flags, target, folder, out_dir / _CUBIN)
            elif launches:
                _compile_by_nvcc(["-cubin", *flags, candidate.files[0][0]], target, folder, out_dir / _CUBIN)
            else:
                files = enumerate(candidate.files)
                sources = [path for i, (path, _) in files if i == 0 or path.endswith(self.suffixes)]
                _compile_by_nvcc(["-shared", *flags, *sources], target, folder, out_dir / library_name(candidate))
        if launches:
            check_kernels(out_dir / _CUBIN, launches, kernel_names((out_dir / _CUBIN).read_bytes()))

    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        self.check_device(device)
        if _on_amd(device):
            return hip.Hip().load(candidate, build_dir, device, names)
        return NativeLoaded(built(candidate, build_dir, _CUBIN, device, DeviceModule), candidate, names, device)

    def foreign(self, candidate: Candidate, build_dir: Path) -> tuple[str, ...]:
        """See :meth:`Language.foreign`.

        The CUDA run-time, being linked statically, needs the loader itself: its functions are looked for in the text.
        """
        library = build_dir / library_name(candidate)
        if not library.is_file():
            return ()  # device code alone
        said = {name for _, text in candidate.files for name in _LOADER_CALL.findall(text)}
        return (*foreign_names(library), *sorted(said))

    def missing(self, device: str) -> str:
        if _on_amd(device):
            return amd.missing_hipcc()
        if find_nvcc():
            return ""
        if find_nvrtc():
            return "nvcc, for sources with a host launcher (device code alone compiles): install the CUDA toolkit"
        return "nvcc or NVRTC: install the CUDA toolkit, or for device code alone pip install nvidia-cuda-nvrtc"

    def missing_for(self, candidate: Candidate, device: str) -> str:
        """See :meth:`Language.missing_for`: of device code alone NVRTC is enough."""
        if not _on_amd(device) and find_nvrtc() and is_device_code(candidate):
            return ""
        return self.missing(device)

    def known_for(self, candidate: Candidate) -> str:
        return self.known[is_device_code(candidate)]

    def toolchain(self, device: str, arch: str) -> str:
        if _on_amd(device):
            return hip.toolchain(self.name, arch)
        nvcc, library = find_nvcc(), find_nvrtc()
        versions = [tool_version(nvcc) if nvcc else "no nvcc", f"NVRTC {_nvrtc(library).version}" if library else ""]
        return "\n".join((self.name, *versions, " ".join(_NVCC_FLAGS), specific_arch(arch)))


def _on_amd(device: str) -> bool:
    return device.partition(":")[0] == "rocm"


def find_nvcc() -> str | None:
    """The compiler on PATH, or in a toolkit's folder; None: there is none."""
    return find_tool(["nvcc"], [root / "bin" for root in cuda_folders()])


@functools.cache
def _nvrtc(path: Path) -> Nvrtc:
    return Nvrtc(path)


def _compile_by_nvrtc(
    library: Path, candidate: Candidate, flags: Sequence[str], target: str, folder: Path, out: Path
) -> None:
    main = candidate.files[0][0]
    folders = dict.fromkeys((folder, (folder / main).parent, *include_folders(library)))
    options = [f"--gpu-architecture=sm_{target}", "-std=c++17", "--device-as-default-execution-space"]
    cubin = _nvrtc(library).compile(candidate.main, main, [*options, *(f"-I{path}" for path in folders), *flags])
    made = out.with_name(f"{out.name}.{os.getpid()}")
    made.write_bytes(cubin)
    made.replace(out)


def _compile_by_nvcc(arguments: Sequence[str], target: str, folder: Path, out: Path) -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        raise InfrastructureError(
            "no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda: install the CUDA toolkit, or write device code alone "
            "with kerneleval-launch lines, for which pip install nvidia-cuda-nvrtc is enough"
        )
    code = f"arch=compute_{target},code=sm_{target}"
    compile_into(out, [nvcc, *_NVCC_FLAGS, "-gencode", code], arguments, folder, TIMEOUT_S)
