"""Metal candidates: shaders, compiled and launched by PyTorch (``torch.mps.compile_shader``) on Apple's GPUs.

Not run on hardware: see ``docs/hardware.md``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.common.base import BuildError, Language, Loaded, LoadError, register
from kerneleval.languages.common.launches import Geometry
from kerneleval.languages.common.native import Launch, Native, NativeLoaded, device_launches
from kerneleval.records import Candidate, UsageError


@register
class Metal(Language):
    """Metal Shading Language with ``kerneleval-launch`` headers, on Apple's GPUs."""

    name = "metal"
    suffixes = (".metal",)
    devices = ("metal",)

    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        self.check_device(device)
        try:
            launches = device_launches(candidate)
        except BuildError as error:
            raise LoadError(str(error)) from error
        if not launches:
            raise LoadError(f"{candidate.files[0][0]}: a shader needs kerneleval-launch lines in its header")
        if len(candidate.files) > 1:
            raise LoadError(f"{candidate.files[1][0]}: a Metal candidate is one file")
        return _ShadersLoaded(_Shaders(candidate, launches), candidate, names, device)

    def toolchain(self, device: str, arch: str) -> str:
        import torch

        return f"{self.name}\ntorch {torch.__version__}"


class _Shaders(Native):
    """Kernels of one source with their geometry."""

    def __init__(self, candidate: Candidate, launches: Mapping[str, Geometry]) -> None:
        import torch

        self._launches = dict(launches)
        try:
            library = torch.mps.compile_shader(candidate.main)
            self._kernels = {name: getattr(library, name) for name in launches}
        except (RuntimeError, SyntaxError, AttributeError) as error:  # the compiler's words; no such kernel
            raise LoadError(f"{candidate.files[0][0]}: {error}") from error

    def find(self, symbol: str) -> Launch | None:
        """The kernel of that name, if a launch line gives its geometry."""
        geometry, kernel = self._launches.get(symbol), self._kernels.get(symbol)
        if geometry is None or kernel is None:
            return None

        def launch(values: Sequence[Any], dims: Mapping[str, int], stream: int) -> int:
            try:
                grid, block, shared = geometry.at(dims)
            except UsageError as error:  # the candidate's mistake, not the caller's
                raise ValueError(str(error)) from error
            if shared:
                raise ValueError(f"{symbol}: shared must be 0: threadgroup memory is declared in the shader")
            if 0 not in grid:
                threads = tuple(blocks * size for blocks, size in zip(grid, block, strict=True))
                given = [_plain(symbol, value) for value in values]
                kernel(*given, *dims.values(), threads=threads, group_size=block)
            return 0

        return launch

    def symbols(self) -> list[str]:
        return sorted(self._launches)


def _plain(symbol: str, value: Any) -> Any:
    """What PyTorch takes: a tensor, an int (``constant long &``) or a float (``constant float &``)."""
    if isinstance(value, (ctypes.c_int64, ctypes.c_double)):
        return value.value
    if isinstance(value, (ctypes.c_void_p, ctypes.c_char_p)):
        raise NotImplementedError(f"{symbol}: a shader takes tensors and numbers, not None, strings or lists")
    return value


class _ShadersLoaded(NativeLoaded):
    def _pointer(self, tensor: Any) -> Any:
        """The tensor itself: its memory has no address here."""
        return tensor
