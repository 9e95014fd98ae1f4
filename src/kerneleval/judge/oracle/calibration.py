"""Bounds of outputs: of floating ones by oracle, native error and response to moved inputs; of others by equality.

Judged by equality are integers, positions of elements, counts, and copies of an input. It compares nothing:
``comparison.py`` does. The rule is in ``docs/correctness.md``, its constants in ``expectation.py``; outputs that are
drawn get a law by ``distribution.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kerneleval.judge.oracle.expectation import (
    BULK_SHARE,
    CLEAR,
    ELEMENT,
    EXPLAINED,
    MOST_INTERMEDIATE,
    NATIVE,
    POOLED,
    SHARED,
    SPREAD,
    Bounds,
    Expected,
    Floor,
    Kind,
    Scales,
    as_real,
    distance,
    finite_limit,
    is_eight_bit,
    opened,
    same,
    slack_of_count,
    steps,
    tiles,
)

_ROW = 64
"""Shortest last dim whose rows have scales of their own."""

_SIZES = ("rms", "native_rms", "native_max", "floor_rms", "floor_max", "mean", "response")
"""Those of the scales that follow the output's."""

_DOUBLE = 2.0**-24
"""Below this unit roundoff the oracle is rounded as native is, and native shows no error of its own."""

_SAMPLE = 1 << 18
"""Elements over which the distances of trivial answers are taken."""

_NOTHING = 2.0**-44
"""An output that is nowhere larger than this part of the terms it sums is rounding noise of fp64, about 2^-53 each."""

_NOISE = 2.0**-16
"""What cancelled is a smaller part than this of what comes out when every input moves by ``PROBE`` on its own."""

_LOOKED_AT = 2.0**-10
"""Larger outputs are something: the arguments are not looked at."""

_MOST_GAIN = 100
"""Largest exponent of a gain."""

_HEADROOM = 2.0**10
"""Largest oracle magnitude after scaling: squares of errors and of values both stay within fp32."""


def bounded(
    oracle: torch.Tensor,
    native: torch.Tensor,
    probed: torch.Tensor,
    floor: Floor,
    *,
    args: Sequence[Any] = (),
    length: int = 1,
    pool: Sequence[Scales] = (),
    independent: int | None = None,
) -> Expected:
    """A floating output with its bounds.

    Args:
        oracle: fp64 (complex128) output of the reference.
        native: output in the case's dtype.
        probed: output on inputs changed by ``tolerances.PROBE``, in fp32 or wider.
        args: arguments, whose copies are trivial answers.
        length: terms summed into one element.
        pool: scales of the same output on other inputs, for outputs with few elements.
        independent: how many of the elements are no repetitions, by :func:`independent`; None: all.
    """
    oracle = held(oracle, native)
    if native.numel() == 0:
        return Expected(kind="float", oracle=oracle, native=native)
    measured = _measured(oracle, native, probed, floor, args, length)
    floor, gain, finite = measured.floor, measured.gain, measured.finite
    scales = _pooled(measured.scales, [_times(s, gain) for s in pool])
    slack = _slack(measured, scales, pooled=bool(pool))
    count = native.numel() if independent is None else independent
    single = floor.conditioning == 0 and 1 in native.shape  # the scale of its one row, image or filter is in all
    unmeasured = bool(floor.normwise) and floor.unit < _DOUBLE
    trivial = _trivial(as_real(oracle), args, gain, scales, floor) if finite else ()
    nearest, distance = min(trivial, key=lambda found: found[1], default=("", math.inf))
    bounds = Bounds(
        gain=gain,
        shape=(measured.local.shape[0], measured.local.shape[1]),
        local=measured.local,
        slack=slack,
        relative=floor.relative,
        rms=slack_of_count(_carrying(measured.local, count) if floor.uneven else count)
        * max(NATIVE * scales.native_rms, floor.rms * scales.floor_rms),
        bulk=1.0 if count < POOLED or unmeasured else min(1.0, max(BULK_SHARE, 2 * scales.bulk)),
        variation=EXPLAINED * distance,
        nearest=nearest,
        special=not finite,
        limit=finite_limit(as_real(native).dtype),
        scales=scales,
        typical=_mean_square([scales.rms, *(s.rms * gain for s in pool)]),
        independent=count,
        length=length,
        bias=_bias(floor, scales, gain) if finite and count >= POOLED and not single else math.inf,
        common=SHARED * floor.unit * scales.mean * math.sqrt(min(1.0, length / count)),
        shared=floor.conditioning == 0,
    )
    return Expected(kind="float", oracle=oracle, native=native, bounds=bounds)


