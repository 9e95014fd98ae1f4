"""The native ABI, shared by the languages whose candidates export plain functions: see ``docs/candidates.md``.

``extern "C" int NAME(arguments..., outputs..., dims..., void *stream)``: a tensor is a pointer to its contiguous
elements, a bool or int an ``int64_t``, a float a ``double``, a list of ints a pointer to ``int64_t``, a string a
``const char *``, None a null pointer; every dim follows as ``int64_t``, then the stream (null on the CPU). Returned is
0 (done), 1 (not supported, declared) or any other number (an error). Kernels of a device binary take the same without
the stream, and are launched with the geometry that ``kerneleval-launch`` headers give.
"""

from __future__ import annotations

import collections
import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.binaries.elf import function_names
from kerneleval.languages.binaries.nvidia import DeviceModule
from kerneleval.languages.common.base import BuildError, Loaded, LoadError, OutputSpec, torch_device
from kerneleval.languages.common.launches import Geometry, read_launches
from kerneleval.records import DTYPES, Candidate, UsageError

UNSUPPORTED = 1
"""What a native entry point returns for what it declares not to support."""

Launch = Callable[[Sequence[Any], Mapping[str, int], int], int]
"""(ctypes values of arguments and outputs, dims, stream handle) -> the ABI's return code."""


def library_name(candidate: Candidate) -> str:
    """File name of a candidate's shared library; differs for each, since the loader keeps libraries by path."""
    return f"candidate-{candidate.hash[:16]}.so"


class Native:
    """Where native entry points are looked up: a shared library, or a device module with launch lines."""

    def find(self, symbol: str) -> Launch | None:
        """What calls that symbol; None: it is not there."""
        raise NotImplementedError

    def symbols(self) -> list[str]:
        """What is there, for messages."""
        raise NotImplementedError

    def kernels(self, symbol: str) -> Sequence[str]:
        """What one call of that symbol counts as: itself, or the kernels that it launches."""
        return (symbol,)


class Library(Native):
    """A shared library, loaded by ctypes. Loading runs its static constructors."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise LoadError(f"{path.name} is not there: the candidate was not built")
        self._path = path
        try:
            self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            # The message starts with the path, which says nothing to the author.
            reason = str(error).replace(str(path), "the library")
            raise LoadError(f"the built library does not load: {reason}") from error

    def find(self, symbol: str) -> Launch | None:
        """The function of that name, called with the stream as its last argument."""
        try:
            function = self._library[symbol]
        except AttributeError:
            return None
        function.restype = ctypes.c_int
        int64, pointer = ctypes.c_int64, ctypes.c_void_p

        def launch(values: Sequence[Any], dims: Mapping[str, int], stream: int) -> int:
            return int(function(*values, *(int64(v) for v in dims.values()), pointer(stream)))

        return launch

    def symbols(self) -> list[str]:
        return function_names(self._path)


def entry_names(candidate: Candidate, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names, without dtype suffix, that the forward and the backward entry point may have, in order."""
    forward = [candidate.entry] if candidate.entry else [*names, "run"]
    if candidate.backward_entry:
        return forward, [candidate.backward_entry]
    return forward, [f"{name}_backward" for name in forward]


