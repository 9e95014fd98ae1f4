"""OpenCL C candidates: kernels and, in the header, how they are launched (``launches.py``); there is no host code.

The loader makes the buffers, launches the kernels and waits for them, so launches are seen and can be left out. Tensors
are in the host's memory and buffers are laid over them (``CL_MEM_USE_HOST_PTR``): where the device shares that memory,
as a processor does, nothing is copied; what an implementation copies all the same, it copies within the call.
"""

from __future__ import annotations

import ctypes
import functools
import posixpath
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.common import opencl_runtime
from kerneleval.languages.common.base import BuildError, Language, Loaded, LoadError, register, write_files
from kerneleval.languages.common.compiler import candidate_flags
from kerneleval.languages.common.launches import Plan, Sizes, read_plans
from kerneleval.languages.common.native import Launch, Native, NativeLoaded
from kerneleval.records import Candidate, UsageError

_FLAGS = ("-cl-std=CL1.2",)
"""Before the candidate's own, which may override them."""

_RESERVED = (*opencl_runtime.ASSEMBLY, opencl_runtime.NO_ASSEMBLY)
_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t\v\f]*\n")
_GAP = r"(?:\s|/\*.*?\*/)"
_REDEFINES = re.compile(rf"(?:#|%:|\?\?=){_GAP}*(?:define|undef){_GAP}+(?:{'|'.join(_RESERVED)})\b", re.DOTALL)
_INCLUDE = re.compile(
    r"(?m)^(?:[^\n]*\*/)?\s*(?:#|%:|\?\?=)(?:\s|/\*(?:[^*]|\*(?!/))*\*/)*"
    r"(?:include|include_next|import)\b[ \t]*([^\n]*)"
)
"""A directive is the first of its line but for comments."""

_NAME = re.compile(r"\"([^\"]+)\"|<([^>]+)>")


@register
class Opencl(Language):
    """OpenCL C kernels, on an OpenCL device."""

    name = "opencl"
    suffixes = (".cl",)
    devices = ("opencl",)
    needs_build = True

    @property
    def can_mute(self) -> bool:
        """Yes: the loader launches every kernel."""
        return True

    def build(self, candidate: Candidate, out_dir: Path, device: str, arch: str) -> None:
        """Compiles, to say what does not, and leaves no file, as workers compile. See :meth:`Language.build`."""
        self.check_device(device)
        plans = _plans(candidate)
        out_dir.mkdir(parents=True, exist_ok=True)
        kernels = opencl_runtime.kernel_names(_compile(candidate))
        absent = [step.kernel for plan in plans.values() for step in plan.steps if step.kernel not in kernels]
        if absent:
            known = ", ".join(sorted(kernels)) or "none"
            raise BuildError(f"kerneleval-launch names {absent[0]}; kernels there are {known}")

    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        self.check_device(device)
        return OpenclLoaded(_Kernels(_compile(candidate), _plans(candidate)), candidate, names, device)

    def preload(self, device: str, arch: str) -> None:
        """Imports pyopencl; starts no platform, which would start threads. See :meth:`Language.preload`."""
        import pyopencl  # noqa: F401

    def missing(self, device: str) -> str:
        return opencl_runtime.missing()

    def toolchain(self, device: str, arch: str) -> str:
        """See :meth:`Language.toolchain`; the binary is for one processor."""
        at = opencl_runtime.described()
        return "\n".join((self.name, at.name, at.arch, at.driver, " ".join(_FLAGS), opencl_runtime.identity()))


class OpenclLoaded(NativeLoaded):
    """Entry points whose kernels take buffers over the memory of tensors."""

    def _pointer(self, tensor: Any) -> Any:
        """A buffer over the tensor's memory; None (a null pointer) where it is empty."""
        import pyopencl

        nbytes = tensor.numel() * tensor.element_size()
        if not nbytes:
            return None
        memory = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
        flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.USE_HOST_PTR
        return pyopencl.Buffer(opencl_runtime.opened().context, flags, hostbuf=memory)

    def _value(self, arg: Any, kept: list[Any]) -> Any:
        import numpy

        if isinstance(arg, (bool, int)):
            return numpy.int64(arg)
        if isinstance(arg, float):
            return numpy.float64(arg)
        if arg is None:
            return None
        if isinstance(arg, (list, tuple)) and all(isinstance(v, int) for v in arg):
            arg = self._torch.tensor(arg, dtype=self._torch.int64)
        if not isinstance(arg, self._torch.Tensor):
            raise NotImplementedError(f"an OpenCL kernel cannot take an argument of type {type(arg).__name__}")
        return super()._value(arg, kept)


