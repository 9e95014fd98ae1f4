"""What other libraries than PyTorch compute for a candidate: NumPy and SciPy, functions of known libraries that it
looked up by ``ctypes``, and those that native code of its own is linked with. BLAS in functions that Numba compiled:
``languages/numba.py``.

While a window is recorded, NumPy's ufuncs and its functions in C tell of themselves. Names are heard from when the
candidate is loaded. ``observing.py`` uses it; what it cannot see stands in ``docs/threat-model.md``.
"""

from __future__ import annotations

import _posixsubprocess
import contextlib
import ctypes
import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.fft
import numpy.random
from numpy.linalg import lapack_lite

from kerneleval.languages.binaries.elf import COMPUTES, LOADER, loader_names, undefined
from kerneleval.languages.common.watch import library_folders
from kerneleval.sandbox import processes
from kerneleval.worker.below import Definition, call_in_c, call_of, calls_by_ctypes, definition_of, set_call

__all__ = ["Libraries"]

_OF_TORCH = re.compile(r"_ZN(?:2at|3c10|4dnnl|5torch|6fbgemm)\w+")
"""Functions of PyTorch in C++: who looks one up by ``ctypes`` wants it to compute. What is linked with PyTorch
refers to many, and those that compute go through the dispatcher, but for the next ones."""

_PAST_THE_DISPATCHER = re.compile(
    r"_ZN2at(?:20enableRecordFunction|24set_record_function_tls_|15disableCallback|14removeCallback)\w+"
    r"|_ZN2at\d+clear(?:Global|ThreadLocal)?Callbacks\w+|_ZN4dnnl\w+|_ZNK?3c1010Dispatcher\d+find\w+"
    r"|_ZN2at(?:6native|3cpu4blas|4cuda4blas)\w+|_ZN2at5_ops\d+\w+10redispatchE\w+"
    r"|_ZN2at(?:3cpu|3mps|3xpu|4cuda)(?P<length>\d+)(?P<operator>[a-z_]\w+)"
)
"""Also what switches the recording of operators off, and what finds an operator, whose kernels headers call. Where
``operator``, of that many characters and what follows it, is the name of an operator.
"""

_HOLDS_BLAS = re.compile("blas|blis|cudnn|dnnl|fft|gfortran|lapack|miopen|mkl|solver|sparse|torch")
"""Files whose functions compute, whatever they are called, but for those that set something."""

_LOOKING_UP = ("ctypes.dlsym", "ctypes.dlsym/handle")
_ALLOCATES = re.compile("as_strided|copy|empty|fill|full|ones|resize|view|zero")
_TOOLS = frozenset(
    re.findall(
        r"\w+",
        "_cffi_backend _yaml cffi charset_normalizer cuda cutlass functorch google greenlet hip llvmlite markupsafe "
        "ml_dtypes mlir msgpack mypyc nanobind ninja numba numpy nvidia nvidia_cutlass_dsl orjson psutil pybind11 "
        "pycuda pydantic_core pyopencl regex rpds scipy setuptools sqlalchemy taichi tilelang torch torchgen triton "
        "tvm tvm_ffi warp yaml zstandard",
    )
)
"""Packages that compile and launch what they are given, those whose functions are followed or looked for, and those
that compute nothing of tensors."""

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/opt/")
_OF_TRITON = re.compile(r"(?:__triton_launcher|cuda_utils|hip_utils)[\w.-]*\.so")
"""What Triton builds to launch kernels."""

_OF_DRIVERS = re.compile(r"/memfd:|/dev/(?!shm/)")
"""Files that are no more and that drivers map."""

_SETTINGS = re.compile(r"(?i:_(?:get|set)_)|GetVersion|SetStream")

_METHODS = (
    *("argmax", "argmin", "argpartition", "argsort", "choose", "compress", "cumprod", "cumsum", "dot", "partition"),
    *("round", "searchsorted", "sort", "take", "trace"),
)
"""Methods of arrays that compute and are neither ufuncs nor functions of NumPy's."""

