"""Fusions as chains: a base operator and the steps behind it, each a row of a table.

``chain("linear", "scale", "relu")`` is a task ``linear_scale_relu`` with the arguments of all, in their order. Shapes
are lists of dim names; a step sees the shape that the one before leaves. Dim 1 is the channels, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kerneleval.records import Arg, Dim, Nonfinite, Plain, Relation, Task, product_text
from kerneleval.tasks.define import FAR_BELOW, operator, products_below
from kerneleval.tasks.relations import permutation, resampling

Names = tuple[str, ...]
"""A shape in names of dims; ``one`` is 1, ``N_half`` half of N."""

_STAYS_FAR = {
    *("relu", "gelu", "gelu_tanh", "silu", "mish", "elu", "selu", "softplus", "hardswish", "leaky_relu", "hardshrink"),
    *("scale", "amplify", "divide", "double", "add_scalar", "sub_scalar", "bias_add", "bias_sub", "residual"),
    *("add", "sub", "mul", "sum_times"),
}
"""Steps behind which large numbers of one sign are as far from zero, in standard deviations, and of one size."""

_FAR_BIAS = 32.0
"""``Arg.far`` of a layer's bias: its product has a standard deviation of about 1."""

_ABOVE_ZERO = 0.1
"""The same before a minimum, which is that of channels padded with 0 if all others are above; also of a norm's bias."""

_MINIMA = ("min", "min_and_bias")

_FAR_BELOW_ZERO = -0.8
"""The same before what takes exponentials: a maximum that begins at 0 leaves nothing of them. The bias is -200."""

_EXPONENTIALS = ("softmax", "log_softmax", "logsumexp", "softmax_last", "log_softmax_last", "log_softmax_first")

_STAYS_BELOW = {"bias_add", "scale", "global_avg_pool", "max_pool"}
"""Steps behind which numbers of about -200 are far below 0 still."""

JUMPS = "its gradient jumps where a rounding error picks another extreme"


@dataclass(frozen=True, kw_only=True)
class Base:
    """What a chain begins with."""

    text: str
    dims: tuple[Dim, ...]
    args: tuple[Arg | Plain, ...]
    shape: Names
    """Of the result."""
    run: Callable[..., torch.Tensor]
    flops: str
    reduction: str = ""
    gathered: str = ""
    derive: Mapping[str, str | int] = field(default_factory=dict)
    normwise: bool = False
    complexity: int = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operator behind the base."""

    text: str
    """str, with ``{x}`` for what comes in."""
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
    centres: bool = False
    """Whether it takes off a mean over the dims that it sums over."""
    mixes: bool = False
    """Whether items of the batch meet."""
    least: int = 1
    """Fewest elements that it may be given of the dims summed over; half of the pooled dims' sizes."""
    complexity: int = 1


def chain(bases: Mapping[str, Base], steps: Mapping[str, Step], *names: str, **more: Any) -> Task:
    """A task from the names of a base and of the steps behind it, in their order; ``more`` is as ``define.operator``
    takes it, and ``large_half`` of its first argument (``Arg``). Raises KeyError for an unknown name.
    """
    base, behind = bases[names[0]], [steps[name] for name in names[1:]]
    centring, bias = _centring(base, names, behind)
    shape, shapes, args, counts = base.shape, list[Names](), _given(base, names, centring, bias), list[int]()
    for place, (name, step) in enumerate(zip(names[1:], behind, strict=True), 2):
        own = _moved(name, step, step.args(shape), _decisive(names[place:]))
        if not base.reduction and centring in behind[len(counts) + 1 :] and name != "sub":
            own = _far(base, own, centring, bias)
        args += [_renamed(arg, args) for arg in own]
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

    if any(arg.along for arg in args if isinstance(arg, Arg)):
        more.setdefault("rows", ("far_mean",))
        if base.reduction or centring is not behind[0]:  # running sums are beyond the bounds of gradients there
            more["forward_only"] = (*more.get("forward_only", ()), "far_mean")
    first: dict[str, Any] = {name: more.pop(name) for name in ("large_half", "large_half_backward") if name in more}
    args[:1] = [replace(arg, **first) for arg in args[:1] if isinstance(arg, Arg)]
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
        flops=_operations(base, behind, shapes),
        reduction=_longest(base.reduction, [over for _, over in sums if over]),
        gathered=base.gathered,
        normwise=base.normwise,
        where=_allowed(sums, (*shapes, shape)),
        no_backward=more.pop("no_backward", JUMPS if any(s.jumps for s in behind) else ""),
        nonfinite=_nonfinite(base, names),
        level=2,
        source=more.pop("source", "model"),
        complexity=max(base.complexity, *(s.complexity for s in behind)),
        relations=_relations(base, behind, args),
        **more,
    )


def _centring(base: Base, names: Names, behind: Sequence[Step]) -> tuple[Step | None, float]:
    """The step that takes off a mean or a maximum, or picks the least, of numbers that can be made far from 0, and how
    far a layer's bias is moved for that. What is far from 0 is spread by a product but not by its bias. So behind a
    layer the bias is moved, if the step goes over the bias.
    """
    place = next((i for i, name in enumerate(names[1:]) if name not in _STAYS_FAR), 0)
    found, shape = behind[place], base.shape
    shifts = {arg.shape for arg in base.args if isinstance(arg, Arg) and arg.name == "bias"}
    biases = shifts & {*found.over(shape)}
    if biases and names[place + 1] == "min":
        return found, _ABOVE_ZERO
    last = _decisive(names[1:])
    below = behind[names.index(last) - 1] if last in _EXPONENTIALS and names[-1] != "relu" else None
    if below and shifts & {*below.over(shape)}:
        return below, _FAR_BELOW_ZERO
    if not base.reduction:
        return found if found.centres else None, 0.0
    summed = any(step.over(shape) for step in behind[place + 1 :])  # what is normalised cancels in sums
    return found if found.centres and biases and not summed else None, _FAR_BIAS


