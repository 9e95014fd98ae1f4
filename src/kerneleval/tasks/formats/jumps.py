"""Problem files whose outputs jump: numbers are rounded to steps, compared with a threshold, or the largest are kept.

An element beside a step falls to either side by the order of a sum, so honest kernels get a few of them otherwise than
the oracle: a whole step off. Which these may be, oracles say whose arithmetic is rounded at random
(Monte Carlo arithmetic: Parker, *Computer Science Department, UCLA*, CSD-970002, 1997). All seeds here are public.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from kerneleval.records import UsageError
from kerneleval.tasks.formats.soundness import is_eight_bit, opened

Tensors = tuple[torch.Tensor, ...]

_MANTISSA = 52
"""Bits of an fp64 number behind the leading one."""

RUNS = (8, 16, 32)
"""Noisy oracles after which an output is looked at. One of them has an element that lies beside a step on the other
side with a probability of 0.4 or more: 32 of them miss one in 10^7."""

_COPIES = frozenset(("copy_", "clone"))
"""Operators that give what they are given, which was rounded before."""

_SMALLEST = 1e-300
"""Smaller numbers stay: they have no such neighbours."""

_LINES = (2.0**-14, 2.0**-7, 1.0)
"""Parts of the way from one draw to another on which a jump is looked for: the short ones find single steps between
smooth parts, the long one finds what lies far apart."""

_CLOSEST = 2.0**-44
"""Part of the way at which what is still apart has jumped: fp64 has numbers in between."""

_SMOOTH = 2.0**-12
"""What is apart there by less than this of what it was at first is smooth."""

_LEAST = 2.0**-30
"""Less than this part of the largest value is rounding in fp64."""

_LEVEL = 0.125
"""Beside a jump outputs move by less than this part of it; where rounding in fp64 decides they do not."""

_FEW, _DRAWS = 4096, 3
"""Of outputs with few elements so many draws are looked at, else one."""

_MOST = 0.25
"""Share of the elements that the native reference may have on the other side of a step."""

_FAR = 0.5
"""Where jumps are rare, an output whose error has more than this part of its norm is not looked at: most that is wrong
does, and to find jumps takes an oracle or more."""

_KNOWN: dict[tuple[object, ...], bool] = {}


# -- Whether outputs jump ---------------------------------------------------------------------------------------------


def jumps(problem: Any, distribution: str, key: tuple[object, ...]) -> bool:
    """Whether a floating output of a problem file jumps somewhere between two public draws of this distribution. Asked
    once for each key.
    """
    if key not in _KNOWN:
        try:
            _KNOWN[key] = _jumps(problem, distribution)
        except UsageError:  # the file itself takes no such values
            _KNOWN[key] = False
    return _KNOWN[key]


def _jumps(problem: Any, distribution: str) -> bool:
    for seed in range(1, _DRAWS + 1):
        run = _line(problem, distribution, seed)
        here = run(0.0)
        if any(_jumps_within(run, here, part) for part in _LINES):
            return True
        if max((o.numel() for o in here), default=0) > _FEW:
            return False
    return False


def _line(problem: Any, distribution: str, seed: int) -> Callable[[float], Tensors]:
    """The fp64 outputs at a part of the way from one draw of inputs and weights to another."""
    ends = [(problem.inputs(s, distribution), problem.weights(s, distribution)) for s in (seed, seed + _DRAWS)]
    (args, weights), (others, heavier) = ends
    fixed = problem.traits.labels

    def way(one: Any, other: Any) -> tuple[Any, Any]:
        """A tensor and how far it is to the other; None: it stays."""
        if not isinstance(one, torch.Tensor) or not _coarsens(one):
            return one, None
        wide = one.to(torch.promote_types(one.dtype, torch.float64))
        return wide, torch.where(other.isfinite() & wide.isfinite(), other - wide, 0.0)

    def at(pair: tuple[Any, Any], part: float) -> Any:
        return pair[0] if pair[1] is None else torch.add(*pair, alpha=part)

    inputs = [(a, None) if i in fixed else way(a, b) for i, (a, b) in enumerate(zip(args, others, strict=True))]
    held = {name: way(w, heavier[name]) for name, w in weights.items()}

    def run(part: float) -> Tensors:
        found = problem.oracle([at(pair, part) for pair in inputs], {name: at(w, part) for name, w in held.items()})
        return tuple(opened(o).reshape(-1) for o in found if o.is_floating_point())

    return run


def _jumps_within(run: Callable[[float], Tensors], here: Tensors, part: float) -> bool:
    """Whether the element that moves most on this part of the way, which begins ``here``, still moves when it is halved
    to next to nothing.
    """
    low, high, there = 0.0, part, run(part)
    apart = [(b - a).abs().nan_to_num(nan=0.0, posinf=0.0) for a, b in zip(here, there, strict=True)]
    sizes = [
        float(d.max() / a.abs().max().clamp_min(1e-300)) if d.numel() else 0.0 for d, a in zip(apart, here, strict=True)
    ]
    if max(sizes, default=0.0) < _LEAST:
        return False
    output = sizes.index(max(sizes))
    at = int(apart[output].argmax())
    first = float(apart[output][at])
    left, right = float(here[output][at]), float(there[output][at])
    while high - low > _CLOSEST:
        middle = (low + high) / 2
        value = float(run(middle)[output][at])
        if abs(value - left) > abs(right - value):
            high, right = middle, value
        else:
            low, left = middle, value
        if not abs(right - left) > _SMOOTH * first:
            return False
    beside = [(low - n * _CLOSEST, left) for n in (8, 64)] + [(high + n * _CLOSEST, right) for n in (8, 64)]
    return all(abs(float(run(place)[output][at]) - value) < _LEVEL * abs(right - left) for place, value in beside)


# -- Oracles whose arithmetic is rounded at random --------------------------------------------------------------------


def noisy(problem: Any, args: Sequence[Any], weights: Mapping[str, torch.Tensor], noise: Noise) -> Tensors:
    """Outputs of the oracle where every number, of inputs and weights too, is rounded at random. Inputs that lie at a
    step stay as they are (``ModuleProblem.held``).
    """
    held = problem.held(args, weights)
    given = [noise.rounded(a, held.get(id(a))) if isinstance(a, torch.Tensor) else a for a in args]
    changed = {name: noise.rounded(w, held.get(id(w))) for name, w in weights.items()}
    with noise:
        return tuple(problem.oracle(given, changed))


def _coarsens(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() and not is_eight_bit(tensor)) or tensor.is_complex()


class Noise(TorchDispatchMode):
    """While it is entered, every fp64 number is rounded up or down at random to so many bits. Numbers that have no more
    stay: what is exact (a maximum, a step, a tie of whole numbers) stays exact. With ``wholly`` they go towards 0, as
    the tanh of a large number may be a little below 1.
    """

    def __init__(self, bits: int, turn: int, *, wholly: bool = False) -> None:
        TorchDispatchMode.__init__(self)
        self._dropped = max(0, _MANTISSA + 1 - bits)
        self._turn, self._wholly = turn, wholly
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func.overloadpacket.__name__ not in _COPIES:
            for tensor in tree_flatten(out)[0]:
                if isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.float64, torch.complex128):
                    self._round(tensor)
        return out

    def rounded(self, tensor: torch.Tensor, held: torch.Tensor | None = None) -> torch.Tensor:
        """A copy on the coarser grid, in its own type; where some elements are held, in fp64."""
        if not _coarsens(tensor):
            return tensor
        wide = tensor.to(torch.promote_types(tensor.dtype, torch.float64), copy=True)
        self._round(wide, most=True)
        return wide.to(tensor.dtype) if held is None else torch.where(held, tensor, wide)

    def _round(self, tensor: torch.Tensor, most: bool = False) -> None:
        """In place: what lies between two numbers of the grid goes to one of the three nearest on either side, so that
        a step may lie on the grid itself. Signs and exponents stay: numbers below 1 stay below 1. With ``most``, where
        most elements lie between, the others move as well.
        """
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        if not self._dropped or real.layout != torch.strided or real.device.type == "meta":
            return
        if any(stride == 0 and size > 1 for stride, size in zip(real.stride(), real.shape, strict=True)):
            return
        generator = self._generators.get(real.device)
        if generator is None:
            seed = 20261127 + self._turn
            generator = self._generators[real.device] = torch.Generator(device=real.device).manual_seed(seed)
        places, cell = real.view(torch.int64), 1 << self._dropped
        noise = torch.randint(-2 * cell, 3 * cell, real.shape, generator=generator, device=real.device)
        exact = places & (cell - 1) == 0
        if most and 2 * int(torch.count_nonzero(exact)) < exact.numel():
            exact = torch.zeros_like(exact)
        staying = ~real.isfinite() | (real.abs() < _SMALLEST)
        if self._wholly:
            noise = torch.where(exact, noise.clamp_max(0), noise)
        else:
            staying |= exact
        moved = noise.masked_fill_(staying, 0).add_(places).bitwise_and_(-cell)
        beyond = (moved ^ places) >> _MANTISSA != 0
        if self._wholly:
            beyond &= ~exact
        places.copy_(torch.where(beyond, places & -cell, moved))


def too_many(native: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Whether so many elements of an output were put right that nothing says what is."""
    pairs = zip(native, right, strict=True)
    return any(int(torch.count_nonzero(own != other)) > _MOST * own.numel() for own, other in pairs)


