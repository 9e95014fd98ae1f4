"""Edge values: what the fields of a ``TensorSpec`` ask for beyond its distribution, put into inputs that are drawn.

Borders of pieces, infinities that meet, ties, rows far from 0, numbers at the ends of a type's range. ``RULES`` says
for which distributions each is asked and by which field; ``inputs.py`` draws the values and applies the rules. What
each is there to find is in ``docs/inputs.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kerneleval.records import LARGE_SCALE, SMALL_SCALE, Case, TensorSpec

NONFINITE = (float("nan"), float("inf"), float("-inf"))

BORDER, _BORDER_HALF = 4, 16
"""One in so many numbers lies at a border. Borders are exact in bfloat16: of many, float16 cut to it would not show."""

_HALF_STEPS = 16
"""Multiples of a scale beside which ties lie, or of a divisor, at most."""
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MEETING = (*NONFINITE, 0.0, -0.0, 1.0)
_RESET = 64
"""One in so many gates is ``Arg.reset``."""
_IDLE = 8
"""One in so many rows is ``Arg.idle``."""
_FAINT, _FAINTER = 24.0, 13
"""Gradients of half of these are so many powers of two smaller, and up to so many more: as small as epsilons."""
_MOST_EXPONENT = 400
"""Of extreme data: fp64 holds their squares."""
_UNDERFLOW = (70, 91)
"""Range of the exponents by which extreme small data are smaller: fp32 holds them, and not their squares."""
_SMALL_SCALES = (20, 35)
"""The same of data whose scales a kernel may hold at a floor: products of scales are no subnormal numbers."""
_SMALLER = {"small": _UNDERFLOW, "floors": _SMALL_SCALES}
_MOST_ANGLE = 6
"""Exponent by which angles are larger at most: 6,400,000, of which a reduction by one rounded period is off by 0.2.
Three parts of the period leave nothing, under fused multiply-adds."""
_QUOTIENT = 26
"""Exponent by which small divisors are smaller than what they divide: a quotient of as many bits has more than fp32."""
_FARTHEST, _FAR_SCORES = 1e31, 3e7
"""How far from 0 rows of one sign lie: further than what kernels put for minus infinity; their sums are finite. Scores
are nearer: ``exp2(x * c - max * c)``, whose product is not rounded in a fused multiply-add, is off by 2 in the exponent
there, which cancels, and overflows at some 1e9.
"""
_FAR_QUERY, _NEAREST_KEY, _KEY_STEP = 1024.0, 4.0, 2.0**-7
"""Factor of queries whose scores are far from 0; the least number of their keys, and the distance of two. By the scale
``D ** -0.5`` the least scores are about ``46,341 * D ** 0.25``, and all are 1/512 of that apart.
"""
_MOST_KEYS = 1536
"""So many keys are below 16, up to where TF32 has all multiples of ``_KEY_STEP``."""
_FAR_STEP = 8192.0
"""Such scores are multiples of this: the largest ones are equal or far apart, however a product is rounded."""
_FURTHER, _FURTHER_FACTOR = 19_800.0, 10.0
"""What brings scores of -200 to -20,000, further than -10,000, and the factor of two that are multiplied. Numbers of
fp32 about 20,000 stay different by ``exp2(x * c - max * c)``; those about 25,000 do not.
"""
_APART = 1.125
"""Part of this at which the others begin: one may be the largest alone in half types, too."""
_HALF_FARTHEST = 6
"""One over the part of the largest float16 that they are there: divided by a temperature they are finite."""
_NEAR_EPSILON = 64.0
"""From an eighth of an epsilon to eight of it."""
_FAR_DOWN = -1000.0
"""A score beside 0 of which exp is 0 in every type."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The arguments of one call as they were drawn; rules change the tensors in place."""

    tensors: Sequence[tuple[TensorSpec, torch.Tensor]]
    by_name: Mapping[str, Any]
    """Plain values, too."""
    case: Case
    stream: Callable[[str, str], torch.Generator]
    """A secret generator for a purpose and a device."""


