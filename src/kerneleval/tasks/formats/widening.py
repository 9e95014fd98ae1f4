"""The fp64 run of a problem file: what its code computes in narrower types is computed in fp64.

``module_problem.py`` runs the modules of problem files so, ``judge/oracle/reference_call.py`` every other reference.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from kerneleval.tasks.formats.problem_file import own_settings

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""What a type of a tensor, or of a cast, is in the oracle; integers and types of eight bits stay."""

_HALVES = (torch.float16, torch.bfloat16, torch.complex32)

_CASTS = {
    getattr(torch.Tensor, name): dtype
    for name, dtype in (
        ("half", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float32),
        ("chalf", torch.complex32),
        ("cfloat", torch.complex64),
    )
}
"""Methods that cast."""


def widened(value: torch.Tensor) -> torch.Tensor:
    """The tensor in fp64, or complex128, if it is of a narrower floating type."""
    return value.to(WIDER.get(value.dtype, value.dtype))


def coarser(one: torch.dtype | None, other: torch.dtype | None) -> torch.dtype | None:
    """The half type with the larger steps; None is no half type."""
    known = [dtype for dtype in (one, other) if dtype is not None]
    return max(known, key=lambda dtype: torch.finfo(dtype).eps, default=None)


class _Widen(TorchFunctionMode):
    """Computes in fp64 what a model computes in narrower types: casts that it writes out go there, and tensors of its
    own become fp64 ones. A tensor has one such twin, so that what is written into it stays.
    """

    def __init__(self, halves: bool) -> None:
        super().__init__()
        self._wider = {dtype: wide for dtype, wide in WIDER.items() if halves or dtype not in _HALVES}
        self.met: torch.dtype | None = None
        """The coarsest half type that was asked for."""
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _CASTS:
            func, args = torch.Tensor.to, (args[0], _CASTS[func])
        if func is torch.Tensor.view:  # of the bits, where it is given a type
            return func(self._twin(args[0]), *args[1:], **(kwargs or {}))
        return func(*map(self._wide, args), **{name: self._wide(value) for name, value in (kwargs or {}).items()})

    def _wide(self, value: Any) -> Any:
        """An argument, its tensors and types widened. To look for them in lists costs more than most operators."""
        if isinstance(value, torch.Tensor):
            return self._twin(value)
        if isinstance(value, torch.dtype):
            return self._cast(value)
        if value is None or isinstance(value, (int, float, str)):
            return value
        return tree_map_only((torch.Tensor, torch.dtype), self._wide, value)

    def _cast(self, dtype: torch.dtype) -> torch.dtype:
        if dtype in (torch.float16, torch.bfloat16):
            self.met = coarser(self.met, dtype)
        return self._wider.get(dtype, dtype)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        kind = tensor.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind):
            self._cast(torch.get_autocast_dtype(kind))
        if tensor.dtype not in self._wider:
            return tensor
        if id(tensor) not in self._twins:
            self._cast(tensor.dtype)
            self._twins[id(tensor)] = tensor, widened(tensor)
        return self._twins[id(tensor)][1]


_FAST_PATHS = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
"""Modules that take another path under a mode: in eval mode it gives numbers where the fast one gives zeros, at places
that padding masks hide. They hold no tensors but weights and arguments, which are in fp64 already."""


def has_fast_path(part: torch.nn.Module) -> bool:
    """Whether it is one of :data:`_FAST_PATHS` without code of the file's own: no subclass, no other activation."""
    layers = [one for one in part.modules() if isinstance(one, torch.nn.TransformerEncoderLayer)]
    own = all(type(one).__module__.startswith("torch.nn.") for one in part.modules())
    return type(part) in _FAST_PATHS and own and all(one.activation_relu_or_gelu for one in layers)


def without_modes(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run as if no mode were on (:data:`_FAST_PATHS`)."""

    @functools.wraps(forward)
    def plainly(*args: Any, **options: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return forward(*args, **options)

    return plainly


@contextlib.contextmanager
def in_double(*, halves: bool = True) -> Iterator[_Widen]:
    """The default dtype is fp64, and what the code inside does in fp32 is done in fp64, with ``halves`` also what it
    does in half types; restored afterwards. Gives what tells which half types it asked for.
    """
    with own_settings(torch.float64), _Widen(halves) as widening:
        yield widening
