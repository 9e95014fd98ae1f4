"""Numba candidates: Python functions compiled for the CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.binaries.elf import ARITHMETIC, COMPUTES
from kerneleval.languages.common.base import register
from kerneleval.languages.common.python_module import PythonLanguage
from kerneleval.languages.common.watch import Patch

_BLAS = re.compile(r"numba_((?:xx|xg|ez_|raw_)\w+)")
"""Names in compiled code of the functions by which Numba's run-time calls BLAS and LAPACK."""

_DECLARED = re.compile(r'^declare [^@\n]*@"?([\w.$]+)', re.MULTILINE)
"""Functions that compiled code takes from elsewhere, as an ``ExternalFunction`` is."""

_ADDRESS = re.compile(r"inttoptr \(?i64 (\d+) to")
"""Where compiled code has an address written in, as that of a function of ``ctypes`` is."""

_OF_SYSTEM = re.compile(r"lib(?:c|m|mvec|dl|pthread|gomp|gcc_s|stdc\+\+)[-.].*")
"""Files whose functions compute single numbers, or nothing."""


@register
class Numba(PythonLanguage):
    """A Python module that imports Numba and not Triton."""

    name = "numba"
    devices = ("cpu",)
    imported = "numba"
    install = "pip install numba"
    preload_when_met = True

    def preload(self, device: str, arch: str) -> None:
        """Compiles a small function: what Numba loads for the first one is loaded. See :meth:`Language.preload`."""
        import numba
        import numpy as np

        numba.njit(_first)(np.ones(1))

    def adapt(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """Entry points that are jitted functions themselves get NumPy arrays, which they can type, for tensors."""
        kinds = tuple(patch.owner for patch in self.patches())
        return _through_numpy(function) if isinstance(function, kinds) else None

    def patches(self) -> tuple[Patch, ...]:
        """Calls from Python into jitted functions, ``vectorize`` and ``guvectorize``.

        Not seen: calls between jitted functions, and ``vectorize(target="parallel")``, which gives a ufunc of NumPy's.
        """
        from numba.core.registry import CPUDispatcher
        from numba.np.ufunc.dufunc import DUFunc
        from numba.np.ufunc.gufunc import GUFunc

        return (
            Patch(CPUDispatcher, "__call__", lambda f: _describe(f.py_func)),
            Patch(DUFunc, "__call__", lambda f: _describe(f._dispatcher.py_func)),
            Patch(GUFunc, "__call__", lambda f: _describe(f.gufunc_builder.py_func)),
        )

    def linked(self, kernel: Any) -> tuple[str, ...]:
        """BLAS and LAPACK, which Numba calls for ``np.dot``, ``@`` and ``np.linalg``, what else it names, and files of
        libraries of which it has addresses.
        """
        overloads = getattr(getattr(kernel, "_dispatcher", kernel), "overloads", {})
        found: set[str] = set()
        for compiled in list(overloads.values()):
            text = compiled.library.get_llvm_str()
            found.update(_BLAS.findall(text))
            declared = _DECLARED.findall(text)
            found.update(name for name in declared if ARITHMETIC.match(name) or COMPUTES.fullmatch(name))
            found.update(_files_at([int(one) for one in _ADDRESS.findall(text)]))
        return tuple(f"numba.{name}" for name in sorted(found))


def _files_at(addresses: Sequence[int]) -> Iterator[str]:
    """Names of the files with code that are in this process's memory at these addresses, but for the system's."""
    maps = Path("/proc/self/maps")
    lines = [line.split(None, 5) for line in maps.read_text().splitlines()] if addresses and maps.exists() else []
    with_code = {parts[5] for parts in lines if parts[5:] and "x" in parts[1]}
    for parts in lines:
        start, stop = (int(end, 16) for end in parts[0].split("-"))
        file = Path("".join(parts[5:])).name
        if not with_code.issuperset(parts[5:]) or _OF_SYSTEM.fullmatch(file):
            continue
        if file and any(start <= one < stop for one in addresses):
            yield file


def _first(x: Any) -> Any:
    for i in range(x.size):
        x[i] += 1.0
    return x[0]


def _describe(function: Any) -> tuple[str, str]:
    return str(function.__name__), str(function.__code__.co_filename)


def _through_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    import numpy as np
    import torch

    def to_numpy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype is torch.bfloat16:
            raise NotImplementedError("NumPy, and so a Numba entry point, has no bfloat16")
        return value.detach().numpy()

    def to_torch(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(to_torch(v) for v in value)
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value)
        return torch.from_numpy(np.asarray(value)) if isinstance(value, np.generic) else value

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return to_torch(function(*(to_numpy(a) for a in args)))

    return call