@dataclass(frozen=True)
class Rule:
    """When edge values are put in, and how; never under the ``expanded`` layout, where elements must be equal."""

    plant: Callable[[Drawn], None]
    asked: Callable[[TensorSpec], object]
    """Whether an argument asks for it."""
    distributions: tuple[str, ...] = ("standard",)
    least: int = 1
    """So many arguments must ask for it."""
    backward: bool = True
    """Whether in cases of gradients, too."""


def _meeting(drawn: Drawn) -> None:
    """Puts infinities, NaN, zeros and 1 at places that are the same in all floating arguments of a shape, so that every
    pair of them meets: equal and opposite infinities, each of them and NaN, a zero and each; the last of them where
    there is room.
    """
    alike: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for spec, value in drawn.tensors:
        if spec.role != "data" or spec.values in ("integers", "bits", "bool"):
            continue
        if spec.nonfinite in ("ieee", "limits") and value.is_floating_point() and value.itemsize > 1:
            alike.setdefault(tuple(value.shape), []).append(value)
    for shape, together in alike.items():
        room = (n for n in range(len(_MEETING), len(NONFINITE) - 1, -1) if 8 * n ** len(together) <= math.prod(shape))
        count = next(room, 0)
        if len(together) < 2 or not count:
            continue
        kinds = count ** len(together)
        generator = drawn.stream(f"meeting {shape}", str(together[0].device))
        places = torch.randperm(math.prod(shape), generator=generator, device=generator.device)[:kinds]
        for position, value in enumerate(together):
            digits = torch.arange(kinds, device=value.device) // count**position % count
            value.view(-1)[places] = value.new_tensor(_MEETING)[digits]


def _open_targets(drawn: Drawn) -> None:
    """Puts 0 at the place of each row of ``masked_apart`` that an index for each row names, where it is -inf: such a
    row's loss is infinite, and so is the mean.
    """
    for spec, value in drawn.tensors:
        if spec.nonfinite == "masked_apart" and value.numel():
            for other, places in drawn.tensors:
                if other.role == "index" and other.shape == value.shape[:-1]:
                    at = places[..., None].long()
                    named = value.gather(-1, at)
                    value.scatter_(-1, at, torch.where(named == -math.inf, torch.zeros_like(named), named))


