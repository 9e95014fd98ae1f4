"""The OpenCL device on which candidates run: found, described, opened and compiled for, through pyopencl.

Only devices of the type CPU are taken: their kernels run on the processors that the worker is confined to, and stop
when it is stopped. ``KERNELEVAL_OPENCL`` chooses among several by a part of the platform's or the device's name, or
gives the path of a runtime's library, which is then the only one.

An ``.icd`` file holds the path of a runtime's library. pyopencl's loader reads them from ``$PYOPENCL_HOME/.libs``, and
those of the system from ``/etc/OpenCL/vendors`` or ``$OCL_ICD_VENDORS``. Where the folder that pyopencl brings will not
do, a new one is made.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneleval.languages.common.base import LOG_LIMIT_BYTES, BuildError
from kerneleval.languages.common.compiler import find_tool
from kerneleval.records import InfrastructureError

CHOICE = "KERNELEVAL_OPENCL"
"""Environment variable that chooses a device by a part of its name, or a runtime by the path of its library."""

_POCL_FILES = Path("pocl_binary_distribution/.libs")
"""Beside pyopencl: what PoCL's wheel brings, found from its library by a relative path."""

_BUILT_INS = "share/pocl/kernel-x86_64-unknown-linux-gnu-{}.bc"
"""PoCL's built-in functions, compiled for one set of instructions."""


def chosen_library() -> Path | None:
    """The library whose path ``KERNELEVAL_OPENCL`` is, or None. Raises InfrastructureError: there is no such file."""
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
    """Set ``PYOPENCL_HOME`` for this process, before the first platform is listed, from the package's folder.

    The loader of pyopencl's wheel dies where that is missing. Importing sets it, but a worker's environment is made
    anew after that.
    """
    home = pyopencl
    if library := chosen_library():
        home = Path(_temporary().name)
        (home / ".libs").mkdir(parents=True, exist_ok=True)
        (home / ".libs" / "chosen.icd").write_text(str(library))
        os.environ["OCL_ICD_VENDORS"] = str(home / ".libs")
    elif _built_ins_misfit() and (pyopencl.parent / _POCL_FILES / _BUILT_INS.format("avx512")).is_file():
        home = _with_other_built_ins(pyopencl)
        os.environ["POCL_CACHE_DIR"] = str(home / "cache")  # no kernels of before
    os.environ["PYOPENCL_HOME"] = str(home)


@functools.cache
def _with_other_built_ins(pyopencl: Path) -> Path:
    """``PYOPENCL_HOME`` of a PoCL with the built-in functions for AVX2 in the place of those for AVX-512."""
    root = Path(_temporary().name)
    home, built_ins = linked_pocl(pyopencl, root), root / _POCL_FILES / _BUILT_INS.format("avx512")
    built_ins.unlink()
    built_ins.symlink_to(pyopencl.parent / _POCL_FILES / _BUILT_INS.format("avx2"))
    return home


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="opencl-")


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


def linked_pocl(pyopencl: Path, root: Path) -> Path:
    """A copy, by links in the empty ``root``, of what pyopencl and PoCL's wheel bring; ``PYOPENCL_HOME`` for it."""
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


INSTALL = "pip install pyopencl pocl-binary-distribution"
"""What brings an OpenCL device to any x86-64 Linux machine."""

ANOTHER = f"pip install intel-opencl-rt intel-cmplr-lib-rt, and set {CHOICE}=$VIRTUAL_ENV/lib/libintelocl.so"
"""What brings a runtime that takes the newest processors, those of AMD too."""

_UNKNOWN_PROCESSOR = "-gnu-generic"
"""How the version of PoCL's device ends where its LLVM does not know the processor. Then it compiles for ``generic``,
which is none (LLVM 14 on Zen 5)."""

ASSEMBLY = ("asm", "__asm", "__asm__")
"""Words that begin inline assembly, which OpenCL C does not have but PoCL's compiler does. They are defined away: only
so could a kernel name functions of the process (a BLAS, what starts programs). Undefined functions that it calls
otherwise are refused when PoCL links its kernel library.
"""

NO_ASSEMBLY = "inline_assembly_is_not_taken"
"""What they are defined as, and what no source may define: a macro that leads back to one of those words would end at
the word itself, which is not replaced a second time.
"""

_POCL = "Portable Computing Language"
_NOT_FOUND = "PLATFORM_NOT_FOUND_KHR"
_AROUND_LOG = re.compile(
    r"\AclBuildProgram failed: .*$\s*|^Build on <.*>:$\s*|^\s*\((?:options: |source saved as ).*\)\s*$\n?", re.MULTILINE
)
"""What pyopencl writes around the compiler's log; it names folders of this machine."""

_OWN_FILE = re.compile(r"\S*/[\w.-]+\.cl(?=:\d)")
"""Where the platform put the source."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What an OpenCL device says of itself."""

    name: str
    arch: str
    """``pocl/<processor, as LLVM names it>`` of PoCL; else platform and device in short."""
    driver: str
    """Version of platform and driver."""
    units: int
    """Compute units: threads that run work-groups."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A device with its context and an in-order queue, in this process."""

    device: Any
    """``pyopencl.Device``."""
    context: Any
    """``pyopencl.Context``."""
    queue: Any
    """``pyopencl.CommandQueue``."""
    shares: bool
    """Whether kernels are known to work in the very memory that a buffer was laid over, as PoCL's do; elsewhere the
    memory holds what they wrote only once the buffer was mapped."""


