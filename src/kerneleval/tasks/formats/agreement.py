"""Whether a problem file means the same in its own types and in fp64, on given inputs and weights; how far it takes
others than it draws, and what it selects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerneleval.records import UsageError
from kerneleval.tasks.formats.changes import Vary
from kerneleval.tasks.formats.jumps import Flips, Noise, jumps, noisy, too_many
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.soundness import AGREE, allowed, astray, limit_of, opened
from kerneleval.tasks.formats.traits import is_inexact

_NOISY = 19
"""Bits that are left to fp32 where it is asked which elements lie beside a step."""

_BEYOND = (-1 / 16, 1 / 16)
"""Parts of themselves by which numbers change to see whether a file takes others than it draws."""

_DRAWS = {"outlier": 4, "padded": 4}
"""How often inputs are drawn to see whether a problem is sound, where their signs or zeros matter."""


_TIED = 32
"""So many units in the last place apart, two numbers count as equal where the larger one is selected."""
SEEN = frozenset(("topk", "sort", "argsort", "argmax", "argmin", "max", "min"))
"""Operators of which it is seen whether they select among equal numbers."""


def selects_among_equals(problem: ModuleProblem) -> bool:
    """Whether a ``topk`` has equal numbers to choose among under ``large_scale``, as where sigmoids are all 1: any
    order of these is right.
    """
    with Selections() as selections:
        problem.reference(problem.inputs(1, "large_scale"), problem.weights(1, "large_scale"))
    return "topk" in selections.equal


class Selections(TorchDispatchMode):
    """Notes whether an infinity is selected, as where more are taken than a mask leaves: any may come last there. And
    which operators select equal numbers, or one of several (``equal``); of those in :data:`SEEN`.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.masked = False
        self.equal: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        out, name = func(*args, **options), func.overloadpacket.__name__
        if name not in SEEN or (name in ("max", "min") and not isinstance(out, tuple)):
            return out
        given = dict(zip(("input", "k", "dim", "largest"), args, strict=False)) | options
        tensor = given["input"]
        if name == "topk":
            self.masked |= bool(out[0].isinf().any())
            found = _among_equals(tensor, out[0], given.get("dim", -1), given.get("largest", True))
        else:
            usual = -1 if "sort" in name else None  # which PyTorch leaves out here
            dim = next((a for a in (*args[1:], options.get("dim")) if type(a) is int), usual)
            lines = tensor.reshape(-1) if dim is None else tensor.movedim(dim, -1) if tensor.dim() else tensor
            found = _has_equals(lines, every="sort" in name, largest="max" in name)
        self.equal |= {name} if found else set()
        return out


def _has_equals(lines: torch.Tensor, *, every: bool, largest: bool) -> bool:
    """Whether two numbers of a line are equal, or two are the largest or smallest there. Of such two a few roundings
    decide which is: as where a mask has taken 100,000 off a whole row.
    """
    if lines.numel() < 2 or lines.dtype == torch.bool:
        return lines.numel() > 1
    if every:
        return bool((lines.sort(-1).values.diff() == 0).any())
    end = lines.amax(-1, keepdim=True) if largest else lines.amin(-1, keepdim=True)
    units = _TIED * torch.finfo(lines.dtype).eps if is_inexact(lines) else 0
    near = (lines - end).abs() <= lines.abs().amax(-1, keepdim=True) * units
    return bool(((near | (lines == end)).sum(-1) > 1).any())


def _among_equals(given: torch.Tensor, taken: torch.Tensor, dim: int, largest: bool) -> bool:
    """Whether of the numbers taken along a dim two are equal, or one is equal to another that was not."""
    if not taken.dim() or not taken.numel():
        return False
    last = taken.amin(dim, keepdim=True) if largest else taken.amax(dim, keepdim=True)
    several = (given >= last if largest else given <= last).sum(dim) > taken.shape[dim]
    return bool(several.any()) or bool((taken.sort(dim).values.diff(dim=dim) == 0).any())


def limit_changes(problem: ModuleProblem) -> None:
    """Have ``problem.vary`` and ``problem.vary_weights`` say how far the file takes other numbers in what is alike
    under every seed, and ``problem.bounded`` whether its other numbers may leave their range.
    """
    frozen = ((1, 0), (2, 0), (3, 0)) if problem.traits.frozen else ((1, 0),)
    for name, seeds in ("vary", frozen), ("vary_weights", ((1, 1), (1, 2))):
        for way in get_args(Vary):
            setattr(problem, name, way)
            if all(agrees_on(problem, problem.inputs(one), problem.weights(other)) for one, other in seeds):
                break
        else:
            setattr(problem, name, "freely")  # the file is not near fp64 as it stands either
    args, weights = problem.inputs(1), problem.weights(1)

    def takes(factor: float) -> bool:
        scaled = [a * factor if is_inexact(a) else a for a in args]
        return agrees_on(problem, scaled, {n: w * factor if is_inexact(w) else w for n, w in weights.items()})

    problem.bounded = not all(takes(1 + part) for part in _BEYOND)


def agrees(problem: ModuleProblem, weights: Mapping[str, torch.Tensor], distribution: str) -> bool:
    """Whether the file is near fp64 on inputs of a distribution; see :func:`agrees_on`."""
    draws = _DRAWS.get(distribution, 1)
    try:
        drawn = [problem.inputs(seed, distribution) for seed in range(1, 1 + draws)]
    except UsageError:  # get_inputs() takes no such outcomes
        return False
    return all(agrees_on(problem, args, weights, distribution) for args in drawn)


def agrees_on(
    problem: ModuleProblem, args: Sequence[Any], weights: Mapping[str, torch.Tensor], distribution: str = "standard"
) -> bool:
    """Whether the file runs, gives finite outputs and is near fp64, but for elements that lie beside a step."""
    try:
        native, exact = problem.reference(args, weights), problem.oracle(args, weights)
    except UsageError:  # the file itself takes no such values
        return False
    floating = [opened(t) for t in (*native, *exact) if t.is_floating_point()]
    if not all(bool(t.isfinite().all()) for t in floating):
        return False
    limit = limit_of((*args, *weights.values(), *native), problem.inside)
    wide = allowed(limit, distribution)
    if astray(native, exact, wide) is None:
        return True
    bits = _NOISY if limit <= AGREE else 3 - round(math.log2(limit))  # the limit is eight steps of a half type
    key = ("tried", problem.file.hash, distribution, str([tuple(out.shape) for out in exact]))
    flips = Flips(
        lambda turn: noisy(problem, args, weights, Noise(bits, turn)),
        lambda: jumps(problem, distribution, key),
        exact,
        lambda: [
            limit / 16 * opened(out).abs().max() if out.is_floating_point() and out.numel() else None for out in exact
        ],
    )
    right = [flips.nearest(index, own) for index, own in enumerate(native)]
    return astray(right, exact, wide) is None and not too_many(native, right)
