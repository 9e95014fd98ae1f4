"""Kernels of a device binary, launched with the geometry that the candidate's ``kerneleval-launch`` headers give."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.binaries.nvidia import DeviceModule
from kerneleval.languages.common.base import BuildError, LoadError, torch_device
from kerneleval.languages.common.geometry import Geometry, read_launches
from kerneleval.languages.common.native import Launch, Native
from kerneleval.records import Candidate, UsageError

__all__ = ["Kernels", "device_launches", "is_device_code"]


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
    """Kernels of a cubin or code object with their geometry.

    Args:
        path: the binary.
        launches: geometry by name of the kernel.
        device: a device kind or torch device.
        module: how such a binary is loaded.
    """

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
        """The kernels that have launch lines."""
        return sorted(self._launches)