def missing() -> str:
    """What must be installed, as far as that can be found without starting an OpenCL platform; empty: nothing.

    Starting one makes threads, which a process that forks workers must not have.
    """
    if importlib.util.find_spec("pyopencl") is None:
        return f"pyopencl and an OpenCL platform: {INSTALL}"
    return "" if find_tool(["ld"]) else "ld, by which PoCL links kernels: install binutils"


def unusable() -> str:
    """Why no OpenCL device can be used here, and what to do; empty: one can. Starts the platforms."""
    if said := missing():
        return f"OpenCL candidates need {said}"
    try:
        _chosen()
    except InfrastructureError as error:
        return str(error)
    return ""


@functools.cache
def _listed() -> dict[str, Any]:
    """Every ``pyopencl.Device`` of the type CPU, by the names of platform and device. Raises InfrastructureError."""
    try:
        import pyopencl
    except ImportError as error:
        raise InfrastructureError(f"pyopencl does not load ({error}): {INSTALL}") from error
    set_up(Path(pyopencl.__file__).absolute().parent)
    _give_root()
    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error as error:
        if _NOT_FOUND not in str(error):
            raise InfrastructureError(f"the OpenCL platforms cannot be listed: {error}") from error
        platforms = []
    return {
        f"{platform.name.strip()} / {device.name.strip()}": device
        for platform in platforms
        for device in platform.get_devices()
        if device.type & pyopencl.device_type.CPU
    }


def _chosen() -> Any:
    """The ``pyopencl.Device``. Raises InfrastructureError where there is none, none of the chosen name, or none that
    compiles for this processor.
    """
    found = _listed()
    if not found:
        raise InfrastructureError(f"no OpenCL platform has a device of the type CPU: {INSTALL}")
    wanted = os.environ.get(CHOICE, "").strip()
    asked = [device for name, device in found.items() if chosen_library() or wanted.lower() in name.lower()]
    if not asked:
        there = "; ".join(found)
        raise InfrastructureError(f"{CHOICE}={wanted!r:.80} is in no name of an OpenCL device; there are {there}")
    for device in asked:
        if not device.version.endswith(_UNKNOWN_PROCESSOR):
            return device
    driver = asked[0].platform.version.strip()
    raise InfrastructureError(f"{driver:.80} does not know this processor, and compiles nothing for it: {ANOTHER}")


def _give_root() -> None:
    """Have hwloc, from which PoCL knows memory and processors, read them through links where ``/`` cannot be opened.

    It opens that directory first and reads below it. A confined worker may read ``/sys`` and ``/proc`` but not what
    is beside them, and PoCL ends the process if hwloc reports no memory.
    """
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:
        root = Path(tempfile.mkdtemp(prefix="root-"))
        for name in ("proc", "sys"):
            (root / name).symlink_to(f"/{name}")
        os.environ["HWLOC_FSROOT"], os.environ["HWLOC_THISSYSTEM"] = str(root), "1"


@functools.cache
def described() -> Described:
    """The device that is used here. Raises InfrastructureError where there is none."""
    device = _chosen()
    platform = device.platform.name.strip()
    if platform == _POCL:  # "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-skylake-avx512"
        target = device.version.rpartition("-gnu-")[2] if "-gnu-" in device.version else device.version
        arch = f"pocl/{_short(target)}"
    else:
        arch = f"{_short(platform)}/{_short(device.name)}"
    return Described(
        name=device.name.strip(),
        arch=arch,
        driver=f"{device.platform.version.strip()}, driver {device.driver_version.strip()}",
        units=int(device.max_compute_units),
    )


def _short(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")[:64]


@functools.cache
def opened() -> Opened:
    """The device, opened once in this process: PoCL starts its threads, which inherit this thread's processors. Raises
    InfrastructureError: there is none, or it cannot be opened.
    """
    device = _chosen()
    import pyopencl

    try:
        context = pyopencl.Context([device])
        queue, shares = pyopencl.CommandQueue(context), device.platform.name.strip() == _POCL
        return Opened(device=device, context=context, queue=queue, shares=shares)
    except pyopencl.Error as error:
        raise InfrastructureError(f"the OpenCL device {device.name} cannot be opened: {error}") from error


def compiled(text: str, name: str, folder: Path, flags: Sequence[str]) -> Any:
    """A ``pyopencl.Program`` of OpenCL C for the device, as far as kernels' names are known; runs nothing of it.

    Asked for binaries, PoCL would load what it made, and with it run what a source declares to be a constructor.
    ``#include`` finds further files in ``folder``; ``name`` is the source's, for messages. Raises BuildError, with the
    first 8 KiB of the log, where it does not compile, and InfrastructureError where there is no device.
    """
    at = opened()
    import pyopencl

    # the last definition counts
    options = ["-I", str(folder), *flags, *(f"-D{word}={NO_ASSEMBLY}" for word in (*ASSEMBLY, NO_ASSEMBLY))]
    try:
        with warnings.catch_warnings():  # that there is a log; it is wanted only where something failed
            warnings.simplefilter("ignore", pyopencl.CompilerWarning)
            program = pyopencl.Program(at.context, text).build(options=options)
    except pyopencl.Error as error:
        log = _OWN_FILE.sub(name, _AROUND_LOG.sub("", str(error)).replace(f"{folder}/", ""))
        raise BuildError("the OpenCL compiler failed", log[:LOG_LIMIT_BYTES].strip()) from None
    return program


def kernel_names(program: Any) -> list[str]:
    """The kernels of a ``pyopencl.Program``."""
    import pyopencl

    return [name for name in str(program.get_info(pyopencl.program_info.KERNEL_NAMES)).split(";") if name]