class NativeLoaded(Loaded):
    """Native entry points of one candidate, bound to a device."""

    def __init__(self, native: Native, candidate: Candidate, names: Sequence[str], device: str) -> None:
        import torch

        self._torch = torch
        self._native = native
        self._device = torch.device(torch_device(device))
        self._forward_names, self._backward_names = entry_names(candidate, names)
        self._bound: dict[tuple[bool, Any], tuple[str, Launch]] = {}  # by direction and torch dtype
        self._counts: collections.Counter[str] = collections.Counter()
        self._watched = True
        self._muted = False
        if not self._any(self._forward_names):
            raise LoadError(self._no_entry(self._forward_names, "forward"))
        if self._any(self._backward_names):
            self.backward = self._call_backward
        elif candidate.backward_entry:
            raise LoadError(self._no_entry(self._backward_names, "backward"))

    def forward(self, args: Sequence[Any], outputs: Sequence[OutputSpec], dims: Mapping[str, int]) -> Any:
        """See :meth:`Loaded.forward`; outputs are fresh, uninitialised, contiguous tensors."""
        if not outputs:  # as in a forward call of autograd's: the call would pass too few arguments
            raise NotImplementedError(f"no backward entry point: looked for {', '.join(self._backward_names)}")
        made = self._call(False, args, outputs, dims)
        return made[0] if len(made) == 1 else made

    def _call_backward(
        self, grads: Sequence[Any], args: Sequence[Any], outputs: Sequence[OutputSpec], dims: Mapping[str, int]
    ) -> tuple[Any, ...]:
        return self._call(True, [*grads, *args], outputs, dims)

    def launches(self) -> dict[str, int]:
        """Calls of each entry point."""
        return dict(self._counts)

    def watch(self, on: bool) -> None:
        self._watched = on

    def mute(self, on: bool) -> None:
        self._muted = on

    def _call(
        self, backward: bool, args: Sequence[Any], outputs: Sequence[OutputSpec], dims: Mapping[str, int]
    ) -> tuple[Any, ...]:
        torch = self._torch
        symbol, launch = self._resolve(backward, args)
        kept: list[Any] = []  # what the pointers point to must outlive the call
        values = [self._value(arg, kept) for arg in args]
        made = tuple(torch.empty(o.shape, dtype=getattr(torch, o.dtype), device=self._device) for o in outputs)
        values += [self._pointer(tensor) for tensor in made]
        if self._watched:
            self._counts.update(self._native.kernels(symbol))
            if self._muted:
                return made
        if self._device.type != "cuda":
            code = launch(values, dims, 0)
        elif self._device.index in (None, torch.cuda.current_device()):
            code = launch(values, dims, torch.cuda.current_stream().cuda_stream)
        else:  # a runtime launches on the thread's current device, which must be the one of the pointers
            with torch.cuda.device(self._device):
                code = launch(values, dims, torch.cuda.current_stream().cuda_stream)
        if code == UNSUPPORTED:
            raise NotImplementedError(f"{symbol} returned 1: it declares this call not supported")
        if code != 0:
            raise RuntimeError(f"{symbol} returned {code}; 0 is done, 1 is not supported, anything else an error")
        return made

    def _pointer(self, tensor: Any) -> Any:
        """What a contiguous tensor is passed as."""
        return ctypes.c_void_p(tensor.data_ptr())

    def _value(self, arg: Any, kept: list[Any]) -> Any:
        if isinstance(arg, self._torch.Tensor):
            dense = arg.contiguous()
            kept.append(dense)
            return self._pointer(dense)
        if isinstance(arg, (bool, int)):
            return ctypes.c_int64(arg)
        if isinstance(arg, float):
            return ctypes.c_double(arg)
        if arg is None:
            return ctypes.c_void_p(None)
        if isinstance(arg, str):
            return ctypes.c_char_p(arg.encode())
        if isinstance(arg, (list, tuple)) and all(isinstance(v, int) for v in arg):
            array = (ctypes.c_int64 * len(arg))(*arg)
            kept.append(array)
            return ctypes.cast(array, ctypes.c_void_p)
        raise NotImplementedError(f"the native ABI has no form for an argument of type {type(arg).__name__}")

    def _resolve(self, backward: bool, args: Sequence[Any]) -> tuple[str, Launch]:
        torch_dtype = self._dtype(args)
        bound = self._bound.get((backward, torch_dtype))
        if bound is not None:
            return bound
        dtype = str(torch_dtype).removeprefix("torch.")
        names = self._backward_names if backward else self._forward_names
        for symbol in self._tried(names, dtype):
            launch = self._native.find(symbol)
            if launch is not None:
                self._bound[backward, torch_dtype] = (symbol, launch)
                return symbol, launch
        # Entry points exist, else loading had failed: just this dtype is not offered.
        raise NotImplementedError(f"no entry point for {dtype}: looked for {', '.join(self._tried(names, dtype))}")

    def _dtype(self, args: Sequence[Any]) -> Any:
        # The first floating tensor's, else the first tensor's.
        first = None
        for arg in args:
            if isinstance(arg, self._torch.Tensor):
                if arg.is_floating_point():
                    return arg.dtype
                if first is None:
                    first = arg.dtype
        return self._torch.float32 if first is None else first

    @staticmethod
    def _tried(names: Sequence[str], dtype: str) -> list[str]:
        # A name without suffix means float32, except where no tensor is floating and there is nothing to distinguish.
        floating = dtype.startswith(("float", "bfloat", "complex"))
        tried = [f"{name}_{dtype}" for name in names]
        return tried + list(names) if dtype == "float32" or not floating else tried

    def _any(self, names: Sequence[str]) -> bool:
        symbols = [s for name in names for s in (name, *(f"{name}_{dtype}" for dtype in DTYPES))]
        return any(self._native.find(s) is not None for s in symbols)

    def _no_entry(self, names: Sequence[str], what: str) -> str:
        there = self._native.symbols()
        looked = ", ".join(f"{name}_<dtype> and {name}" for name in names)
        message = f"no {what} entry point: looked for {looked}; exported are {', '.join(there[:20]) or 'none'}"
        mangled = [s for s in there if s.startswith("_Z") and any(name in s for name in names)]
        return message + (f' (is extern "C" missing at {mangled[0]}?)' if mangled else "")


