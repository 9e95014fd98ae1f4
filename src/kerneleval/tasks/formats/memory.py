"""Recurrences that forget within a few steps, and what makes them remember.

A file draws decays as it likes, most often far below 1, so a kernel that drops what is older than a block of steps
gives the right numbers. Which argument or parameter holds the decays, and in which form (themselves, their logarithm,
what a sigmoid makes of them), nothing says: each is moved in a few ways, and what then comes of the first step is
looked at many steps later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from kerneleval.records import UsageError
from kerneleval.tasks.formats.soundness import is_eight_bit

Toward = Literal["down", "up", "one", "zero"]
"""``down`` and ``up``: by :data:`_SHIFT`, of logits and logarithms; ``one``: what it lacks of 1 is divided by
:data:`_PART`, of decays themselves; ``zero``: so is itself, of their logarithms."""

_SHIFT = 6.0
"""A sigmoid is 0.9975 there."""

_PART = 64.0

_TRIES = 24
"""Ways that are tried, at most: each takes a run of the miniature in fp64, or two."""

_LEAST_STEPS = 32
"""Shorter dims have no old steps."""

_SOON = 4
"""Steps within which a recurrence shows what came first, where it forgets at all."""

_TRACE = 1e-6
"""Part of what the first step changes that shows it."""

_FORGOTTEN, _REMEMBERED = 1e-3, 0.05
"""Parts of the same that are left after half of the steps, at most and at least."""


class Slow(NamedTuple):
    """What makes a recurrence remember."""

    what: int | str
    """The position of an argument, or the name of a parameter."""
    toward: Toward

    def applied(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with longer memory."""
        match self.toward:
            case "one":
                return 1 - (1 - tensor) / _PART
            case "zero":
                return tensor / _PART
        return tensor + (_SHIFT if self.toward == "up" else -_SHIFT)


Run = Callable[[Sequence[Any], Mapping[str, torch.Tensor]], Sequence[torch.Tensor]]
"""The fp64 outputs of arguments and weights."""