# -- Which elements may fall the other way ----------------------------------------------------------------------------


class Flips:
    """The outputs of one call with those elements put right that noisy oracles get otherwise, too.

    Args:
        run: a noisy oracle, by its number.
        asked: whether the file's outputs jump at all; asked when something is off.
        oracle: what comes out without noise.
        smooth: of each output, how far elements may be off without a jump; None: it is not judged so.
        rare: whether most outputs do not jump at all, as gradients beside a kink: an output that is far off or off all
            over is not looked at, and no more oracles are asked where the first ones show no jump.
    """

    def __init__(
        self,
        run: Callable[[int], Tensors],
        asked: Callable[[], bool],
        oracle: Sequence[torch.Tensor],
        smooth: Callable[[], Sequence[torch.Tensor | None]],
        *,
        rare: bool = False,
    ) -> None:
        self._run, self._asked, self._smooth = run, asked, smooth
        self._oracle = [opened(output) for output in oracle]
        self._low, self._high = list(self._oracle), list(self._oracle)
        self._most = [0] * len(oracle)
        self._runs, self._rare = 0, rare

    @functools.cached_property
    def _tolerances(self) -> Sequence[torch.Tensor | None]:
        return self._smooth()

    def undone(self, index: int, got: torch.Tensor) -> Iterator[torch.Tensor]:
        """One output, put right by more and more noisy oracles. Nothing where it has more elements on the other side
        than any of them, and chance.

        An element is put right where a noisy oracle falls the other way, and the output lies between what they give.
        """
        oracle = self._oracle[index]
        wide = got.to(oracle.dtype)
        if self._rare and not torch.dist(wide, oracle) <= _FAR * torch.linalg.vector_norm(oracle):
            return
        if not self._asked() or (tolerance := self._tolerances[index]) is None:
            return
        off = (wide - oracle).abs() > tolerance
        if self._rare and int(torch.count_nonzero(off)) > _MOST * off.numel():
            return
        for runs in RUNS:
            self._until(runs)
            if self._rare and not any(self._most):
                return
            low, high = self._low[index], self._high[index]
            flips = (high - low > tolerance) & (wide >= low - tolerance) & (wide <= high + tolerance)
            most = self._most[index]
            if int(torch.count_nonzero(flips & off)) <= most + math.ceil(2 * math.sqrt(most)):
                yield torch.where(flips, oracle.to(got.dtype), got)

    def nearest(self, index: int, got: torch.Tensor) -> torch.Tensor:
        """One output put right as far as noisy oracles explain it."""
        found, oracle = got, self._oracle[index]
        for found in self.undone(index, got):
            tolerance = self._tolerances[index]
            if tolerance is not None and not bool(((found.to(oracle.dtype) - oracle).abs() > tolerance).any()):
                break
        return found

    def _until(self, runs: int) -> None:
        while self._runs < runs:
            self._runs += 1
            try:
                outputs = self._run(self._runs)
            except UsageError:  # the file takes no such numbers
                continue
            for index, (output, tolerance) in enumerate(zip(outputs, self._tolerances, strict=True)):
                if tolerance is None or output.shape != self._oracle[index].shape:
                    continue
                here = output.to(self._oracle[index].dtype)
                beside = torch.count_nonzero((here - self._oracle[index]).abs() > tolerance)
                self._most[index] = max(self._most[index], int(beside))
                self._low[index] = torch.minimum(self._low[index], here)
                self._high[index] = torch.maximum(self._high[index], here)