def _far(base: Base, args: Sequence[Arg | Plain], centring: Step | None, bias: float) -> list[Arg | Plain]:
    """The arguments, of which those that decide how far from 0 it is have rows along what the step sums over."""
    if centring is None:
        return list(args)
    rows = " ".join(centring.over(base.shape))

    def placed(arg: Arg) -> Arg:
        if base.reduction:
            return replace(arg, along=arg.shape, far=bias) if arg.name == "bias" else arg
        return replace(arg, along=rows) if arg.role == "data" else arg

    return [placed(arg) if isinstance(arg, Arg) else arg for arg in args]


def _nonfinite(base: Base, names: Names) -> bool | Nonfinite:
    """``Task.nonfinite``: a product, also one with a mask, spreads a NaN; so do means by matrix products."""
    if base.reduction or "dropout" in names:
        return False
    return "channels" if "adaptive_avg_pool" in names else "nan"


def _decisive(names: Sequence[str]) -> str:
    """The first step that does not leave numbers far below 0 as they are; empty: all do."""
    return next((name for name in names if name not in _STAYS_BELOW), "")


def _given(base: Base, names: Names, centring: Step | None, bias: float) -> list[Arg | Plain]:
    """The base's arguments. Before exponentials the data are far below 0, or products without a bias are."""
    args = _far(base, base.args, centring, bias)
    if _decisive(names[1:]) not in _EXPONENTIALS or any(arg.name == "bias" for arg in args):
        return args
    given = [arg for arg in args if isinstance(arg, Arg)]
    if not base.reduction:
        return [replace(given[0], common=FAR_BELOW), *args[1:]]
    return [*products_below(given[0], given[1], over=base.reduction), *args[2:]]


def _moved(name: str, step: Step, own: Sequence[Arg | Plain], following: str) -> list[Arg | Plain]:
    """A step's own arguments. Before a minimum a norm's bias is far above 0; before exponentials it, or what is added,
    is far below.
    """
    exponentials = following in _EXPONENTIALS

    def placed(arg: Arg | Plain) -> Arg | Plain:
        if isinstance(arg, Arg) and name == "add" and exponentials:
            return replace(arg, common=FAR_BELOW)
        if not isinstance(arg, Arg) or arg.name != "bias" or not step.centres:
            return arg
        far = _FAR_BELOW_ZERO if exponentials else _ABOVE_ZERO if following in _MINIMA else 0.0
        return replace(arg, along=arg.shape, far=far) if far else arg

    return [placed(arg) for arg in own]


def _renamed(arg: Arg | Plain, taken: Sequence[Arg | Plain]) -> Arg | Plain:
    names, name, number = {a.name for a in taken}, arg.name, 2
    while name in names:
        name, number = f"{arg.name}{number}", number + 1
    return replace(arg, name=name)


def _operations(base: Base, behind: Sequence[Step], shapes: Sequence[Names]) -> str:
    """The base's operations and every step's for each element that comes in; shapes that are alike are added up."""
    each: dict[str, int] = {}
    for step, given in zip(behind, shapes, strict=True):
        size = product_text(" ".join(given))
        each[size] = each.get(size, 0) + step.each
    terms = [f"{times} * {size}" if times > 1 else size for size, times in each.items() if times]
    return " + ".join([base.flops] * (base.flops != "0") + terms) or "0"


def _derived(shapes: Sequence[Names]) -> dict[str, str | int]:
    halves = dict.fromkeys(name for shape in shapes for name in shape if name.endswith("_half"))
    return {"one": 1, **{name: f"{name.removesuffix('_half')} // 2" for name in halves}}


def _longest(base: str, sums: Sequence[Names]) -> str:
    """Terms of the longest sum of the chain; empty: nothing is summed."""
    terms = dict.fromkeys([*([base] if base else []), *(product_text(" ".join(over)) for over in sums)])
    return f"max(1, {', '.join(terms)})" if terms else ""


def _allowed(sums: Sequence[tuple[Step, Names]], shapes: Sequence[Names]) -> str:
    """No tensor on the way is empty, and every step that sums or pools has the elements that it needs."""
    names = dict.fromkeys(name for shape in shapes for name in shape if name != "one")
    needs = {f"{product_text(' '.join(over))} >= {step.least}": None for step, over in sums if step.least > 1}
    return " and ".join([f"min({', '.join(names)}, 1) > 0", *needs])


def _relations(base: Base, behind: Sequence[Step], args: Sequence[Arg | Plain]) -> tuple[Relation, ...]:
    """Items of the batch may change places, unless a step has them meet."""
    if any(step.mixes for step in behind):
        return ()
    first = base.shape[0]
    along = {i: 0 for i, a in enumerate(args) if isinstance(a, Arg) and a.shape.split()[:1] == [first]}
    return (permutation("batch_permutation", along, {0: 0}), resampling("batch_resampling", along, {0: 0}))
