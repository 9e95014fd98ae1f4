"""What the wrong cases of a verdict have in common and no right case has, by comparing the cases alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneleval.judge.probes.cells import NOT_RUN
from kerneleval.records import Case, Failed, Finding, Outcome, Passed, Task
from kerneleval.tasks.shapes import DEGENERATE

_BY_CHANCE = 20
"""Of so many comparisons at most one finds a trait that parts the cases by chance. Equal sizes count as one case."""

_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)
_MOST_TOLD = 3


@dataclass(frozen=True)
class _Trait:
    text: str
    has: Callable[[Case], bool]
    what: str = "size"
    """``direction``, ``dtype``, ``layout``, ``distribution`` or ``size``."""


def shared(task: Task, outcomes: Mapping[Case, Outcome]) -> list[Finding]:
    """One finding that names what all cases with the first failure's reason have in common and no right case has: a
    direction, dtype, layout or distribution, a size of a dim, or one of each together. Empty where nothing is, or where
    the cases are too few to tell it from chance. Right cases of zeros, of constants or without elements do not count.
    """
    reason = next((o.reason for o in outcomes.values() if isinstance(o, Failed) and o.reason != "unsupported"), None)
    failed = [(c, o) for c, o in outcomes.items() if isinstance(o, Failed) and not o.message.startswith(NOT_RUN)]
    wrong = [c for c, o in failed if o.reason == reason]
    right = [c for c, o in outcomes.items() if isinstance(o, Passed) and _tells(task, c)]
    for common, beside, among in _contrasts(task, wrong, right):
        if found := _parting(common, wrong, beside):
            text = f"all {len(wrong)} cases with {reason}, and none of {len(beside)} right ones{among}, have "
            text += "; equally: ".join(found[:_MOST_TOLD])
            return [Finding(check="cause", level="info", message=text, evidence={"cases": [c.key for c in wrong]})]
    return []


def _contrasts(
    task: Task, wrong: Sequence[Case], right: Sequence[Case]
) -> Iterator[tuple[list[_Trait], list[Case], str]]:
    """What is compared, in order: traits, the right cases that must not have them, and which these are, in words."""
    data = list(_of_data(wrong))
    yield data, [*right], ""
    plain = [case for case in right if case.distribution == "standard"]  # other data hide what is wrong at some sizes
    yield [*_of_sizes(task, wrong, plain)], plain, " of standard data"
    for trait in (trait for trait in data if all(map(trait.has, wrong))):
        beside = [case for case in (right if trait.what == "distribution" else plain) if trait.has(case)]
        yield [*_of_sizes(task, wrong, beside)], beside, f" with {trait.text}"


def _parting(traits: Sequence[_Trait], wrong: Sequence[Case], right: Sequence[Case]) -> list[str]:
    """The texts of the traits that all wrong cases have and no right one; none where one of so many traits might do so
    by chance. Without a link to the error, each choice of the wrong ones among all cases is as likely.
    """
    m, n = (len({case.dims for case in cases}) for cases in (wrong, right))
    if not right or math.comb(m + n, n) < _BY_CHANCE * len(traits):
        return []
    return [t.text for t in traits if all(map(t.has, wrong)) and not any(map(t.has, right))]


def _tells(task: Task, case: Case) -> bool:
    return case.distribution not in DEGENERATE and task.bytes(case.dims_map, case.dtype) > 0


def _no_multiple(step: int) -> Callable[[int], bool]:
    return lambda size: size % step != 0


def _of_data(wrong: Sequence[Case]) -> Iterator[_Trait]:
    """Traits beside the sizes, as the wrong cases have them."""

    def among(what: str, *values: object, but: bool = False) -> Callable[[Case], bool]:
        return lambda case: (getattr(case, what) in values) != but

    for what in ("direction", "dtype", "layout", "distribution"):
        for value in sorted({getattr(case, what) for case in wrong}):
            yield _Trait(f"the {what} {value}", among(what, value), what)
    for what, plain in (("layout", "contiguous"), ("distribution", "standard")):
        yield _Trait(f"another {what} than {plain}", among(what, plain, but=True), what)


def _of_sizes(task: Task, wrong: Sequence[Case], right: Sequence[Case]) -> Iterator[_Trait]:
    """Traits of the size of each dim: on which side of a threshold it lies, and divisibility."""

    def where(name: str, holds: Callable[[int], bool]) -> Callable[[Case], bool]:
        return lambda case: holds(case.dims_map[name])

    for name in (dim.name for dim in task.dims if wrong and right):
        ours, theirs = ([case.dims_map[name] for case in cases] for cases in (wrong, right))
        yield _Trait(f"{name} of {min(ours)} or more (right up to {max(theirs)})", where(name, min(ours).__le__))
        yield _Trait(f"{name} of {max(ours)} or less (right from {min(theirs)} on)", where(name, max(ours).__ge__))
        yield _Trait(f"{name} above 1", where(name, (1).__lt__))
        yield _Trait(f"{name} that is no power of two", where(name, lambda size: size & (size - 1) != 0))
        for step in _MULTIPLES:
            yield _Trait(f"{name} that is no multiple of {step}", where(name, _no_multiple(step)))
