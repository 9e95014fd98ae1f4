"""Where pyopencl finds OpenCL runtimes: a folder of ``.icd`` files, made anew where the one it brings will not do.

An ``.icd`` file holds the path of a runtime's library. pyopencl's loader reads them from ``$PYOPENCL_HOME/.libs``, and
those of the system from ``/etc/OpenCL/vendors`` or ``$OCL_ICD_VENDORS``. What a runtime then offers is asked in
``opencl_runtime.py``.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from kerneleval.records import InfrastructureError

__all__ = ["CHOICE", "chosen_library", "identity", "linked_pocl", "set_up"]

CHOICE = "KERNELEVAL_OPENCL"
"""Environment variable that chooses a device by a part of its name, or a runtime by the path of its library."""

_POCL_FILES = Path("pocl_binary_distribution/.libs")
"""Beside pyopencl: what PoCL's wheel brings, found from its library by a relative path."""

_BUILT_INS = "share/pocl/kernel-x86_64-unknown-linux-gnu-{}.bc"
"""PoCL's built-in functions, compiled for one set of instructions."""


def chosen_library() -> Path | None:
    """The runtime's library that ``KERNELEVAL_OPENCL`` gives by its path; None: it gives a name, or nothing.

    Raises:
        InfrastructureError: there is no such file.
    """
    wanted = os.environ.get(CHOICE, "").strip()
    if os.sep not in wanted or (not wanted.endswith((".so", ".icd")) and ".so." not in wanted):
        return None  # "Portable Computing Language / pthread-..." is a name
    path = Path(wanted).absolute()
    if not path.is_file():
        raise InfrastructureError(
            f"{CHOICE}={wanted!r:.200}: there is no such file; give the path of a runtime's library"
        )
    return path


def identity() -> str:
    """Text that changes with the library that was chosen by its path; empty: none was."""
    library = chosen_library()
    if library is None:
        return ""
    found = library.stat()
    return f"{library} {found.st_size} {found.st_mtime_ns}"


def set_up(pyopencl: Path) -> None:
    """Set ``PYOPENCL_HOME`` for this process, before the first platform is asked for.

    The loader of pyopencl's wheel dies where that is missing. Importing sets it, but a worker's environment is made
    anew after that.

    Args:
        pyopencl: the package's folder.
    """
    home = pyopencl
    if library := chosen_library():
        home = _folder()
        _write_icd(home / ".libs", library)
        os.environ["OCL_ICD_VENDORS"] = str(home / ".libs")
    elif _built_ins_misfit() and (pyopencl.parent / _POCL_FILES / _BUILT_INS.format("avx512")).is_file():
        home = _with_avx2(pyopencl)
        os.environ["POCL_CACHE_DIR"] = str(home / "cache")  # no kernels of before
    os.environ["PYOPENCL_HOME"] = str(home)


def _folder() -> Path:
    return Path(_temporary().name)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="opencl-")


def _write_icd(folder: Path, library: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chosen.icd").write_text(str(library))


@functools.cache
def _built_ins_misfit() -> bool:
    """Whether PoCL 3.0 would compile kernels and take built-in functions for different processors here.

    It chooses built-in functions by the processor's flags, but compiles kernels for a processor that its LLVM 14 knows.
    LLVM 14 knows no processor of AMD with AVX-512 and takes Zen 4 for Zen 3. Vectors of 512 bits are then passed in one
    register by one side and in two by the other: results are NaN, or the process ends by a segmentation fault.
    """
    try:
        first = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0]
    except OSError:
        return False
    return "AuthenticAMD" in first and " avx512f " in first


def _with_avx2(pyopencl: Path) -> Path:
    """PoCL with the built-in functions for AVX2 in the place of those for AVX-512."""
    home = linked_pocl(pyopencl, _folder())
    built_ins = _folder() / _POCL_FILES / _BUILT_INS.format("avx512")
    built_ins.unlink()
    built_ins.symlink_to(pyopencl.parent / _POCL_FILES / _BUILT_INS.format("avx2"))
    return home


def linked_pocl(pyopencl: Path, root: Path) -> Path:
    """A copy, by links, of what pyopencl and PoCL's wheel bring; ``PYOPENCL_HOME`` for it.

    Args:
        pyopencl: the package's folder.
        root: an empty folder.
    """
    home = root / "pyopencl"
    _link_all(pyopencl.parent / _POCL_FILES, root / _POCL_FILES, inside=("share", "pocl"))
    _link_all(pyopencl / ".libs", home / ".libs", inside=())
    for file in (home / ".libs").glob("*.icd"):
        library = file.read_text().strip()  # beside it, or an absolute path
        file.unlink()
        file.write_text(str(home / ".libs" / library))
    return home


def _link_all(source: Path, target: Path, inside: tuple[str, ...]) -> None:
    """Links to all that is in a folder; of the folders ``inside``, one in the other, to all that is in them."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if inside and entry.name == inside[0]:
            _link_all(entry, target / entry.name, inside[1:])
        else:
            (target / entry.name).symlink_to(entry)