class _Kernels(Native):
    """The kernels of a program, with the plans by which they are launched."""

    def __init__(self, program: Any, plans: Mapping[str, Plan]) -> None:
        at = opencl_runtime.opened()
        import pyopencl

        self._plans = plans
        self._queue, self._context, self._shares = at.queue, at.context, at.shares
        try:
            wanted = {step.kernel for plan in plans.values() for step in plan.steps}
            self._handles = {name: pyopencl.Kernel(program, name) for name in wanted}
            self._takes = {name: int(handle.num_args) for name, handle in self._handles.items()}
        except pyopencl.Error as error:
            raise LoadError(f"the kernels cannot be made: {error}") from error

    def find(self, symbol: str) -> Launch | None:
        """The entry point of that name, if a launch line gives it."""
        plan = self._plans.get(symbol)
        if plan is None:
            return None

        def launch(values: Sequence[Any], dims: Mapping[str, int], stream: int) -> int:
            import numpy
            import pyopencl

            try:
                sizes, bytes_each = _sizes(plan, tuple(dims.items()))
            except UsageError as error:  # the candidate's mistake, not the caller's
                raise ValueError(str(error)) from error
            flags = pyopencl.mem_flags.READ_WRITE
            scratch = [pyopencl.Buffer(self._context, flags, nbytes) if nbytes else None for nbytes in bytes_each]
            given = [*values, *scratch, *(numpy.int64(v) for v in dims.values())]
            try:
                for step, (whole, group) in zip(plan.steps, sizes, strict=True):
                    self._launch(step.kernel, given, whole, group)
                if not self._shares:
                    self._settle(values)
            finally:
                self._queue.finish()
            return 0

        return launch

    def kernels(self, symbol: str) -> Sequence[str]:
        return [step.kernel for step in self._plans[symbol].steps]

    def symbols(self) -> list[str]:
        return sorted(self._plans)

    def _launch(self, name: str, given: Sequence[Any], whole: Sizes, group: Sizes) -> None:
        import pyopencl

        if self._takes[name] != len(given):
            raise RuntimeError(
                f"kernel {name} takes {self._takes[name]} arguments, and a call has {len(given)}: "
                "the task's arguments, outputs, scratch buffers and dims"
            )
        if 0 in whole:
            return
        handle = self._handles[name]
        handle.set_args(*given)
        pyopencl.enqueue_nd_range_kernel(self._queue, handle, whole, group)

    def _settle(self, values: Sequence[Any]) -> None:
        """What kernels wrote is in the tensors' own memory once its buffer was mapped (OpenCL 1.2, section 5.2.1)."""
        import numpy
        import pyopencl

        for buffer in values:
            if isinstance(buffer, pyopencl.Buffer):
                view, _ = pyopencl.enqueue_map_buffer(
                    self._queue, buffer, pyopencl.map_flags.READ, 0, (buffer.size,), numpy.uint8, is_blocking=False
                )
                view.base.release(self._queue)


@functools.lru_cache(maxsize=1024)
def _sizes(plan: Plan, dims: tuple[tuple[str, int], ...]) -> tuple[tuple[tuple[Sizes, Sizes], ...], tuple[int, ...]]:
    """(global, local) size of each step and bytes of each scratch buffer; reading the expressions takes 20 us."""
    by_name = dict(dims)
    return tuple(step.at(by_name) for step in plan.steps), tuple(plan.scratch_at(by_name))


def _compile(candidate: Candidate) -> Any:
    own = candidate_flags(candidate, "opencl")
    flags = [flag for flag in _FLAGS if not any(f.startswith("-cl-std=") for f in own)] + own
    for path, text in candidate.files:
        if "\0" in text:  # white space to the compiler
            raise BuildError(f"{path}: it has a zero character")
        joined = _SPLICE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        if _REDEFINES.search(joined):
            raise BuildError(f"{path}: it defines or undefines one of {', '.join(_RESERVED)}")
        _check_includes(path, joined, {name for name, _ in candidate.files})
    main = candidate.files[0][0]
    with tempfile.TemporaryDirectory(prefix="source-") as folder:
        write_files(candidate, Path(folder))
        return opencl_runtime.compiled(candidate.main, main, Path(folder), flags)


def _check_includes(path: str, text: str, files: Collection[str]) -> None:
    """Raises BuildError for whatever is none of the candidate's files: it may define anything, and is not read here."""
    for found in _INCLUDE.finditer(text):
        name = _NAME.match(found[1])
        said = (name[1] or name[2]) if name else ""
        if not {posixpath.normpath(said), posixpath.normpath(f"{posixpath.dirname(path) or '.'}/{said}")} & set(files):
            raise BuildError(f"{path}: it includes {found[1].strip()[:80]}, which is none of the candidate's files")


def _plans(candidate: Candidate) -> dict[str, Plan]:
    try:
        return read_plans(candidate.main)
    except UsageError as error:
        raise BuildError(f"{candidate.files[0][0]}: {error}") from error