with contextlib.suppress(ImportError):
    importlib.import_module("numpy._core._umath_tests")  # multiplies matrices
_UFUNCS = frozenset(
    one
    for name, module in list(sys.modules.items())
    if name.partition(".")[0] == "numpy"
    for one in list(getattr(module, "__dict__", {}).values())
    if isinstance(one, np.ufunc)
)
"""NumPy's, also those that only its own methods and transforms call."""

_STARTING = frozenset(
    ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
)
_HEARD = _STARTING.union(_LOOKING_UP, ("ctypes.call_function", "ctypes.dlopen", "import"))
"""Audit events; all others cost one look-up."""
_INTERPRETERS = ("_interpreters", "_testcapi", "_xxsubinterpreters")
"""Modules that run code in another interpreter of this process, where nothing is heard."""

_FOR_OTHERS = re.compile(
    r"(?:kerneleval\.languages\.common\.watch|numpy|torch\.(?:_inductor\.compile_worker|multiprocessing|utils\.data))\b.*"
)
"""Modules that start a process, or look a function up, for who called them; so does the standard library, but for"""

_FOR_ITSELF = re.compile(r"ctypes\.util|distutils\b.*|multiprocessing\.resource_tracker|platform|sysconfig|uuid")

_RUNS_OTHERS = re.compile(
    r"(?:ba|da|k|z|c|tc|fi)?sh|busybox|env|(?:python|pypy|perl|ruby|lua|node|tclsh)[\d.]*|[gm]?awk|make"
)
"""Shells, interpreters and the like: their arguments say what is run, so they count where an installed library starts
them.
"""

_OF_EXCEPTIONS = frozenset(("_dl_find_object", "dl_iterate_phdr"))
"""What libraries that hold the run-time of C++ themselves call for exceptions."""

_LOADS = LOADER | {"clone", "fork", "syscall", "vfork"}
"""Functions of the C library that find others' functions, or start a process."""

_MANY = 64
"""A window that computes with fewer floating numbers, or its square of whole ones, may have made sizes or a table."""


