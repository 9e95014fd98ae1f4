"""Floating arguments of which one follows from another, by what ``get_inputs()`` computes: a row's mean and deviation
beside the row, log-sums and outputs of an attention beside its queries. A candidate may compute one of them from the
others, so they are drawn together, and none is changed alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from kerneleval.tasks.formats.outcomes import DRAWS
from kerneleval.tasks.formats.traits import is_inexact

_COPIES = frozenset(
    ("clone", "_to_copy", "copy_", "contiguous", "index", "index_select", "gather", "take", "cat", "stack", "repeat",
     "roll", "flip")
)  # fmt: skip
"""Operators whose result is what they are given, or elements of it: rows that are taken of others follow from none."""


class Origins(TorchDispatchMode):
    """While it is entered, notes for every tensor from which random draws it comes, and whether it was computed from
    them or is drawn, copied or viewed.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self._draws: dict[int, frozenset[int]] = {}
        self._computed: set[int] = set()
        self._kept: list[torch.Tensor] = []  # so that no memory is used again
        self._count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [_memory(tensor) for tensor in _dense(args, kwargs)]
        draws = frozenset[int]().union(*(self._draws.get(place, frozenset()) for place in given))
        drawn = name in DRAWS
        if drawn:
            self._count += 1
            draws |= {self._count}
        same = drawn or func.is_view or name in _COPIES
        for made in _dense(out):
            place = _memory(made)
            self._kept.append(made)
            self._draws[place] = self._draws.get(place, frozenset()) | draws
            if draws and (not same or any(one in self._computed for one in given)):
                self._computed.add(place)
        return out

    def related(self, values: Sequence[Any]) -> frozenset[int]:
        """Positions of the floating tensors that share a draw with another one, where at least one of the two was
        computed from it. Two parts of one draw do not follow from each other, nor do two parts of one tensor.
        """
        places = {i: _memory(value) for i, value in enumerate(values) if is_inexact(value)}
        found: set[int] = set()
        for one, other in itertools.combinations(places, 2):
            a, b = places[one], places[other]
            if a != b and {a, b} & self._computed and self._draws.get(a, frozenset()) & self._draws.get(b, frozenset()):
                found |= {one, other}
        return frozenset(found)


def _dense(*values: Any) -> list[torch.Tensor]:
    """The tensors among them; of sparse ones it is not known where their numbers lie."""
    return [t for t in tree_flatten(values)[0] if isinstance(t, torch.Tensor) and t.layout == torch.strided]


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