def device_launches(candidate: Candidate) -> dict[str, Geometry]:
    """The launch lines of a candidate; empty: it has a host launcher. Raises BuildError for a line of no such form."""
    try:
        return read_launches(candidate.main)
    except UsageError as error:
        raise BuildError(f"{candidate.files[0][0]}: {error}") from error


def is_device_code(candidate: Candidate) -> bool:
    """Whether a candidate is device code alone; launch lines with an error in them count too."""
    try:
        return bool(device_launches(candidate))
    except BuildError:
        return True


class Kernels(Native):
    """Kernels of a cubin or code object, which ``module`` loads, with their geometry by name."""

    def __init__(self, path: Path, launches: Mapping[str, Geometry], device: str, module: type[DeviceModule]) -> None:
        import torch

        if not path.is_file():
            raise LoadError(f"{path.name} is not there: the candidate was not built")
        self._launches = launches
        # Makes the primary context current, into which the module is then loaded.
        with torch.cuda.device(torch.device(torch_device(device))):
            torch.cuda.current_stream().synchronize()
            try:
                self._module = module(path.read_bytes())
                self._handles = {name: self._module.function(name) for name in launches}
            except RuntimeError as error:
                raise LoadError(str(error)) from error

    def find(self, symbol: str) -> Launch | None:
        """The kernel of that name, if a launch line gives its geometry."""
        geometry = self._launches.get(symbol)
        if geometry is None:
            return None
        module, handle = self._module, self._handles[symbol]

        def launch(values: Sequence[Any], dims: Mapping[str, int], stream: int) -> int:
            if any(isinstance(v, ctypes.c_char_p) for v in values):
                raise NotImplementedError("a kernel cannot take a string: write a host launcher")
            sizes = [ctypes.c_int64(v) for v in dims.values()]
            try:
                sizes_at = geometry.at(dims)
            except UsageError as error:  # the candidate's mistake, not the caller's
                raise ValueError(str(error)) from error
            module.launch(symbol, handle, sizes_at, [*values, *sizes], stream)
            return 0

        return launch

    def symbols(self) -> list[str]:
        return sorted(self._launches)


def built(candidate: Candidate, build_dir: Path, binary: str, device: str, module: type[DeviceModule]) -> Native:
    """What was built of a candidate for a GPU: a library, or ``binary`` with launch lines, loaded by ``module``."""
    if launches := device_launches(candidate):
        return Kernels(build_dir / binary, launches, device, module)
    return Library(build_dir / library_name(candidate))


def check_kernels(binary: Path, launches: Iterable[str], there: Sequence[str]) -> None:
    """Raises BuildError, and removes the binary, if launch lines name a kernel that is not among those in it."""
    absent = [name for name in launches if name not in there]
    if absent:
        binary.unlink()
        hint = ' (kernels must be extern "C")' if any(name.startswith("_Z") for name in there) else ""
        known = ", ".join(there) or "none"
        raise BuildError(f"kerneleval-launch names {absent[0]}; kernels there are {known}{hint}")
