"""Numbers at which an argument of a problem file meets a step: where it is compared with numbers, tensors or other
arguments, or rounded. Random floats almost never lie there; ``changes.py`` puts elements there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerneleval.tasks.formats.origins import COPIES, dense, memory
from kerneleval.tasks.formats.traits import is_float


class Edges(NamedTuple):
    """Where a problem file compares its arguments, or rounds them to steps."""

    numbers: Mapping[int, tuple[torch.Tensor, bool]] = {}
    """Position of an argument -> numbers of its type at which it meets a step, and whether rounding leaves the numbers
    next to them apart from it."""
    ties: Mapping[int, int | str] = {}
    """Position of an argument -> that of another one, or the name of a weight, with which it is compared as it is."""

    def only(self, indices: Collection[int]) -> Edges:
        """Those of some arguments."""
        numbers = {index: met for index, met in self.numbers.items() if index in indices}
        return Edges(numbers, {index: other for index, other in self.ties.items() if index in indices})


class _Path(NamedTuple):
    """How a number was made of an element: ``scale * x + shift``, or the magnitude of that."""

    source: int | str
    scale: float = 1.0
    shift: float = 0.0
    folded: bool = False

    def moved(self, scale: float, shift: float) -> _Path | None:
        """What is made of it by these; None: a magnitude can only be scaled."""
        if self.folded:
            scaled = self._replace(scale=self.scale * scale, shift=self.shift * scale)
            return scaled if scale > 0 and not shift else None
        return self._replace(scale=self.scale * scale, shift=self.shift * scale + shift)


_PASSES = COPIES | frozenset(
    ("copy", "relu", "clamp", "clamp_min", "clamp_max", "hardtanh", "where", "masked_fill", "maximum", "minimum",
     "constant_pad_nd", "lift_fresh", "detach", "threshold", "sort", "topk", "amax", "amin")
)  # fmt: skip
"""Operators of which each number is one that they are given, or a constant."""

_COMPARES = frozenset(("gt", "ge", "lt", "le", "eq", "ne"))
_WHOLE_STEPS = frozenset(("floor", "ceil", "trunc", "frac", "_to_copy"))
_MULTIPLES = frozenset(("remainder", "fmod", "floor_divide", "div"))

_MOST_STEPS, _MOST_BOUNDARIES, _MOST_PATHS = 512, 1024, 64
"""Steps that are looked at in one comparison, boundaries that are read, and paths that are followed."""

_REACH = 3.0
"""How far from 0 an edge may lie, in parts of the largest magnitude, where numbers have both signs. Others stay within
those that are drawn: they may be places in a table, or under a root.
"""


class EdgeTracer(TorchDispatchMode):
    """While it is entered around an fp64 run of a problem, notes where arguments are compared with numbers, tensors
    or each other, or rounded. Only what reaches that place without rounding counts: elsewhere rounding decides.

    Args:
        args: the arguments, in their own types.
        weights: what the problem is given for them, by name.
        inside: the half type that ``forward`` casts to; None: none.
    """

    def __init__(
        self, args: Sequence[Any], weights: Mapping[str, torch.Tensor], inside: torch.dtype | None = None
    ) -> None:
        TorchDispatchMode.__init__(self)
        self._args, self._inside = {i: a for i, a in enumerate(args) if is_float(a) and a.numel()}, inside
        self._paths: dict[int, set[_Path]] = {}
        for path, tensor in (
            *((_Path(index), tensor) for index, tensor in self._args.items()),
            *((_Path(name), tensor) for name, tensor in weights.items()),
        ):
            self._paths.setdefault(memory(tensor), set()).add(path)
        self._computed: set[int] = set()
        self._kept: list[torch.Tensor] = []
        self._met: dict[int, set[float]] = {}
        self._plain: dict[int, bool] = {}
        self._ties: dict[int, int | str] = {}
        self._seen: set[object] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        out = func(*args, **options)
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        self._note(name, args, options)
        paths = self._followed(name, func.is_view, args, options)
        given = {memory(one) for one in dense(args, options)}
        if given & (self._paths.keys() | self._computed):
            for made in dense(out):
                self._kept.append(made)
                self._lead(made, paths if made.is_floating_point() else set())
        return out

    def _lead(self, made: torch.Tensor, paths: set[_Path]) -> None:
        """Note how a tensor's memory was made. What fills it replaces what was there; many ways are as good as none."""
        place = memory(made)
        whole = made.numel() * made.itemsize == made.untyped_storage().nbytes()
        found = paths if whole and not made._is_view() else paths | self._paths.get(place, set())
        self._paths[place] = found if len(found) <= _MOST_PATHS else set()
        self._computed.add(place)

    def found(self) -> Edges:
        """What was met, as numbers that the arguments can have."""
        numbers = {}
        for index, met in self._met.items():
            own = self._args[index]
            low, high = (float(end) for end in own.aminmax())
            most = _REACH * max(-low, high)
            low, high = (-most, most) if low < 0 < high else (low, high)
            inside = sorted(number for number in met if low <= number <= high)
            if inside:
                kept = torch.tensor(inside, dtype=own.dtype, device=own.device)
                numbers[index] = kept, self._plain[index] and self._inside is None
        return Edges(numbers, dict(self._ties))

    def _of(self, value: Any) -> set[_Path]:
        tracked = isinstance(value, torch.Tensor) and value.layout == torch.strided
        return self._paths.get(memory(value), set()) if tracked else set()

    def _followed(self, name: str, view: bool, args: Sequence[Any], options: Mapping[str, Any]) -> set[_Path]:
        """How what comes out was made."""
        if view or name in _PASSES:
            return set().union(*(self._of(one) for one in dense(args, options)))
        first = self._of(args[0]) if args else set()
        if name == "neg":
            return _moved(first, -1.0, 0.0)
        if name == "abs":
            return {path._replace(folded=True) for path in first}
        if len(args) < 2 or not first | self._of(args[1]):
            return set()
        other, alpha = args[1], options.get("alpha", 1)
        if name in ("mul", "add") and not isinstance(args[0], torch.Tensor):
            return set()
        if type(other) not in (int, float) or options.get("rounding_mode"):
            return set()
        match name:
            case "mul":
                return _moved(first, float(other), 0.0)
            case "div" if _is_power_of_two(other):
                return _moved(first, 1.0 / other, 0.0)
            case "add" | "sub":
                return _moved(first, 1.0, float(other * alpha) * (1 if name == "add" else -1))
            case "rsub":
                return _moved(first, -1.0, float(other))
        return set()

    def _note(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Note at which numbers an operator has a step for what it is given first, or for what it searches."""
        if not args:
            return
        given, other = args[0], args[1] if len(args) > 1 else None
        if name in _COMPARES and isinstance(other, torch.Tensor):
            for path in self._of(other):
                self._compare(path, given)
        if name == "searchsorted":
            given, other = other, given
        paths = self._of(given)
        if not paths:
            return
        if name == "histc":
            bins, low, high = list(args[1:4]) + [100, 0, 0][len(args) - 1 :]
            width, whole = (high - low) / bins, all(_rounded(end, torch.float32) == end for end in (low, high))
            binned = _moved(paths, 1 / width, -low / width) if _is_power_of_two(width) and whole else ()
            for path in binned:
                self._meet(path, *range(bins + 1))
        elif isinstance(other, torch.Tensor):
            if name in _COMPARES or name in ("bucketize", "searchsorted"):
                for path in paths:
                    self._compare(path, other)
        else:
            numbers, steps = _steps_of(name, other, options)
            for path in paths if numbers or steps else ():
                self._meet(path, *numbers, steps=steps)

    def _compare(self, path: _Path, other: torch.Tensor) -> None:
        """Note what an argument is compared with: another one, a weight, or numbers that nothing changes."""
        theirs = self._of(other)
        alike = {one.source for one in theirs if one == _Path(one.source) and one.source != path.source}
        same = min(alike, key=str, default=None)
        if same is not None and isinstance(path.source, int) and path._replace(folded=False) == _Path(path.source):
            self._ties.setdefault(path.source, same)
        elif memory(other) not in self._computed and other.is_floating_point() and other.numel() <= _MOST_BOUNDARIES:
            self._meet(path, *other.flatten().tolist())

    def _meet(self, path: _Path, *numbers: float, steps: float = 0.0) -> None:
        """Note the elements that become these numbers on their path, or odd halves or multiples of steps (negative:
        the halves).
        """
        own = self._args.get(path.source) if isinstance(path.source, int) else None
        if own is None or not path.scale or (path, numbers, steps) in self._seen:
            return
        self._seen.add((path, numbers, steps))
        index, dtype = int(path.source), self._inside or own.dtype
        places = torch.tensor(numbers, dtype=torch.float64)
        if steps:
            ends = [(path.scale * float(end) + path.shift) / abs(steps) for end in own.aminmax()]
            low, high = math.floor(min(ends)), math.ceil(max(ends))
            counts = torch.arange(low, high + 1, max(1, (high - low) // _MOST_STEPS), dtype=torch.float64)
            counts += 0.5 * (steps < 0)
            places = counts * abs(steps)
        if path.folded:
            places = torch.cat([places, -places])
        elements = (places - path.shift) / path.scale
        exact = elements[_are_exact(path, elements, places, dtype)]
        self._met.setdefault(index, set()).update(exact.tolist())
        plain = path.shift == 0 and _is_power_of_two(path.scale)
        self._plain[index] = self._plain.get(index, True) and plain


def _steps_of(name: str, other: Any, options: Mapping[str, Any]) -> tuple[tuple[float, ...], float]:
    """The numbers at which an operator with one argument, or one and a number, has steps; and their width, where they
    are all its multiples (negative: odd halves of it).
    """
    if name == "round":
        return (), 0.0 if options.get("decimals") else -1.0
    if name in _WHOLE_STEPS:
        return (), 1.0 if name != "_to_copy" or _to_whole(options) else 0.0
    if name in ("sign", "sgn", "heaviside"):
        return (0.0,), 0.0
    if name == "hardshrink":
        limit = 0.5 if other is None else float(other)
        return (-limit, limit), 0.0
    if type(other) not in (int, float):
        return (), 0.0
    if name in _MULTIPLES:  # beside multiples of other numbers, quotients are rounded in one way or another
        steps = _is_power_of_two(other) and (name != "div" or options.get("rounding_mode"))
        return (), abs(float(other)) if steps else 0.0
    return ((float(other),) if name in _COMPARES or name == "threshold" else ()), 0.0


def _is_power_of_two(number: float) -> bool:
    return math.frexp(abs(number))[0] == 0.5


def _moved(paths: set[_Path], scale: float, shift: float) -> set[_Path]:
    return {made for path in paths if (made := path.moved(scale, shift)) is not None}


def _to_whole(options: Mapping[str, Any]) -> bool:
    """Whether a cast is to integers."""
    dtype = options.get("dtype")
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool


def _are_exact(path: _Path, elements: torch.Tensor, places: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Which elements become their numbers in this type, whichever way the path is written: by products or quotients, in
    one rounding or in several.
    """
    scaled, scale, inverse = places - path.shift, _rounded(path.scale, dtype), _rounded(1 / path.scale, dtype)
    exact = elements.isfinite()
    for number in (elements, places, scaled):
        exact = exact & (_rounded(number, dtype) == number)
    forms = [(elements, scaled)]
    if path.shift:
        whole = bool(scale == path.scale) and bool(_rounded(path.shift, dtype) == path.shift)
        exact = exact & (elements * scale == scaled) & whole
        forms.append((_rounded(elements + path.shift / path.scale, dtype), places))
    for made, wanted in forms:
        exact = exact & (_rounded(made * scale, dtype) == wanted) & (_rounded(made / inverse, dtype) == wanted)
    return exact


def _rounded(value: torch.Tensor | float, dtype: torch.dtype) -> torch.Tensor:
    """What a type leaves of fp64 numbers."""
    return torch.as_tensor(value, dtype=torch.float64).to(dtype).double()