def following(expected: Expected, upstream: int) -> Expected:
    """The bounds of a gradient that is computed from so many elements of the upstream gradients (0: an output): no more
    of its errors are independent, and those along a dim may be one.
    """
    bounds = expected.bounds
    if bounds is None or not upstream:
        return expected
    more = math.sqrt(max(1.0, bounds.independent / (bounds.length * upstream)))
    return replace(expected, bounds=replace(bounds, common=bounds.common * more, shared=True))


def _carrying(floors: torch.Tensor, count: int) -> float:
    """How many of ``count`` elements carry the rms of an error that is as large as the floor of each: few, where a few
    floors are far above the others. Then the rms scatters as over so few (Kish's effective size, of the squares).
    """
    squares = (floors / floors.amax().clamp_min(1e-30)).square_()
    return count * float(squares.mean()) ** 2 / max(float(squares.square().mean()), 1e-30)


def within_floor(expected: Expected) -> bool:
    """Whether every element of the native output is as near to the oracle as its floor alone allows."""
    bounds = expected.bounds
    if bounds is None:
        return True
    native, oracle = (as_real(t).contiguous().view(bounds.shape) for t in (expected.native, expected.oracle))
    return not any(
        bool((distance(native[part], oracle[part], bounds.gain) > bounds.local[part]).any())
        for part in tiles(bounds.shape, native.device)
    )


def _bias(floor: Floor, scales: Scales, gain: float) -> float:
    if math.isinf(floor.bias):
        return math.inf
    least = _least(floor, gain) if floor.conditioning else 0.0  # of quantised numbers, that is half a step
    return floor.bias * scales.mean + floor.conditioning * scales.response + least


def scales_of(
    oracle: torch.Tensor, native: torch.Tensor, probed: torch.Tensor, floor: Floor, *, args: Sequence[Any], length: int
) -> Scales | None:
    """The scales of a floating output in plain units, to be pooled; None where it has no elements. Arguments as those
    of :func:`bounded`.
    """
    if native.numel() == 0:
        return None
    measured = _measured(held(oracle, native), native, probed, floor, args, length)
    return _times(measured.scales, 1 / measured.gain)