class Libraries:
    """Made before the candidate is loaded, once a process: an audit hook stays."""

    def __init__(self) -> None:
        self._looked_up: dict[str, int] = {}
        self._at_load: dict[str, int] = {}  # programs that it started before it was there
        self._is_loaded = False
        self.lost_error = False
        """Whether an error of NumPy's was lost in the last block of :meth:`heard`; the candidate may have caught it."""
        self._living = _living()
        self._is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"  # Triton builds no launchers
        self._native: dict[str, int] = {}
        self.files: set[str] = set()
        """Paths of :attr:`native`."""
        self._packages: dict[str, int] = {}
        self._mapped: set[str] = set()
        with contextlib.suppress(OSError):  # no Linux
            self._mapped = _mapped_code()  # what was there before is no candidate's
        library_folders()  # known before anything is opened
        sys.addaudithook(self._hear)
        self._hear_of_programs()

    def _hear_of_programs(self) -> None:
        """What ``multiprocessing`` starts programs by causes no audit event, nor does what ``subprocess`` calls."""
        start = _posixsubprocess.fork_exec

        def fork_exec(*arguments: Any) -> Any:
            programs = [os.fsdecode(one) for one in arguments[1]] if len(arguments) > 1 else []
            if _is_for_candidate(sys._getframe().f_back, next(filter(os.path.exists, programs), None)):
                self._started("fork_exec")
            return start(*arguments)

        _posixsubprocess.fork_exec = fork_exec
        vars(subprocess)["_fork_exec"] = fork_exec

    def _started(self, how: str) -> None:
        (self._looked_up if self._is_loaded else self._at_load)[f"process.{how}"] = 1

    def loaded(self) -> None:
        """The candidate is there: what it starts from now on may know its inputs."""
        self._is_loaded = True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _HEARD:
            return
        if event in _LOOKING_UP:
            # of a class of its own too, whose hash would be the candidate's code; else it is a number
            name = str.__str__(arguments[-1]) if isinstance(arguments[-1], str) else ""
            file = getattr(arguments[0], "_name", None) if event == "ctypes.dlsym" else None
            of_library = type(file) is str and _HOLDS_BLAS.search(os.path.basename(file)) and not _is_own(file)
            known = _computes(name) or _OF_TORCH.fullmatch(name)
            asked = name in _LOADS or (of_library and not _SETTINGS.search(name))
            if known or (asked and _is_for_candidate(sys._getframe().f_back)):
                self._looked_up[f"ctypes.{name}"[:100]] = 1
        elif event == "ctypes.call_function":
            if not _is_of_library(sys._getframe().f_back):
                self._looked_up["ctypes.call_function"] = 1
        elif event in _STARTING:
            if _is_for_candidate(sys._getframe().f_back, _program(event, arguments)):
                self._started(event)
        elif event == "import" and arguments and arguments[0] in _INTERPRETERS:
            self._looked_up[f"process.{arguments[0]}"] = 1
        elif event in ("import", "ctypes.dlopen") and arguments:
            path = arguments[event == "import"]
            if type(path) is str and os.sep in path:
                self._opened(os.path.realpath(path))

    def _hear_of_call(self, path: str, name: str) -> None:
        """Functions of libraries are known whatever their addresses come from; those of other names, by the file."""
        file = os.path.basename(path)
        known = _computes(name) or _OF_TORCH.fullmatch(name)
        holds = _HOLDS_BLAS.search(file) or _package(os.path.realpath(path)) in ("numpy", "scipy")
        of_library = holds and not _SETTINGS.search(name)
        if (known or of_library) and os.path.realpath(path) not in self.files:
            self._looked_up[f"ctypes.{name or f'a function of {file}'}"[:100]] = 1

    def _opened(self, path: str) -> None:
        """Note native code: the package that brings it, or, where none does, the file and what it is linked with.
        ``import`` comes for modules in Python too, without a path.
        """
        if package := _package(path):
            if package not in _TOOLS:
                self._packages[package] = 1
        elif _is_own(path):
            file = os.path.basename(path.removesuffix(" (deleted)"))
            of_triton = bool(_OF_TRITON.fullmatch(file)) and not self._is_interpreted
            if not of_triton:
                self._native[file[:100]] = 1
                self.files.add(path)
            with contextlib.suppress(OSError):
                finding = [] if of_triton else [n for n in loader_names(Path(path)) if n not in _OF_EXCEPTIONS]
                for name in (*undefined(Path(path)), *finding):
                    if name in finding or _computes(name) or _is_past_the_dispatcher(name):
                        self._looked_up[f"{file}: {_plain(name)}"[:100]] = 1

    @property
    def looked_up(self) -> dict[str, int]:
        """Functions of libraries that were looked up by ``ctypes`` so far, or that its native code is linked with:
        ``ctypes.name`` or ``file: name`` -> 1. And how it started processes, ``process.os.fork``, which may compute,
        but for those that it started when it was loaded, where all have ended, as compilers have.
        """
        return self._looked_up | (self._at_load if self._at_load and _living() - self._living else {})

    @property
    def native(self) -> list[str]:
        """Files of native code that were opened so far and that no installed package brings."""
        return sorted(self._native)

    def look_at_memory(self) -> None:
        """Note the native code that is in memory: what native code opens, as PyTorch does, causes no audit event."""
        with contextlib.suppress(OSError):  # no Linux
            for path in _mapped_code() - self._mapped:
                self._mapped.add(path)
                self._opened(path)

    @property
    def packages(self) -> list[str]:
        """Installed packages whose native code was opened so far, but for those that only compile and launch."""
        return sorted(self._packages)

    @contextlib.contextmanager
    def heard(self, seen: dict[str, int]) -> Iterator[None]:
        """Count what NumPy and SciPy compute in the block, ``numpy.name`` -> calls."""
        _COUNTS.clear()
        before = len(_RAISED)
        with calls_by_ctypes(self._hear_of_call), _numpy_is_heard():
            yield
        seen |= _COUNTS
        self.lost_error = len(_RAISED) > before