def slow(
    run: Run,
    args: Sequence[Any],
    weights: Mapping[str, torch.Tensor],
    parameters: frozenset[str],
    agrees: Callable[[Sequence[Any], Mapping[str, torch.Tensor]], bool],
) -> Slow | None:
    """The first way in which the file remembers and ``agrees``; None: it forgets nothing, or there is none."""
    for index, dim in _steps(args, run(args, weights)):
        here = _trace(run, args, weights, index, dim)
        if here is None or not here[1 : _SOON + 1].max() > _TRACE * here[0] or not here[0] > 0:
            continue
        if here[len(here) // 2 :].max() > _FORGOTTEN * here[0]:
            return None
        for tried in _ways(args, weights, parameters, index):
            changed, moved = list(args), dict(weights)
            if isinstance(tried.what, int):
                changed[tried.what] = tried.applied(args[tried.what])
            else:
                moved[tried.what] = tried.applied(weights[tried.what])
            there = _trace(run, changed, moved, index, dim)
            if there is not None and there[len(there) // 2 :].max() > _REMEMBERED * there[0] and agrees(changed, moved):
                return tried
    return None


_FEW = 4
"""Steps without which no product of decays shows."""

_SHOWS = 1e-6
"""Part of the largest element of which fp64 gives ratios ..."""

_SAME = 1e-5
"""... and how far these are apart where they are the same."""


def gates(run: Run, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> frozenset[int]:
    """Arguments that hold decays of a linear recurrence: what they are at one step multiplies what is left of the first
    step by one factor in all later steps, and in none before. Kernels in chunks take them as differences of running
    sums of logarithms.
    """
    args = [a.double() if _computes(a) else a for a in args]
    for index, dim in _steps(args, run(args, weights), _FEW):
        response = _Response(run, weights, index, dim)
        left = response(args)
        if left is None or not _propagates(left) or not _is_close(response(args, 2.0), 2 * left):
            continue
        steps = len(left)
        others = [
            (i, d)
            for i, a in enumerate(args)
            if i != index and _computes(a)
            for d, size in enumerate(a.shape)
            if size == steps
        ]
        if found := frozenset(i for i, d in others if _multiplies(response, args, left, i, d)):
            return found
    return frozenset()


_NOTHING = 1e-30
"""The most that is left of a step where a decay is 0."""

SATURATED = 100.0
"""Where a sigmoid is 1, a softplus its argument, and the exponential overflows in fp32."""


def saturated(
    run: Run, args: Sequence[Any], weights: Mapping[str, torch.Tensor], found: frozenset[int]
) -> dict[int, int | None]:
    """Those of the :func:`gates` that are saturated at :data:`SATURATED` and beyond. None: all of the first step is
    left in the last one there, as of a sigmoid. A dim: nothing is left in the next step, as of an exponential of minus
    a softplus, and the dim is another one than that of the steps.
    """
    args = [a.double() if _computes(a) else a for a in args]
    kept = dict[int, int | None]()
    for index, dim in _steps(args, run(args, weights), _FEW) if found else ():
        response = _Response(run, weights, index, dim)
        plain = response(args)
        for gate in found - {index}:
            one, other = (
                response([torch.full_like(a, number) if i == gate else a for i, a in enumerate(args)])
                for number in (SATURATED, 1.25 * SATURATED)
            )
            if one is None or other is None or not bool(one[0].any()) or _is_close(plain, one):
                continue  # it has no part in what is left of that argument
            across = [d for d, size in enumerate(args[gate].shape) if size > 1 and size != len(one)]
            if bool(one[-1].any()) and _is_close(other, one):
                kept[gate] = None
            elif across and not max(float(left[1:].abs().max()) for left in (one, other)) > _NOTHING:
                kept[gate] = across[-1]
    return kept


_MAKE_DECAYS = frozenset(("exp", "exp2", "sigmoid", "softplus", "log_sigmoid_forward"))
_NO_DECAYS = frozenset(("tanh", "_softmax", "_log_softmax", "amax", "max", "maximum", "logsumexp"))
"""Operators that decays are made with, and those of attention and of states that no chunks are made of."""

_MANY = 12
"""Steps later than a short convolution reaches."""

_FAINT = 1e-10
"""Part of the largest one that is left of the first step there: little, where decays are far below 1."""

_LESS = 0.75
"""What is left of the first step at the last one, at most: a running sum forgets nothing."""


def makes_decays(run: Run, args: Sequence[Any], weights: Mapping[str, torch.Tensor], operators: frozenset[str]) -> bool:
    """Whether a recurrence seems to make decays of its own input, as layers of Mamba and of gated linear attention do:
    each step changes later ones alone, the first one all of them and the last one less, not in proportion to its size.
    """
    if not operators & _MAKE_DECAYS or operators & _NO_DECAYS:
        return False
    args = [a.double() if _computes(a) else a for a in args]
    plain = run(args, weights)
    for index, dim in _steps(args, plain, _MANY):
        first, last = (_trace(run, args, weights, index, dim, step) for step in (0, -1))
        if first is None or last is None or bool(last[:-1].any()) or not first[-1] < _LESS * first[1]:
            continue
        twice = [2 * a if i == index else a for i, a in enumerate(args)]
        if bool((first[:_MANY] > _FAINT * first.max()).all()) and not _is_close(run(twice, weights)[0], 2 * plain[0]):
            return True
    return False


class _Response(NamedTuple):
    """What comes out of the first element of the first step, (steps, elements)."""

    run: Run
    weights: Mapping[str, torch.Tensor]
    source: int
    dim: int

    def __call__(self, args: Sequence[Any], size: float = 1.0) -> torch.Tensor | None:
        """None: the file raises, or what comes out is not finite or of another size."""
        changed = list(args)
        changed[self.source] = args[self.source].clone()
        changed[self.source][(0,) * changed[self.source].dim()] += size
        try:
            one, other = self.run(args, self.weights)[0], self.run(changed, self.weights)[0]
        except UsageError:
            return None
        if one.shape != other.shape:
            return None
        apart = (other - one).movedim(self.dim, 0).reshape(one.shape[self.dim], -1)
        return apart if bool(apart.isfinite().all()) else None

    def at(self, args: Sequence[Any], gate: int, dim: int, steps: Sequence[int]) -> torch.Tensor | None:
        """The same where an argument is moved at these steps, of its own dim."""
        changed = list(args)
        changed[gate] = args[gate].clone()
        for step in steps:
            changed[gate].select(dim, step).add_(_MOVED)
        return self(changed)


_MOVED = 0.25
"""By how much: there are logarithms, logits and factors."""


def _propagates(left: torch.Tensor) -> bool:
    return bool((left[1:_FEW].abs().amax(1) > _SHOWS * left.abs().max()).all())


def _is_close(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and bool((one - other).abs().max() <= _SAME * other.abs().max())


def _multiplies(response: _Response, args: Sequence[Any], left: torch.Tensor, gate: int, dim: int) -> bool:
    ratios = []
    shows = left.abs() > _SHOWS * left.abs().max()
    for step in (1, 2):
        moved = response.at(args, gate, dim, (step,))
        if moved is None:
            return False
        ratio = torch.where(shows, moved / left, torch.nan)
        factor = ratio[step:].nanmedian(0, keepdim=True).values
        before, after = (ratio[:step] - 1).abs(), (ratio[step:] / factor - 1).abs()
        unmoved = (factor - 1).abs() <= _SAME
        if bool((before > _SAME).any() | (after > _SAME).any() | unmoved.any()):
            return False
        ratios.append(factor)
    both = response.at(args, gate, dim, (1, 2))
    return both is not None and _is_close(both[2:], (left * ratios[0] * ratios[1])[2:].nan_to_num(nan=0.0))


def _steps(
    args: Sequence[Any], outputs: Sequence[torch.Tensor], least: int = _LEAST_STEPS
) -> Iterator[tuple[int, int]]:
    """(argument, dim) that may be of steps: the first output has a dim of that size at the same place."""
    shape = outputs[0].shape
    for index, value in enumerate(args if _computes(outputs[0]) else ()):
        if _computes(value):
            for dim, size in enumerate(value.shape[:-1] if value.dim() > 1 else value.shape):
                if value.numel() and outputs[0].numel() and size >= least and len(shape) > dim and shape[dim] == size:
                    yield index, dim


def _computes(value: Any) -> bool:
    """Whether it is a tensor of floating numbers of more than eight bits."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not is_eight_bit(value)


def _trace(
    run: Run, args: Sequence[Any], weights: Mapping[str, torch.Tensor], index: int, dim: int, step: int = 0
) -> torch.Tensor | None:
    """How much the first output changes at each step with one of the argument's, the first; None: the file raises, or
    what comes out is not finite or of another size.
    """
    changed = list(args)
    changed[index] = args[index].clone()
    moved = changed[index].select(dim, step)
    moved += torch.linspace(0.5, 1.5, moved.numel()).view(moved.shape)  # a norm takes off what is the same everywhere
    try:
        one, other = run(args, weights)[0], run(changed, weights)[0]
    except UsageError:
        return None
    if one.shape != other.shape:
        return None
    apart = (other - one).abs().movedim(dim, 0).reshape(one.shape[dim], -1).amax(1).double()
    return apart if bool(apart.isfinite().all()) else None


def _ways(
    args: Sequence[Any], weights: Mapping[str, torch.Tensor], parameters: frozenset[str], index: int
) -> Iterator[Slow]:
    """What may hold decays, in every way that its numbers allow, the smallest first."""
    tensors: dict[int | str, torch.Tensor] = {name: weights[name] for name in weights if name in parameters}
    tensors |= {i: a for i, a in enumerate(args) if i != index and isinstance(a, torch.Tensor)}
    floating = {what: t for what, t in tensors.items() if _computes(t) and t.numel()}
    found = []
    for what, tensor in sorted(floating.items(), key=lambda item: item[1].numel()):
        low, high = (float(end) for end in tensor.aminmax())
        inside = low >= 0 and high <= 1 and high > 0
        ways: tuple[Toward, ...] = ("one", "down", "up") if inside else ("zero", "down", "up") if high <= 0 else ()
        found += [Slow(what, toward) for toward in ways or ("down", "up")]
    yield from found[:_TRIES]