def held(oracle: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """The oracle in the type in which it is kept: fp32 beside half types."""
    half = native.dtype in (torch.float16, torch.bfloat16)
    return oracle.to(torch.float32 if half else torch.float64) if oracle.dtype == torch.float64 else oracle


def _measured(
    oracle: torch.Tensor, native: torch.Tensor, probed: torch.Tensor, floor: Floor, args: Sequence[Any], length: int
) -> _Measured:
    shape = _grouping(as_real(native))
    views = tuple(as_real(t).contiguous().view(shape) for t in (oracle, native, probed))
    limit = finite_limit(as_real(native).dtype)
    largest, rms, finite = _extent(views[0], views[1], limit)
    # fp32 holds the gain too; an oracle that is smaller than any number of it is zero
    gain = 2.0 ** min(_MOST_GAIN, math.floor(math.log2(_HEADROOM) - math.log2(largest))) if largest > 0 else 1.0
    if (terms := _cancelled(largest, views, args, length)) is not None:
        floor = replace(floor, absolute=floor.absolute + min(floor.relative * terms, floor.left))
    measured = _measure(views, floor, gain, rms, None if finite else limit)
    if finite and not math.isfinite(measured.scales.floor_rms):  # on moved inputs something is not finite
        measured = replace(_measure(views, floor, gain, rms, limit), finite=True)
    return measured


def _slack(measured: _Measured, scales: Scales, *, pooled: bool) -> torch.Tensor:
    """What every element of a row may be off beyond its own bound. Raises local bounds that are too small to mean
    anything.
    """
    slack, floor, gain = measured.slack, measured.floor, measured.gain
    if pooled:
        slack = torch.full_like(slack, max(floor.native * scales.native_max, ELEMENT * scales.floor_rms))
    slack = slack.add_(SPREAD * scales.native_rms).clamp_(min=floor.normwise * scales.floor_max)
    if floor.normwise:  # where nothing is summed, algorithms that are stable in the norm alone leave rounding errors
        least = ELEMENT * _least(floor, gain)
        measured.local.masked_fill_(measured.local <= 2 * least, max(least, ELEMENT * scales.floor_rms))
    return slack


def _cancelled(largest: float, views: tuple[torch.Tensor, ...], args: Sequence[Any], length: int) -> float | None:
    """Size of the terms of a sum that cancels in fp64, as gradients of normalisations do under gradients that are
    equal: what comes out elsewhere is their rounding errors, equal ones where the terms are. None: something is left,
    or what is small does not grow when the inputs move (a sigmoid far below zero).
    """
    if largest > _LOOKED_AT:
        return None
    response = float((views[2] - views[0]).abs().nan_to_num(nan=0.0, posinf=0.0).max())
    if largest > _NOISE * response:
        return None
    terms = _scale_of(args) * length
    return terms if largest <= _NOTHING * terms else None


def _scale_of(args: Sequence[Any]) -> float:
    """Largest rms of a floating argument; elements that are not finite count as zero."""
    numbers = [a for a in _numbers(args) if a.numel()]
    norms = [
        torch.linalg.vector_norm(torch.where(a.isfinite(), a, 0.0).double()) / math.sqrt(a.numel()) for a in numbers
    ]
    return float(torch.stack(norms).max()) if norms else 0.0


_REPEATED = 2.0**-24
"""Elements whose relative difference is no larger count as equal: one kernel computes the last few elements of a tensor
by other instructions, which round differently."""


def independent(output: torch.Tensor) -> int:
    """How many elements are no repetitions. Those that are equal along a whole dim have one error: gradients of a bias
    under the upstream gradient of a sum over all, and outputs of an expanded or a constant input.

    Args:
        output: in fp64 (the oracle's) where it is floating, so that equal inputs give equal elements but for rounding.
    """
    count = 1
    for dim, size in enumerate(output.shape):
        repeats = size > 1 and _repeated(output, output.narrow(dim, 0, 1))
        count *= 1 if repeats else size
    return count


def _repeated(output: torch.Tensor, first: torch.Tensor) -> bool:
    if not (output.is_floating_point() or output.is_complex()):
        return bool((output == first).all())
    return bool(torch.isclose(output, first, rtol=_REPEATED, atol=0.0, equal_nan=True).all())


def _grouping(native: torch.Tensor) -> tuple[int, int]:
    """Rows are the last dim where it is long enough to have a scale, else the whole output is one row."""
    count = native.numel()
    last = native.shape[-1] if native.ndim else 1
    return (count // last, last) if native.ndim > 1 and last >= _ROW and count >= POOLED else (1, count)


def _extent(oracle: torch.Tensor, native: torch.Tensor, limit: float) -> tuple[float, float, bool]:
    """(largest usable magnitude of the oracle, rms, whether all of oracle and native is finite and below the limit).

    Both arguments have two dims.
    """
    figures = [f.double() for t in (oracle, native) for f in torch.aminmax(t)]
    low, high, least, most, norm = torch.stack([*figures, torch.linalg.vector_norm(oracle).double()]).tolist()
    count = oracle.numel()
    if all(math.isfinite(f) for f in (low, high, least, most, norm)) and max(-low, high) < limit:
        return max(-low, high), norm / math.sqrt(count), True
    largest = square = 0.0
    for rows, columns in tiles((oracle.shape[0], oracle.shape[1]), oracle.device):
        o = oracle[rows, columns]
        sizes = torch.where(_usable(o, native[rows, columns], limit), o.abs(), 0.0).double()
        largest = max(largest, float(sizes.max()))
        square += float(torch.linalg.vector_norm(sizes)) ** 2
    return largest, math.sqrt(square / count), False


def _usable(oracle: torch.Tensor, native: torch.Tensor, limit: float) -> torch.Tensor:
    """Elements that have a magnitude: finite in both and not at the end of the range."""
    return oracle.isfinite() & native.isfinite() & (oracle.abs() < limit)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Measured:
    local: torch.Tensor
    slack: torch.Tensor
    scales: Scales
    floor: Floor
    gain: float
    finite: bool
    """Whether all of oracle and native is, and below the limit."""


def _measure(views: tuple[torch.Tensor, ...], floor: Floor, gain: float, rms: float, limit: float | None) -> _Measured:
    """One pass over the output: the local tolerance, the rows' slack and the scales.

    Args:
        views: oracle, native and probed output as (rows, columns).
        limit: leave out what is not usable; None: everything is.
    """
    oracle, native, probed = views
    device, shape = oracle.device, (oracle.shape[0], oracle.shape[1])
    local = torch.empty(shape, dtype=torch.float32, device=device)
    slack = torch.zeros((shape[0], 1), dtype=torch.float32, device=device)
    absolute = _least(floor, gain)
    figures = []
    for rows, columns in tiles(shape, device):
        o, n, p = oracle[rows, columns], native[rows, columns], probed[rows, columns]
        size = distance(o, None, gain)
        error = distance(n, o, gain)
        response = distance(p, o, gain * floor.probe_scale)
        if limit is not None:
            usable = _usable(o, n, limit)
            error = torch.where(usable, error, 0.0)
            response = torch.where(usable & response.isfinite(), response, 0.0)
        tile = torch.add(response * floor.conditioning, size, alpha=floor.relative).add_(absolute)
        if floor.intermediate:
            most = (size + rms * gain).mul_(MOST_INTERMEDIATE)
            tile.add_(torch.minimum(response * floor.intermediate, most))
        counted = tile
        if limit is not None:
            tile = torch.where(tile.isfinite(), tile, absolute)  # where the oracle is not finite, classes are compared
            size, counted = torch.where(usable, size, 0.0), torch.where(usable, tile, 0.0)
        if shape[0] > 1:
            rounding = torch.linalg.vector_norm(counted, dim=1, keepdim=True) * (ELEMENT / math.sqrt(shape[1]))
            slack[rows] = torch.maximum(error.amax(dim=1, keepdim=True) * floor.native, rounding)
        norms = [torch.linalg.vector_norm(v) for v in (size, error, counted)]
        bulk = torch.div(error, tile * ELEMENT).clamp_(max=1.0).sum()
        figures.append(torch.stack([*norms, error.amax(), counted.amax(), bulk, size.sum(), response.sum()]))
        torch.mul(tile, ELEMENT, out=local[rows, columns])
    table = torch.stack(figures).double().tolist()
    count = shape[0] * shape[1]
    scales = Scales(
        rms=_joined(table, 0, count),
        native_rms=_joined(table, 1, count),
        floor_rms=_joined(table, 2, count),
        native_max=max(row[3] for row in table),
        floor_max=max(row[4] for row in table),
        bulk=sum(row[5] for row in table) / count,
        mean=sum(row[6] for row in table) / count,
        response=sum(row[7] for row in table) / count,
    )
    if shape[0] == 1:
        slack.fill_(max(floor.native * scales.native_max, ELEMENT * scales.floor_rms))
    return _Measured(local=local, slack=slack, scales=scales, floor=floor, gain=gain, finite=limit is None)


def _least(floor: Floor, gain: float) -> float:
    """The floor of an element that is zero and does not move."""
    return max(floor.absolute * gain, 1e-30)


def _joined(table: Sequence[Sequence[float]], column: int, count: int) -> float:
    return math.sqrt(sum(row[column] ** 2 for row in table) / count)


def _times(scales: Scales, factor: float) -> Scales:
    sizes = {name: getattr(scales, name) * factor for name in _SIZES}
    return replace(scales, **sizes)


def _pooled(own: Scales, others: Sequence[Scales]) -> Scales:
    """Scales over several draws: squares averaged, extremes kept. The rms of the oracle stays its own, and what native
    is off in this draw is allowed in full: a row of a softmax that two rounded scores decide is off by more than the
    others together (PyTorch's own gradients of a product and a softmax were rejected, 66 elements in bfloat16).
    """
    if not others:
        return own
    every = [own, *others]
    return replace(
        own,
        native_rms=max(own.native_rms, _mean_square([s.native_rms for s in every])),
        native_max=max(s.native_max for s in every),
        floor_rms=_mean_square([s.floor_rms for s in every]),
        floor_max=max(s.floor_max for s in every),
    )


def _mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(v * v for v in values) / len(values))


def _trivial(
    oracle: torch.Tensor, args: Sequence[Any], gain: float, scales: Scales, floor: Floor
) -> list[tuple[str, float]]:
    """(answer, its rms distance from the oracle) for answers that take no computing, as far as the native reference is
    clearly nearer. Over at most 2^18 elements.
    """
    count = oracle.numel()
    if count < _ROW // 4:
        return []
    last = oracle.shape[-1]

    def sample(values: torch.Tensor) -> torch.Tensor:
        rows = values.reshape(-1, last)
        if count <= _SAMPLE:
            return rows
        return rows[:: math.ceil(count / _SAMPLE)] if len(rows) > 1 else rows[:, :_SAMPLE]

    rows = sample(oracle)
    part = rows.numel()
    centred = ((rows - rows.mean()) * gain).float()
    total = torch.linalg.vector_norm(centred)
    names, distances = ["zero", "mean"], [torch.full_like(total, scales.rms * math.sqrt(part)), total]
    for name, dim in (("row_mean", 1), ("column_mean", 0)):
        if rows.shape[1 - dim] > 1 and rows.shape[dim] > 1:
            means = torch.linalg.vector_norm(centred.mean(dim=dim)) * math.sqrt(rows.shape[dim])
            names.append(name)
            # fp32 cannot tell a remainder below 1 % of the variation from none: such an answer is left out
            remainder = (total.square() - means.square()).clamp_min(0).sqrt()
            distances.append(torch.where(remainder > 0.01 * total, remainder, 0.0))
    for position, arg in enumerate(args):
        if isinstance(arg, torch.Tensor) and arg.is_floating_point() and arg.shape == oracle.shape:
            names.append(f"copy of argument {position}")
            distances.append(torch.linalg.vector_norm(((sample(arg).to(rows.dtype) - rows) * gain).float()))
    values = (torch.stack(distances) / math.sqrt(part)).tolist()
    least = 16 * floor.unit * scales.rms
    off = max(scales.native_rms, scales.floor_rms if floor.unit < _DOUBLE else 0.0)
    return [
        (name, d) for name, d in zip(names, values, strict=True) if math.isfinite(d) and d > least and off <= CLEAR * d
    ]


_FEW = 0.01
"""Share of the integers out of a floating computation that native may get otherwise before their distance counts."""

_TIES = 14
"""One integer in 2^14 may be off by one, however few native gets otherwise in this draw: a number near a half is
rounded up by one kernel and down by another. (Of 983,040 integers of a quantisation to eight bits, the native reference
got two otherwise than fp64, and a kernel with a reciprocal one.)"""


def exactly(
    kind: Kind,
    oracle: torch.Tensor,
    native: torch.Tensor,
    args: Sequence[Any],
    *,
    near: Sequence[torch.Tensor] = (),
) -> Expected:
    """An output that is judged by equality.

    Args:
        kind: ``exact``, ``index`` or ``count``.
        oracle: what the fp64 reference gives; of the native dtype, or floating for exact outputs.
        args: the arguments; indices select from the first floating tensor among them whose largest or smallest elements
            the oracle's select, along the dim in which its shape and the output's differ (the last one where several
            would do). Where they select from none, they are judged as ``count``.
        near: what the oracle gives on inputs that are moved by a few roundings, for counts. Where any is off by more
            than one, those are places (of a largest element): each may be what one of them says, unless it is an
            argument's element, of which no rounding decides; and no others count.
    """
    if kind == "index":
        selected = _source_of(oracle, args)
        if selected is not None:
            return Expected(kind=kind, oracle=oracle, native=native, source=selected[0], dim=selected[1])
        kind = "count"  # positions in something computed on the way: which elements are equal there is not known
    if kind == "count" and is_eight_bit(native):
        rounded = oracle.to(native.dtype)
        places = [steps(other.to(native.dtype)) for other in near]
        allowed, far = _allowed(steps(rounded), steps(native), places, numbers=True)
        return Expected(kind=kind, oracle=opened(rounded), native=native, allowed=allowed, far=far)
    if kind == "count":
        quantised = native.dtype in (torch.int8, torch.uint8)
        allowed, far = _allowed(oracle, native, near, numbers=quantised)
        counted = quantised or all(_by_one(oracle, other) for other in near)
        either = () if counted or _source_of(oracle, args) is not None else tuple(near)
        return Expected(kind=kind, oracle=oracle, native=native, allowed=allowed, far=far, either=either)
    return Expected(kind=kind, oracle=oracle.to(native.dtype), native=native)


def _allowed(
    oracle: torch.Tensor, native: torch.Tensor, near: Sequence[torch.Tensor], *, numbers: bool = False
) -> tuple[int, float]:
    """Integers that may differ, and the bound on their rms distance: infinite where it does not count, which it always
    does of ``numbers`` of eight bits, that are nowhere far apart (of those quantised from bfloat16 one in fifty lies
    half way between two: were these free, a row might be missing). Of numbers those that repeat others are one, which
    may differ if there are 64 others; and where few differ, chance may make another kernel's more by twice the root of
    how many.
    """
    count = native.numel()
    others = [native, *(near if all(_by_one(oracle, other) for other in near) else ())]
    differing = max(int(torch.count_nonzero(oracle != other)) for other in others) if count else 0
    copies = count // max(1, independent(native)) if numbers else 1
    few = max(count >> _TIES, copies if 1 < copies <= count // _ROW else 0)
    ties = few if few > 2 * differing else 0
    far = math.inf
    if differing > _FEW * count or ties or (numbers and count):
        distances = [torch.linalg.vector_norm((other.double() - oracle.double()).flatten()) for other in others]
        distance = float(torch.stack(distances).max())
        far = slack_of_count(count) * math.sqrt(((NATIVE * distance) ** 2 + ties) / count)
    chance = math.ceil(2 * math.sqrt(differing / copies)) if numbers else 0
    return max(2 * differing + copies * chance, ties), far


def _by_one(oracle: torch.Tensor, other: torch.Tensor) -> bool:
    return not oracle.numel() or float((other.double() - oracle.double()).abs().max()) <= 1


def positions(
    native: torch.Tensor, values: Sequence[torch.Tensor], args: Sequence[Any], *, stable: bool = False
) -> Expected | None:
    """An integer output that says where in an argument the elements of another output are, as of a sort with its order;
    None: it is no such.

    Among equal elements any may be named; but none twice, where the native reference names none twice.

    Args:
        values: the floating outputs of the same call, of the native reference.
        stable: whether equal elements keep their order: then these are exact.
    """
    if native.dtype == torch.bool or is_eight_bit(native) or not native.numel() or bool((native < 0).any()):
        return None
    alike = [opened(v) for v in values if v.shape == native.shape]
    for arg in _numbers(args) if alike else ():
        for dim in reversed(range(arg.ndim)):
            flat = native.ndim < arg.ndim
            index = native.unsqueeze(dim) if native.ndim == arg.ndim - 1 else native
            kept = [a for d, a in enumerate(index.shape) if d != dim]
            if index.ndim != arg.ndim or kept != [a for d, a in enumerate(arg.shape) if d != dim]:
                continue
            if bool((index >= arg.shape[dim]).any()):
                continue
            chosen = arg.gather(dim, index.long())
            picked = chosen.squeeze(dim) if flat else chosen
            if any(picked.dtype == v.dtype and bool(same(picked, v).all()) for v in alike):
                if stable:
                    return Expected(kind="exact", oracle=native, native=native)
                distinct = not bool((index.sort(dim).values.diff(dim=dim) == 0).any())
                return Expected(
                    kind="index", oracle=native, native=native, source=arg, dim=dim, distinct=distinct and not flat
                )
    return None


def _numbers(args: Sequence[Any]) -> list[torch.Tensor]:
    """The floating arguments, of a type that PyTorch computes in."""
    return [opened(arg) for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point()]


def _source_of(oracle: torch.Tensor, args: Sequence[Any]) -> tuple[torch.Tensor, int] | None:
    shape = tuple(oracle.shape)
    for arg in _numbers(args):
        for dim in reversed(range(arg.ndim)):
            kept = (*arg.shape[:dim], 1, *arg.shape[dim + 1 :])
            flat = shape == (*arg.shape[:dim], *arg.shape[dim + 1 :])
            if (flat or shape == kept) and _is_extreme(arg, dim, oracle.reshape(kept)):
                return arg, dim
    return None


def _is_extreme(source: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Whether indices (of the source's shape with 1 at ``dim``) select its largest, or its smallest, elements: a NaN
    where there is one.
    """
    if not index.numel():
        return True
    if bool((index < 0).any()) or bool((index >= source.shape[dim]).any()):
        return False
    chosen = source.gather(dim, index.long())
    return any(bool(same(chosen, reduce(source, dim, keepdim=True)).all()) for reduce in (torch.amax, torch.amin))