def _is_of_library(frame: FrameType | None) -> bool:
    """Whether a library calls; None: a thread that was told to call a built-in function."""
    return frame is not None and frame.f_code.co_filename.startswith((*library_folders(), _PACKAGE))


def _is_for_candidate(frame: FrameType | None, program: str | None = None) -> bool:
    """Whether the candidate starts the process that starts, and no library: compilers start programs. Who is passed by
    here does what it was told to; a thread that was told to call a library's function is the candidate's. So is a
    fork, and a ``program`` that the candidate may have made, or that runs others, whichever library starts it.
    """
    while frame is not None and _is_of_library(frame):
        name = str(frame.f_globals.get("__name__"))
        of_library = name.partition(".")[0] not in sys.stdlib_module_names and not _FOR_OTHERS.fullmatch(name)
        if of_library or _FOR_ITSELF.fullmatch(name):
            runs = program and of_library and _RUNS_OTHERS.fullmatch(os.path.basename(program))
            return program is not None and (not program or _is_own(program) or bool(runs))
        frame = frame.f_back
    return True


def _program(event: str, arguments: tuple[Any, ...]) -> str | None:
    """The file of the program that starts; empty: a copy of this process, None: it is not known, or not there."""
    if event in ("os.fork", "os.forkpty"):
        return ""
    given = "sh" if event == "os.system" else arguments[0] if arguments else None
    return shutil.which(os.fsdecode(given)) if isinstance(given, (str, bytes)) else None


def _living() -> set[int]:
    """Processes that run, from this one's parent on, the monitor, which orphans come to; those of other programs are
    not there. Where the system does not say: another number at every call, as if a process had begun.
    """
    below: list[int] = []
    with contextlib.suppress(OSError):  # no /proc that could be read
        above = os.getppid()
        below = [above, *processes.descendants_by_scan(above)] if processes.HAS_PROC else []
    return set(filter(processes.is_running, below)) if os.getpid() in below else {-time.monotonic_ns()}


def _package(path: str) -> str:
    """The installed package that a file belongs to; empty: none, or the standard library."""
    folder = max((f for f in library_folders() if path.startswith(f)), key=len, default="")
    name = re.split(r"[./]", path[len(folder) :], maxsplit=1)[0] if folder else ""
    return "" if name == "lib-dynload" else name


def _mapped_code() -> set[str]:
    """Files whose code is in this process's memory. Raises OSError: this is no Linux."""
    lines = (line.split(None, 5) for line in Path("/proc/self/maps").read_text().splitlines())
    return {parts[5] for parts in lines if len(parts) == 6 and "x" in parts[1] and parts[5].startswith("/")}


def _is_installed(path: str) -> bool:
    """Whether a file is where programs and packages are, and no link elsewhere to one."""
    folder, name = os.path.split(path)
    prefixes = (os.path.join(os.path.realpath(prefix), "") for prefix in (sys.prefix, sys.base_prefix))
    return os.path.join(os.path.realpath(folder), name).startswith((*library_folders(), *_SYSTEM, *prefixes))


def _is_own(path: str) -> bool:
    """Whether a file may be one that the candidate made: its user's, and not where programs and packages are."""
    if _is_installed(path):
        return False
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return path.endswith(" (deleted)") and not _OF_DRIVERS.match(path)


def _computes(name: str) -> bool:
    return bool(COMPUTES.fullmatch(name)) and not _SETTINGS.search(name)