def _even_rows(drawn: Drawn) -> None:
    """One in four rows (last dim) of arguments that are ``TensorSpec.even``: 2, 4, 8 or the most possible of its scores
    are 0, one after the other from a secret place on, and the others far below. A share of the row (an argument of as
    many rows) is 1, or less than 1 and what some of them have together where it may be more than 1, too.
    """
    for spec, value in drawn.tensors:
        if not spec.even or not value.numel() or value.shape[-1] < 2:
            continue
        generator = drawn.stream(f"even {spec.name}", str(value.device))
        rows, width = (*value.shape[:-1], 1), value.shape[-1]

        def secret(high: int, of: Sequence[int] = rows, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randint(high, of, generator=generator, device=generator.device)

        chosen, power, most = secret(4) == 0, secret(4) + 1, width.bit_length() - 1
        count = 1 << torch.where(power == 4, most, power.clamp(max=most))
        alike = (torch.arange(width, device=value.device) + secret(width)) % width < count
        value.copy_(torch.where(chosen, torch.where(alike, 0.0, _FAR_DOWN).to(value.dtype), value))
        some = (secret(1 << 30) % (count - 1) + 1) / count
        for other, share in drawn.tensors:
            if other.shape == value.shape[:-1]:
                part = some if other.values == "variance" else torch.ones_like(some)
                share.copy_(torch.where(chosen, part.to(share.dtype), share[..., None])[..., 0])


def _at_borders(drawn: Drawn) -> None:
    """Puts each of ``Arg.borders``, and what is ``beside`` it, at secret places, a quarter of all together and in
    float16 a sixteenth, and one number beyond them on each side; backward not at the 0 where a range begins: gradients
    are infinite there.
    """
    for spec, value in drawn.tensors:
        if spec.borders:
            if drawn.case.direction == "backward" and spec.differentiable and spec.values == "nonnegative":
                continue
            generator = drawn.stream(f"borders {spec.name}", str(value.device))
            given = value.new_tensor(spec.borders)
            if spec.beside:
                bits = given.view(BITS[value.itemsize])
                steps = torch.tensor([[-1], [0], [1]], dtype=bits.dtype, device=value.device) * (given != 0)
                given = (bits + steps).view(value.dtype).flatten()
            one_in = _BORDER_HALF if value.dtype == torch.float16 else BORDER
            kind = torch.randint(one_in * len(given), value.shape, generator=generator, device=value.device)
            value.copy_(torch.where(kind < len(given), given[kind.clamp(max=len(given) - 1)], value))
            beyond = (min(spec.borders) - 1, max(spec.borders) + 1)
            if spec.values == "normal" and value.numel() >= len(beyond):
                places = torch.randperm(value.numel(), generator=generator, device=value.device)[: len(beyond)]
                value.view(-1)[places] = value.new_tensor(beyond)


def _unset(drawn: Drawn) -> None:
    """Makes what is ``TensorSpec.unset`` 0 in half of the calls."""
    for spec, value in drawn.tensors:
        if spec.unset:
            generator = drawn.stream(f"unset {spec.name}", "cpu")
            value.mul_(int(torch.randint(2, (), generator=generator)))


def _idle(drawn: Drawn) -> None:
    """What ``Arg.idle`` says. The first such argument has the rows; others may have dims in front of them."""
    own = [(spec, value) for spec, value in drawn.tensors if spec.idle]
    if own and (first := own[0][1]).dtype != torch.float16:
        generator = drawn.stream("idle", str(first.device))

        def below(count: int) -> torch.Tensor:
            return torch.randint(count, (*first.shape[:-1], 1), generator=generator, device=first.device)

        rows = below(_IDLE) == 0
        rows &= ~rows.all()  # or nothing but zeros comes out
        faint = torch.exp2(-_FAINT - below(_FAINTER)) * (below(2) == 0)
        for spec, value in own:
            moved = spec.name.startswith("grad") and spec.values == "normal"
            value.copy_(torch.where(rows, value * faint if moved else 0, value))


def _resets(drawn: Drawn) -> None:
    """Puts ``Arg.reset`` at secret places of data in half types, and of others at half of the last steps."""
    for spec, value in drawn.tensors:
        if spec.reset and value.numel():
            generator = drawn.stream(f"resets {spec.name}", str(value.device))
            most, (steps,) = _RESET if value.itemsize == 2 else 2, spec.along
            gone = torch.randint(most, value.shape, generator=generator, device=value.device) == 0
            if value.itemsize > 2:
                gone.narrow(steps, 0, value.shape[steps] - 1).fill_(False)
            value.masked_fill_(gone, spec.reset)


def _half_steps(drawn: Drawn) -> None:
    """What ``Arg.ties`` says, of whole multiples that fit every half type, beside which those of e4m3fn are few."""
    for spec, value in drawn.tensors:
        if not spec.ties or not value.numel():
            continue
        generator = drawn.stream(f"ties {spec.name}", str(value.device))
        if int(torch.randint(2, (), generator=generator, device=generator.device)):
            continue
        step = drawn.by_name[spec.ties]
        if isinstance(step, torch.Tensor):
            step.copy_(torch.exp2(step.double().log2().round()))
        multiples = torch.randint(-_HALF_STEPS, _HALF_STEPS, value.shape, generator=generator, device=value.device)
        chosen = torch.randint(4, value.shape, generator=generator, device=value.device) == 0
        halves = (multiples + 0.5) * (step.double() if isinstance(step, torch.Tensor) else step)
        value.copy_(torch.where(chosen, halves.to(value.dtype), value))


def _multiples(drawn: Drawn) -> None:
    """What ``Arg.multiple_of`` says: divisors are numbers of fp32, so that their multiples are exact."""
    for spec, value in drawn.tensors:
        if spec.multiple_of and value.dtype == torch.float64:
            generator = drawn.stream(f"multiples {spec.name}", str(value.device))
            divisor = drawn.by_name[spec.multiple_of]
            divisor.copy_(divisor.float())
            times = torch.randint(-_HALF_STEPS, _HALF_STEPS, value.shape, generator=generator, device=value.device)
            chosen = torch.randint(4, value.shape, generator=generator, device=value.device) == 0
            value.copy_(torch.where(chosen, times * divisor, value))


def _one_sided(drawn: Drawn) -> None:
    """What ``Arg.one_sided`` says: an eighth of the rows have no number below 0, and as many none above; of what is a
    row as a whole, a quarter of the calls.
    """
    for spec, value in drawn.tensors:
        if spec.one_sided and value.numel():
            generator = drawn.stream(f"one-sided {spec.name}", str(value.device))
            whole = spec.one_sided == "all"
            rows = (1,) * value.ndim if whole else (*value.shape[:-1], 1)
            kind = torch.randint(4 if whole else 8, rows, generator=generator, device=value.device)
            distance = torch.rand(rows, generator=generator, device=value.device).to(value.dtype)
            above = value.abs() + value.abs().amax(tuple(range(value.ndim)) if whole else -1, keepdim=True) * distance
            value.copy_(torch.where(kind == 0, above, torch.where(kind == 1, -above, value)))


def _last_places(drawn: Drawn) -> None:
    """In every second row, from the first or the second one on: indices of one place in each row name the least
    element, which has the largest rank, numbers of places are all of the row's, and one of the numbers that are sought
    in the row is above all of its elements.
    """
    for row, value in drawn.tensors:
        for spec, places in drawn.tensors if row.along and value.ndim > 1 and value.numel() else ():
            generator = drawn.stream(f"last places {spec.name}", "cpu")
            if spec.role == "index" and spec.shape == value.shape[:-1] and spec.high - spec.low == value.shape[-1]:
                first = int(torch.randint(2, (), generator=generator)) % len(places)
                places[first::2] = spec.high - 1 if spec.low else value[first::2].argmin(-1)
            elif spec.edges and row.edges and spec.shape[:-1] == row.shape[:-1] and 0 < spec.shape[-1] < row.shape[-1]:
                first, place = torch.randint(1 << 30, (2,), generator=generator).tolist()
                largest = value[first % min(2, len(value)) :: 2].amax(-1)
                places[first % min(2, len(value)) :: 2, ..., place % places.shape[-1]] = 1 + largest + largest.abs()


def _far_scores(drawn: Drawn) -> None:
    """Draw keys as ``Arg.apart`` says, and enlarge the queries: a number put for the scores of hidden keys may be the
    largest then. Keys are equal along all other dims and exact in TF32, so their order survives every rounding. Where
    there are more keys than ``_MOST_KEYS``, nothing changes.
    """
    tensors = [(spec, value) for spec, value in drawn.tensors if spec.common]
    keys = [(spec, value) for spec, value in tensors if spec.apart and value.dtype == torch.float32]
    if not keys or int(torch.randint(2, (), generator=drawn.stream("far scores", "cpu"))):
        return
    for spec, value in keys:
        sizes = [count if dim in spec.apart else 1 for dim, count in enumerate(value.shape)]
        if math.prod(sizes) > _MOST_KEYS:
            return
        generator = drawn.stream(f"order of {spec.name}", str(value.device))
        order = torch.randperm(math.prod(sizes), generator=generator, device=value.device).view(sizes)
        value.copy_((_NEAREST_KEY + order * _KEY_STEP).expand(value.shape))
    for spec, value in tensors:
        if spec.common_signs:
            value.mul_(_FAR_QUERY)


def _further_below(drawn: Drawn) -> None:
    """In every second call scores lie about -20,000 in place of -200; so do those that products of two arguments, or a
    bias of a layer or norm, bring there, and channels above 0 before a minimum lie about 20,000. Not in half types.
    """
    far_mean = drawn.case.distribution == "far_mean"
    moved = [
        (spec, value)
        for spec, value in drawn.tensors
        if value.is_floating_point() and value.itemsize > 2
        if (spec.role == "weight" and spec.along and abs(spec.far) < 1 if far_mean else spec.common)
    ]
    if not moved or int(torch.randint(2, (), generator=drawn.stream("further below", "cpu"))):
        return
    if far_mean or all(spec.scores for spec, _ in moved):
        for _, value in moved:
            value.add_(value.sign().mul_(_FURTHER))
    elif [(spec.common > 0, spec.common_signs) for spec, _ in moved] == [(True, False), (False, False)]:
        for _, value in moved:
            value.mul_(_FURTHER_FACTOR)


def _all_different(drawn: Drawn) -> None:
    """Lets whole numbers differ from those of the argument before at every place: what differs is counted."""
    whole = [value for spec, value in drawn.tensors if spec.values == "integers"]
    for one, other in itertools.pairwise(whole):
        other.copy_(one ^ 1)


def _extreme(drawn: Drawn) -> None:
    """Powers of two, the same for all arguments that are ``TensorSpec.extreme``: quotients and what is exact stay so.
    Large data go up to the end of the range at half of the places, and lie there at one in eight; small data, but those
    of float16, are all so small that no square of them is left; unless only ``"large"`` or ``"small"`` ones are wanted;
    ``"floors"`` are less small. ``"angles"`` go up to 64 times as far, and lie there at one in eight; backward, too.
    """
    distribution, backward = drawn.case.distribution, drawn.case.direction == "backward"
    quotients = distribution == "small_scale" and any(spec.divides for spec, _ in drawn.tensors)
    for spec, value in drawn.tensors:
        if spec.extreme in (False, "rows") or (backward and spec.extreme != "angles"):
            continue
        if quotients:
            value.mul_(2.0**-_QUOTIENT if spec.divides and value.dtype != torch.float16 else 1.0)
            continue
        generator = drawn.stream(f"extreme {spec.shape}", str(value.device))
        if distribution == "large_scale" and spec.extreme not in _SMALLER:
            large = spec.large_half if value.dtype == torch.float16 else LARGE_SCALE
            most = _MOST_ANGLE if spec.extreme == "angles" else most_exponent(value.dtype, large)
            if spec.extreme == "angles" and value.dtype != torch.float32:  # kernels in half types may round the angle
                continue
            places = torch.randint(-most, most + 1, value.shape, generator=generator, device=value.device)
            end = torch.randint(8, value.shape, generator=generator, device=value.device) == 0
            places.masked_fill_(end, most)
            value.mul_(torch.exp2(places.clamp_(min=0).double()).to(value.dtype))
        elif distribution == "small_scale" and value.dtype != torch.float16 and spec.extreme in (True, *_SMALLER):
            least, most = _SMALLER.get(str(spec.extreme), _UNDERFLOW)
            value.mul_(2.0 ** -int(torch.randint(least, most, (), generator=generator, device=value.device)))


def most_exponent(dtype: torch.dtype, scale: float) -> int:
    """The largest power of two by which normal numbers times a scale may be multiplied, with room for a sum of two."""
    return int(min(math.log2(torch.finfo(dtype).max), _MOST_EXPONENT) - math.log2(scale)) - 4


def _far_rows(drawn: Drawn) -> None:
    """In every second call, all rows of an argument whose ``extreme`` is ``"rows"`` lie far below or above 0, with one
    element that is the largest by far. Where it names no rows, or the operator takes all together, those of half of
    these calls all lie below.
    """
    for spec, value in drawn.tensors:
        if spec.extreme != "rows" or spec.role != "data":
            continue
        generator = drawn.stream(f"far rows {spec.name}", str(value.device))
        kind = int(torch.randint(4, (), generator=generator, device=generator.device))
        if kind < 2 or not value.is_floating_point() or not value.numel():
            continue
        row = spec.along or (value.ndim - 1,)
        rows = [1 if dim in row else count for dim, count in enumerate(value.shape)]
        side = torch.randint(2, rows, generator=generator, device=value.device) * 2 - 1
        apart = (spec.along or spec.common_signs) and spec.one_sided != "all"
        side = side if apart or kind == 2 else side.new_tensor(-1)
        large = spec.large_half if value.dtype == torch.float16 else LARGE_SCALE
        far = (value.double().abs() / (4 * large * spec.scale) + _APART) * side
        first = torch.rand(value.shape, generator=generator, device=value.device)
        far = torch.where(first == first.amax(row, keepdim=True), torch.where(side < 0, -1.0, 3.0), far)
        farthest = _FAR_SCORES if spec.scores else _FARTHEST
        value.copy_(far * min(farthest, torch.finfo(value.dtype).max / _HALF_FARTHEST))
        if spec.scores and value.dtype == torch.float32:
            value.copy_((value / _FAR_STEP).round() * _FAR_STEP)


def _tiny_rows(drawn: Drawn) -> None:
    """Half of the rows (last dim) of arguments with an ``epsilon`` have norms down to an eighth of it; half of these,
    up to eight of it. Backward not in half types: gradients jump there, and norms are rounded to the type.
    """
    for spec, value in drawn.tensors:
        if not spec.epsilon or not value.numel() or value.dtype == torch.float16:
            continue
        if drawn.case.direction == "backward" and (value.itemsize == 2 or not spec.epsilon_backward):
            continue
        generator = drawn.stream(f"tiny rows {spec.name}", str(value.device))
        unit = torch.rand((*value.shape[:-1], 1), generator=generator, device=value.device, dtype=torch.float64)
        about = spec.epsilon / (SMALL_SCALE * spec.scale * math.sqrt(value.shape[-1]))
        least = math.log(min(1.0, about / 8))
        near = (least + (4 * unit - 3) * math.log(_NEAR_EPSILON)).clamp_(max=0)
        value.mul_(torch.exp(torch.where(unit < 0.75, (4 * unit - 2).clamp_(min=0) * least, near)).to(value.dtype))


RULES: tuple[Rule, ...] = (
    Rule(_meeting, lambda spec: spec.nonfinite in ("ieee", "limits"), ("nonfinite",), least=2),
    Rule(_open_targets, lambda spec: spec.nonfinite == "masked_apart", ("nonfinite",)),
    Rule(_even_rows, lambda spec: spec.even),
    Rule(_at_borders, lambda spec: spec.borders),
    Rule(_unset, lambda spec: spec.unset),
    Rule(_idle, lambda spec: spec.idle),
    Rule(_resets, lambda spec: spec.reset),
    Rule(_half_steps, lambda spec: spec.ties),
    Rule(_multiples, lambda spec: spec.multiple_of),
    Rule(_one_sided, lambda spec: spec.one_sided),
    Rule(_last_places, lambda spec: spec.along, ("ordered",)),
    Rule(_far_scores, lambda spec: spec.apart, ("common",), backward=False),
    Rule(_further_below, lambda spec: spec.common or abs(spec.far) < 1, ("common", "far_mean"), backward=False),
    Rule(_all_different, lambda spec: spec.values == "integers", ("full",)),
    Rule(_extreme, lambda spec: spec.extreme not in (False, "rows"), ("large_scale", "small_scale")),
    Rule(_far_rows, lambda spec: spec.extreme == "rows", ("large_scale",), backward=False),
    Rule(_tiny_rows, lambda spec: spec.epsilon, ("small_scale",)),
)
"""In the order in which they are applied."""
