"""Other numbers for the constructor of a problem file, which a candidate learns by its own arguments alone: an epsilon,
a slope, the k of a top-k, a stride.

Sizes are varied by ``sweep.py``. What else a number may be nothing says, so each is tried in a miniature.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from kerneleval.records import TensorSpec, UsageError
from kerneleval.tasks.formats.agreement import agrees
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import PERCENT
from kerneleval.tasks.formats.soundness import depends
from kerneleval.tasks.formats.surveys import MINIATURE_BYTES, MINIATURE_FLOPS, Surveys

_CHOSEN = re.compile(
    r"kernel|stride|pad(ding)?(\[\d\])?$|dilat|group|pool|window|factor|top_?k|(^|_)k$|sink|(^|_)(iter|order)"
    r"|degree|radius|shift|scale|repeat|power|(?<!dis)patch|neighbo|reduction|(^|_)ratio",
    re.I,
)
"""Names of whole numbers that say what the operator is. Others may say what a shape says, too: blocks, lengths."""
_KINDS = re.compile(r"(^|_)(dims?|axis|axes|bits?|mode|type|id|idx|index|ndim)(\[|$)", re.I)
"""Names of whole numbers that say which operator it is: those stay, and a candidate may have them written in."""
_HEADS = re.compile(r"head", re.I)
"""The same where no argument has that size behind its first dim."""

_FAINT = 1e-3
"""Smaller numbers are epsilons, which become 0.01, or 1000 times as large: beside numbers about 1 they would not show.
"""


def other_numbers(surveys: Surveys, mini: Mapping[str, int], sizes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Numbers of the constructor that may be others, each by its dim (:attr:`ProblemFile.constructor`): those that
    follow from none of the ``sizes``, with which the file runs, is near fp64 and gives other outputs or takes other
    weights. ``mini``: dims of a miniature.
    """
    file, found = surveys.file, dict[str, int]()
    own = file.constructor
    follow = {name for dims in sizes for name, value in file.numbers(dims).items() if value != own.get(name)}
    base = surveys.at(mini)
    if not own or base.bytes > MINIATURE_BYTES or base.flops > MINIATURE_FLOPS:
        return found
    given = [spec.shape for spec in surveys.at({}).arguments if isinstance(spec, TensorSpec)]
    shapes = {size for shape in given for size in shape[1:]}
    for name in (one for one in own if one not in follow):
        for other in _proposed(name, own[name], shapes):
            if _takes(surveys, mini, found, {name: other}):
                found[name] = other
                break
    return found


def _proposed(name: str, own: float, shapes: set[int]) -> Iterator[int]:
    """What may stand in place of a number, or as many hundredths of it."""
    if type(own) is float:
        if math.isfinite(own) and 0 < abs(own) < _FAINT:
            yield from (round(1 / abs(own)), 100_000)
        if math.isfinite(own) and own:
            yield 75
    elif _KINDS.search(_of(name)):
        return
    elif _CHOSEN.search(_of(name)) or (_HEADS.search(_of(name)) and own not in shapes):
        least, whole = 0 if "pad" in name else 1, int(own)
        others: tuple[int, ...] = (whole + 1, whole - 1, 2 * whole, whole // 2)
        if "power" in name:  # odd ones and even ones are other functions of negative numbers
            others = (whole + 2, whole - 2)
        elif "scale" in name:  # larger, what is scaled by the largest number of a type overflows it
            others = (whole - 1, whole // 2, whole + 1, 2 * whole)
        yield from (v for v in dict.fromkeys(others) if whole >= least <= v != whole)


def _of(name: str) -> str:
    return name.partition("[")[2].removesuffix("]").removesuffix(PERCENT)


def _takes(surveys: Surveys, mini: Mapping[str, int], found: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether the file takes another number beside those found so far, and does something else with it."""
    now, base = surveys.probe({**found, **other}), surveys.at({})
    if now is None or [spec.name for spec in now.weights] != [spec.name for spec in base.weights]:
        return False
    if now.bytes > 2 * base.bytes or now.flops > 2 * base.flops:
        return False
    before, after = ({**mini, **found}, {**mini, **found, **other})
    small = surveys.probe(after)
    if small is None or small.bytes > 2 * MINIATURE_BYTES or small.flops > 2 * MINIATURE_FLOPS:
        return False
    try:
        own, problem = (ModuleProblem(surveys.file, dims, "cpu") for dims in (before, after))
        weights = problem.weights(1)
        if not agrees(problem, weights, "standard"):
            return False
        if surveys.at(before).form != small.form:
            return True
        args = problem.inputs(1)
        return any(depends(a, b) for a, b in zip(own.oracle(args, weights), problem.oracle(args, weights), strict=True))
    except UsageError:
        return False