def _plain(name: str) -> str:
    """``at::cpu::mm`` of ``_ZN2at3cpu2mmE…``; any other name as it is."""
    rest, parts = re.sub("^_ZNK?", "", name), []
    while name.startswith("_ZN") and (length := re.match(r"\d+", rest)):
        rest = rest[length.end() :]
        parts.append(rest[: int(length[0])])
        rest = rest[int(length[0]) :]
    return "::".join(parts) or name


def _is_past_the_dispatcher(name: str) -> bool:
    """Whether a function of PyTorch's computes where no mode and no profiler sees it."""
    import torch

    match = _PAST_THE_DISPATCHER.fullmatch(name)
    if match is None or match["operator"] is None:
        return match is not None
    operator = match["operator"][: int(match["length"])]
    base = re.sub(r"_out[f]?$|(?<=\w)_$", "", operator)
    return not _ALLOCATES.match(base) and hasattr(torch.ops.aten, base)


_COUNTS: dict[str, int] = {}
"""How often each function of NumPy computed."""

_size_of, _dtype_of, _as_array = np.ndarray.size.__get__, np.ndarray.dtype.__get__, np.asarray
_CALL = vars(np.ufunc)["__call__"]
_call_of_ufunc: Callable[..., Any] = call_of(np.ufunc)
_VALUES, _WITH_NAMES, _BY_ARRAY = 0x0001, 0x0002, 0x0080
"""``METH_VARARGS``, ``METH_KEYWORDS`` and ``METH_FASTCALL`` of CPython's ``methodobject.h``: arguments come in a tuple,
by names too, and in an array with their number.
"""

_AS_IT_COMES = ctypes.PYFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 4)
"""A function in C, whichever of these it takes."""

