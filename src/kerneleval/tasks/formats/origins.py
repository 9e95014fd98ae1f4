"""Floating arguments of which one follows from another, by what ``get_inputs()`` computes: a row's mean and deviation
beside the row, log-sums and outputs of an attention beside its queries. A candidate may compute one of them from the
others, so they are drawn together, and none is changed alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from kerneleval.tasks.formats.outcomes import DRAWS
from kerneleval.tasks.formats.traits import is_inexact, same_bits

COPIES = frozenset(
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
        self._left = frozenset[int]()
        self._given: dict[int, frozenset[int]] = {}
        self.leaving = _Leaving(self._leaves)
        """To be entered as well: tells what leaves torch."""

    def _leaves(self, tensor: torch.Tensor) -> None:
        if tensor.layout != torch.strided:
            return
        draws = self._draws.get(memory(tensor), frozenset())
        self._left |= draws
        self._given[tensor.data_ptr()] = draws

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [memory(tensor) for tensor in dense(args, kwargs)]
        draws = frozenset[int]().union(*(self._draws.get(place, frozenset()) for place in given))
        drawn = name in DRAWS
        if drawn:
            self._count += 1
            draws |= {self._count}
        same = drawn or func.is_view or name in COPIES
        for made in dense(out):
            place = memory(made)
            self._kept.append(made)
            self._draws[place] = self._draws.get(place, frozenset()) | draws
            if draws and (not same or any(one in self._computed for one in given)):
                self._computed.add(place)
        return out

    def related(self, values: Sequence[Any], others: Sequence[Any]) -> frozenset[int]:
        """Positions of the floating tensors and numbers that share a draw with another one, where at least one of the
        two was computed from it. Two parts of one draw do not follow from each other, nor do two parts of one tensor.

        Of what other code than torch's made nothing is seen: if it varies, it is taken for computed of all that torch
        gave away before, and one may be the mean, a norm or the like of another, times a constant.

        Args:
            values: what was made while this was entered.
            others: the same under another seed.
        """
        places = {i: memory(value) for i, value in enumerate(values) if is_inexact(value)}
        draws = {i: self._draws.get(place, frozenset()) for i, place in places.items()}
        computed = {i for i, place in places.items() if place in self._computed}
        unseen = [i for i, one in enumerate(values) if not draws.get(i) and _varies(one, others[i])]
        for i in unseen:
            given = self._given.get(values[i].data_ptr()) if i in places else None
            draws[i] = self._left if given is None else given
            computed |= {i} if given is None else set()
        found: set[int] = set()
        for one, other in itertools.combinations(sorted(draws), 2):
            apart = one not in places or other not in places or places[one] != places[other]
            if apart and {one, other} & computed and draws[one] & draws[other]:
                found |= {one, other}
        for one, other in itertools.permutations(unseen, 2):
            if one in places and _sums_up((values[one], others[one]), (values[other], others[other])):
                found |= {one, other}
        return frozenset(found)


_LEAVES = (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__)
"""Methods by which numbers leave torch."""


class _Leaving(TorchFunctionMode):
    """Tells which tensors leave torch."""

    def __init__(self, leaves: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._leaves = leaves

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _LEAVES:
            self._leaves(args[0])
        return func(*args, **(kwargs or {}))


def _varies(one: Any, other: Any) -> bool:
    """Whether a floating tensor or number is another one under another seed."""
    if is_inexact(one):
        return is_inexact(other) and not same_bits(one, other)
    return type(one) is float and one != other


_CLOSE = 1e-5


def _sums_up(tensors: Sequence[torch.Tensor], summaries: Sequence[Any]) -> bool:
    """Whether, in two draws, the second holds a mean, sum, norm, deviation or extreme of the first along a dim or of
    all, times one constant.
    """
    wide = [tensor.double() for tensor in tensors if not tensor.is_complex()]
    numbers = [torch.as_tensor(one).reshape(-1) for one in summaries]
    if len(wide) < len(tensors) or any(n.is_complex() or not n.numel() for n in numbers):
        return False
    for dim in (None, *range(wide[0].dim())):
        size = wide[0].numel() // (wide[0].shape[dim] or 1) if dim is not None else 1
        if size != numbers[0].numel() or wide[0].numel() <= size:
            continue
        for fact in _FACTS:
            pairs = zip(wide, numbers, strict=True)
            ratio = torch.cat([n.double() / fact(t, dim).reshape(-1) for t, n in pairs])
            if bool(((ratio - ratio[0]).abs() <= _CLOSE * ratio[0].abs()).all()):
                return True
    return False


_FACTS: tuple[Callable[..., torch.Tensor], ...] = (
    lambda t, dim: t.mean(dim),
    lambda t, dim: t.var(dim, correction=0),
    lambda t, dim: t.std(dim, correction=0),
    lambda t, dim: torch.linalg.vector_norm(t, dim=dim),
    lambda t, dim: t.abs().sum(dim),
    lambda t, dim: t.abs().amax(() if dim is None else dim),
    lambda t, dim: t.amax(() if dim is None else dim),
    lambda t, dim: t.amin(() if dim is None else dim),
)
"""Sums are means, and other corrections of a variance are variances, times a constant."""


def dense(*values: Any) -> list[torch.Tensor]:
    """The tensors among them; of sparse ones it is not known where their numbers lie."""
    return [t for t in tree_flatten(values)[0] if isinstance(t, torch.Tensor) and t.layout == torch.strided]


def memory(tensor: torch.Tensor) -> int:
    """A number for the memory of a tensor, which its views have too, as long as it is kept."""
    return int(tensor.untyped_storage()._cdata)
