"""Fusions as chains: a base operator and the steps behind it, each a row of a table.

``chain("linear", "scale", "relu")`` is a task ``linear_scale_relu`` with the arguments of all, in their order. Shapes
are lists of dim names; a step sees the shape that the one before leaves. Dim 1 is the channels, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kerneleval.records import Dim, Relation, Task
from kerneleval.tasks.define import Arg, Formula, Plain, operator
from kerneleval.tasks.relations import permutation, resampling

__all__ = ["Base", "Names", "Step", "chain"]

Names = tuple[str, ...]
"""A shape in names of dims; ``one`` is 1, ``N_half`` half of N."""

JUMPS = "its gradient jumps where a rounding error picks another extreme"


@dataclass(frozen=True, kw_only=True)
class Base:
    """What a chain begins with."""

    text: str
    """Formula."""
    dims: tuple[Dim, ...]
    args: tuple[Arg | Plain, ...]
    shape: Names
    """Of the result."""
    run: Callable[..., torch.Tensor]
    flops: Formula
    reduction: Formula | None = None
    gathered: Formula | None = None
    derive: Mapping[str, Formula] = field(default_factory=dict)
    where: Formula | None = None
    normwise: bool = False
    complexity: int = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operator behind the base."""

    text: str
    """Formula, with ``{x}`` for what comes in."""
    run: Callable[..., torch.Tensor]
    """(what comes in, own arguments ...) -> what goes out; with ``again``, the base's result comes second."""
    each: int = 1
    """Operations for each element that comes in."""
    args: Callable[[Names], tuple[Arg | Plain, ...]] = lambda shape: ()
    """Shape -> own arguments."""
    shape: Callable[[Names], Names] = lambda shape: shape
    """Shape that comes in -> shape that goes out."""
    over: Callable[[Names], Names] = lambda shape: ()
    """Shape -> dims summed over."""
    again: bool = False
    """Whether the base's own result is used once more; what goes out has its shape."""
    jumps: bool = False
    """Whether it picks extremes."""
    mixes: bool = False
    """Whether items of the batch meet."""
    least: int = 1
    """Fewest elements that it may be given of the dims summed over; half of the pooled dims' sizes."""
    complexity: int = 1


def chain(bases: Mapping[str, Base], steps: Mapping[str, Step], *names: str, **more: Any) -> Task:
    """A task from the names of a base and of steps.

    Args:
        bases: by name.
        steps: by name.
        names: the base, then the steps in their order.
        more: as ``define.operator`` takes it.

    Raises:
        KeyError: an unknown name.
    """
    base, behind = bases[names[0]], [steps[name] for name in names[1:]]
    shape, shapes, args, counts = base.shape, [], list(base.args), []
    for step in behind:
        own = tuple(_renamed(arg, args) for arg in step.args(shape))
        args += own
        counts.append(len(own))
        shapes.append(shape)
        shape = base.shape if step.again else step.shape(shape)
    text = base.text
    for step in behind:
        text = step.text.format(x=text)

    def run(*given: Any) -> torch.Tensor:
        taken = len(base.args)
        x = origin = base.run(*given[:taken])
        for step, count in zip(behind, counts, strict=True):
            own = given[taken : taken + count]
            x = step.run(x, origin, *own) if step.again else step.run(x, *own)
            taken += count
        return x

    run.__name__ = run.__qualname__ = "_".join(names)
    sums = [(step, step.over(given)) for step, given in zip(behind, shapes, strict=True)]
    return operator(
        more.pop("name", "_".join(names)),
        "fused",
        f"out = {text}",
        dims=base.dims,
        args=tuple(args),
        out=(" ".join(shape),),
        reference=run,
        derive={**base.derive, **_derived((*shapes, shape))},
        flops=lambda d: base.flops(d) + sum(s.each * _size(d, given) for s, given in zip(behind, shapes, strict=True)),
        reduction=_longest(base.reduction, [over for _, over in sums if over]),
        gathered=base.gathered,
        normwise=base.normwise,
        where=_allowed(base.where, sums, (*shapes, shape)),
        no_backward=more.pop("no_backward", JUMPS if any(s.jumps for s in behind) else ""),
        nonfinite=False,
        level=2,
        source=more.pop("source", "model"),
        complexity=max(base.complexity, *(s.complexity for s in behind)),
        relations=_relations(base, behind, args),
        **more,
    )


def _renamed(arg: Arg | Plain, taken: Sequence[Arg | Plain]) -> Arg | Plain:
    names, name, number = {a.name for a in taken}, arg.name, 2
    while name in names:
        name, number = f"{arg.name}{number}", number + 1
    return replace(arg, name=name)


def _size(d: Any, shape: Names) -> int:
    return math.prod(getattr(d, name) for name in shape)


def _derived(shapes: Sequence[Names]) -> dict[str, Formula]:
    found: dict[str, Formula] = {"one": lambda d: 1}
    for name in (n for shape in shapes for n in shape if n.endswith("_half")):
        found.setdefault(name, _half_of(name.removesuffix("_half")))
    return found


def _half_of(name: str) -> Formula:
    return lambda d: getattr(d, name) // 2


def _longest(base: Formula | None, sums: Sequence[Names]) -> Formula | None:
    """Terms of the longest sum of the chain; None: nothing is summed."""
    if base is None and not sums:
        return None
    return lambda d: max(1, 1 if base is None else base(d), *(_size(d, over) for over in sums))


def _allowed(base: Formula | None, sums: Sequence[tuple[Step, Names]], shapes: Sequence[Names]) -> Formula:
    def where(d: Any) -> bool:
        """No tensor on the way is empty, and every step that sums or pools has the elements that it needs."""
        if base is not None and not base(d):
            return False
        return all(_size(d, shape) > 0 for shape in shapes) and all(_size(d, o) >= s.least for s, o in sums)

    return where


def _relations(base: Base, behind: Sequence[Step], args: Sequence[Arg | Plain]) -> tuple[Relation, ...]:
    """Items of the batch may change places, unless a step has them meet."""
    if any(step.mixes for step in behind):
        return ()
    first = base.shape[0]
    along = {i: 0 for i, a in enumerate(args) if isinstance(a, Arg) and a.shape.split()[:1] == [first]}
    return (permutation("batch_permutation", along, {0: 0}), resampling("batch_resampling", along, {0: 0}))