_CORE = vars(sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"])
_KINDS_IN_C = ("builtin_function_or_method", "cython_function_or_method", "method_descriptor")
_DRAWING = (np.random.Generator, np.random.RandomState)
_IN_C = (
    *(vars(np.ndarray)[name] for name in _METHODS),
    *(vars(np.ufunc)[name] for name in ("accumulate", "at", "outer", "reduce", "reduceat")),
    *(_CORE[name] for name in ("bincount", "c_einsum", "correlate", "correlate2", "count_nonzero", "dot", "inner")),
    *(_CORE[name] for name in ("interp", "interp_complex", "lexsort", "putmask", "vdot", "where")),
    *(
        one
        for owner in (lapack_lite, getattr(np.fft, "_pocketfft_internal", None), *_DRAWING)
        for name, one in getattr(owner, "__dict__", {}).items()
        if name[0] != "_" and type(one).__name__ in _KINDS_IN_C
    ),
)
"""Functions and methods that NumPy computes by, beside calls of ufuncs."""

_work = [0]
"""How many numbers NumPy computed with in the watched block; a floating one counts as 64."""


_RAISED: set[str] = set()
"""Functions in C whose error was lost in a window. From then on they count as work, and none is replaced any more."""


@contextlib.contextmanager
def _numpy_is_heard() -> Iterator[None]:
    """Count what NumPy computes, on whatever arrays. Ufuncs are heard of by their class, and functions in C by their
    definitions: whatever object, name or class of arrays leads there.
    """
    _work[0] = 0
    definitions = [] if _RAISED else [one for one in map(definition_of, _IN_C) if one.flags & (_VALUES | _BY_ARRAY)]
    for name in _RAISED:
        _count(name)
    had = [one.function for one in definitions]
    heard = [_heard(one) for one in definitions]

    def call(ufunc: Any, *given: Any, **named: Any) -> Any:
        name, frame = ufunc.__name__, sys._getframe().f_back
        counted = _hear(name, (ufunc, *given), frame)
        made = _call_of_ufunc(ufunc, *given, **named)
        _hear(name, (ufunc, made), frame, counted)
        return made

    set_call(np.ufunc, call)
    for one, function in zip(definitions, heard, strict=True):
        one.function = ctypes.cast(function, ctypes.c_void_p).value
    try:
        yield
    finally:
        set_call(np.ufunc, _CALL, by_vector=True)
        for one, address in zip(definitions, had, strict=True):
            one.function = address


def _heard(definition: Definition) -> Any:
    """A function in C that counts its call, and then calls the one of this definition."""
    function, name = _AS_IT_COMES(definition.function), definition.name.decode()
    by_array, with_names = definition.flags & _BY_ARRAY, definition.flags & _WITH_NAMES

    def heard(owner: int, given: int | None, count: int | None, names: int | None) -> Any:
        try:  # what is raised outside of it leaves NumPy with a result that is no object
            values = [_object_at(owner)]
            named = _object_at(names if by_array else count) if with_names else None
            if by_array:
                values += (ctypes.py_object * ((count or 0) + len(named or ()))).from_address(given or 0)
            else:
                values += (*_object_at(given), *(named or {}).values())
            frame = sys._getframe().f_back
            counted = _hear(name, values, frame)
            made = call_in_c(function, owner, given, count, names)
            if not _draws(values[0]):  # a draw alone is no work
                _hear(name, (values[0], _object_at(made)), frame, counted)
            return made
        except BaseException:  # noqa: BLE001 - it is lost here, and what comes out is a SystemError
            _RAISED.add(name)
            return None

    return _AS_IT_COMES(heard)


def _object_at(place: int | None) -> Any:
    return None if place is None else ctypes.py_object.from_buffer(ctypes.c_void_p(place)).value


def _hear(name: str, values: Sequence[Any], frame: FrameType | None, counted: int = 0) -> int:
    """Count a call of NumPy's, if the window has computed with many numbers by now and the caller is not Triton's
    interpreter. The first of the values is the ufunc, if it is one's call or method; what came out of a call counts
    where it is more than the numbers ``counted`` before, since an object may give others when it is asked again.
    """
    is_own = issubclass(type(values[0]), np.ufunc) and not _is_brought(values[0])
    elements = 0 if is_own else sum(_elements(one, whole=not _draws(values[0])) for one in values)
    if elements > counted:
        while frame is not None and frame.f_code.co_filename.startswith(_folders("numpy", "scipy")):
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename not in _interpreters():
            _work[0] += elements - counted
            if _work[0] >= _MANY * _MANY:
                _count(name)
    return elements


@functools.cache
def _folders(*packages: str) -> tuple[str, ...]:
    return tuple(os.path.join(folder, name, "") for folder in library_folders() for name in packages)


@functools.cache
def _interpreters() -> frozenset[str]:
    """Where Triton's interpreter is; other modules of Triton's compute nothing of their own by NumPy."""
    return frozenset(os.path.join(folder, "runtime", "interpreter.py") for folder in _folders("triton"))


def _draws(owner: Any) -> bool:
    return issubclass(type(owner), _DRAWING)


def _elements(value: Any, *, whole: bool) -> int:
    """How many numbers an argument holds, floating ones 64 times: ``whole`` ones, if they count, may be a table for a
    kernel. Of what is no array NumPy makes one: of lists, of tensors, of what has a buffer.
    """
    if not issubclass(type(value), np.ndarray):  # type(): a proxy's class may lie
        made = None
        with contextlib.suppress(Exception):  # of unlike lengths, or on an accelerator
            made = _as_array(value)
        if made is None or not made.ndim:
            return 0
        value = made
    return int(_size_of(value)) * (whole if _dtype_of(value).kind in "biu" else _MANY)


def _is_brought(ufunc: Any) -> bool:
    """Whether a ufunc is NumPy's or SciPy's; others are the candidate's own, as Numba's are."""
    return ufunc in _UFUNCS or getattr(sys.modules.get("scipy.special"), ufunc.__name__, None) is ufunc


def _count(name: str) -> None:
    _COUNTS[f"numpy.{name}"] = _COUNTS.get(f"numpy.{name}", 0) + 1
