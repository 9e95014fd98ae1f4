"""Secret inputs: their values, drawn on the device.

Every tensor comes from a generator of its own, seeded from the secret and the argument's position, so nothing larger
than a seed is ever made on the host and no argument tells anything about another. ``edge_values.py`` then puts in what
fields of a ``TensorSpec`` ask for, ``structures.py`` has rows in an order and skewed indices, and ``buffers.py`` lays
tensors out in memory. See ``docs/inputs.md`` for what each distribution is there to find.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval.judge.windows import structures
from kerneleval.judge.windows.buffers import expanded_dims, gradient_of
from kerneleval.judge.windows.edge_values import BITS, BORDER, NONFINITE, RULES, Drawn, Rule, most_exponent
from kerneleval.judge.windows.matrices import HALF_LINK, faint, leaning, linked, off_eye, resized, skew, turned
from kerneleval.judge.windows.whole_numbers import mark_ignored, widen
from kerneleval.records import (
    DISTRIBUTIONS,
    LARGE_SCALE,
    ROW_DISTRIBUTIONS,
    SMALL_SCALE,
    Argument,
    Case,
    Scalar,
    TensorSpec,
    UsageError,
    digest,
    near,
)

OUTLIER_SHARE = 1e-3
"""Share of the elements that ``outlier`` multiplies (KernelBench-X)."""

OUTLIER_FACTOR = 50.0
"""What it multiplies them by (KernelBench-X)."""

_WEIGHT_SCALE = {"outlier": 4.0, "large_scale": 8.0, "small_scale": 0.125}
"""Factors of weights beside data of these distributions; gains about 1 get secret signs there as well."""

_UPSTREAM_SCALE = {"outlier": 256.0, "large_scale": 1024.0, "small_scale": 1 / 256}
"""Factors of upstream gradients there, as scaled losses have them; float16 keeps its own size."""

_COMMON_SPREAD = 0.25
"""Standard deviation of ``common`` data about ``TensorSpec.common``; half types have 1."""
_GATE, _HALF_GATE = 64.0, 16.0
"""Numbers about more than the former are gates and steps. In half types they are about the latter: exp overflows in
float16 above 11.
"""


_LARGEST = 3
"""Further places of a row's largest score under ``large_scale``."""

_NONFINITE_EACH = 4
_RARELY = 8
"""One in so many calls is of the other kind than its layout has (:func:`_apart`)."""
_VANISHED = 16
"""One in so many gains is 0 beside ``outlier`` data."""
_FEW_GAINS = 4
"""Of fewer gains none is: an output that is nothing but a bias would hide all else."""
_MISSING = 16
"""One in so many numbers is NaN in data of which some may be."""
_MOST_NEARING = 7
"""Exponents of the factors of ``Arg.nearing``."""
_TIE = 38
"""Bit of a whole number of 62 or 63 bits that is half a step of fp32."""
_FEW_SIGNS = 1024
"""So many numbers, if all are of one sign, get the other for half of them."""
_LEAST_ROWS = 4
"""Fewer rows have no row of nothing but NaN."""
_NAN_ROWS = 32
"""One in so many rows is nothing but NaN, at least one, and as many have one number; so with each kind of infinite row.
"""
_MOST_EXCHANGED = 1 << 23
_FROM_ZERO = ("positive", "nonnegative", "above_one")
_MATRICES: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "off_eye": off_eye,
    "leaning": leaning,
    "faint": faint,
    "skew": skew,
    "resized": resized,
    "turned": turned,
    "linked": linked,
    "half_linked": functools.partial(linked, link=HALF_LINK),
}
_CENTRED = ("symmetric", *_MATRICES)
_FORWARD_ALONE: dict[str, Any] = {"nonnegative": "positive", "faint": "symmetric"}
"""What differentiable arguments are backward: gradients of roots and logarithms are infinite at 0, and those of faint
singular values hang on their vectors, which algorithms as good as one another find with other errors.
"""
_STRUCTURED = ("normal", "positive", "nonnegative", "uniform", "rates", *_CENTRED)
_RATES = (16.0, 2000.0)
"""Factors of rows of large rates: from where rounded normal numbers are nearly right on. exp(-rate) is 0 in fp32 beyond
103 and in fp64 beyond 745; beyond 4000 PyTorch draws counts of a normal distribution on GPUs."""
_FEW_RATES = 8
"""One row in so many has large rates: counts that are found one by one take their time."""


def draw(specs: Sequence[Argument], case: Case, seed: int, device: str) -> list[Any]:
    """The arguments of one call: private contiguous tensors of the specified shapes and dtypes, and plain values. What
    each distribution holds, and which arguments follow it, is in ``docs/inputs.md``.

    Args:
        seed: secret, up to 63 bits.

    Raises:
        UsageError: an unknown distribution or dtype.
    """
    if case.distribution not in DISTRIBUTIONS:
        raise UsageError(f"distribution {case.distribution!r} is unknown; {near(case.distribution, DISTRIBUTIONS)}")
    values: list[Any] = []
    specs = _apart(specs, case, seed)
    for position, spec in enumerate(specs):
        if isinstance(spec, Scalar):
            values.append(spec.value)
            continue
        generator = stream(seed, f"argument {position}", device)
        dtype = _dtype(spec.dtype)
        narrow = dtype.is_floating_point and dtype.itemsize == 1  # drawn wider: nothing draws in these
        given = replace(spec, dtype="float32") if narrow else spec
        if spec.role != "data":
            tensor = _other(given, case, generator)
        else:
            fewer = case.direction == "backward" and spec.large_half_backward
            given = replace(given, large_half=spec.large_half_backward) if fewer else given
            if case.direction == "backward" and spec.differentiable and spec.values in _FORWARD_ALONE:
                given = replace(given, values=_FORWARD_ALONE[spec.values])
            tensor = _repeated(given, case.distribution, case.layout, generator)
            slow = spec.slow[0] < 1 and dtype.itemsize > 2  # gradients of such rates are infinite in float16
            if (case.direction, case.distribution) == ("backward", "common") and slow:
                tensor.mul_(spec.slow[0])  # rates beside large steps: decays by differences of sums lose digits else
            usual = (case.distribution, case.layout) == ("standard", "contiguous")
            if spec.ids and not usual and case.layout != "expanded" and case.distribution not in ("constant", "zeros"):
                tensor = structures.indices(given, case, tensor, generator)
            if spec.missing and case.direction == "backward" and case.layout != "expanded":
                _missing(spec, case.distribution, tensor, generator)
            if spec.equals and case.direction == "backward" and case.layout != "expanded":
                other = next(i for i, one in enumerate(specs) if one.name == spec.equals)
                _share_rows(values[other], tensor, generator)
        values.append(_saturated(tensor, dtype) if narrow else tensor)
    _together(specs, values, case, seed, device)
    return values


def _together(specs: Sequence[Argument], values: list[Any], case: Case, seed: int, device: str) -> None:
    """Puts in what several arguments share, and what replaces parts of them."""
    tensors = [(spec, value) for spec, value in zip(specs, values, strict=True) if isinstance(spec, TensorSpec)]
    if any(spec.wide for spec, _ in tensors):
        widen(specs, values, case, stream(seed, "whole numbers", device))
    if any(spec.ignored for spec, _ in tensors):
        mark_ignored(specs, values, stream(seed, "ignored", device))
    by_name = {spec.name: value for spec, value in zip(specs, values, strict=True)}
    drawn = Drawn(tensors=tensors, by_name=by_name, case=case, stream=functools.partial(stream, seed))
    for rule in RULES if case.layout != "expanded" else ():
        if _holds(rule, drawn):
            rule.plant(drawn)
    if (case.distribution, case.direction) == ("small_scale", "forward") and case.layout != "expanded":
        _nearer(drawn)
    _sign_nans(drawn)


def _holds(rule: Rule, drawn: Drawn) -> bool:
    """Whether a rule of edge values applies to a call."""
    case = drawn.case
    if case.distribution not in rule.distributions or (case.direction == "backward" and not rule.backward):
        return False
    return sum(bool(rule.asked(spec)) for spec, _ in drawn.tensors) >= rule.least


def _nearer(drawn: Drawn) -> None:
    """Multiply arguments that are ``nearing`` by a secret power of two, up to 64."""
    for spec, value in drawn.tensors:
        if spec.nearing:
            generator = drawn.stream(f"nearing {spec.name}", "cpu")
            value.mul_(2.0 ** int(torch.randint(_MOST_NEARING, (), generator=generator)))


def _sign_nans(drawn: Drawn) -> None:
    """Sets the sign bit of all NaN in three of four rows (last dim; ``Arg.nan_signs``), by whole numbers: arithmetic
    may not keep it. Where rows must be equal, in all or none.
    """
    for spec, value in drawn.tensors:
        if not spec.nan_signs or not value.is_floating_point():
            continue
        if (drawn.case.distribution == "nonfinite" or spec.missing or spec.values == "special") and value.itemsize > 1:
            generator = drawn.stream(f"signs of nan {spec.name}", str(value.device))
            rows = value.ndim * (1,) if drawn.case.layout == "expanded" else (*value.shape[:-1], 1)[: value.ndim]
            chosen = torch.randint(4, rows, generator=generator, device=value.device) > 0
            bits = value.view(BITS[value.itemsize])
            bits.copy_(torch.where(chosen & value.isnan(), bits | torch.iinfo(bits.dtype).min, bits))


def _apart(specs: Sequence[Argument], case: Case, seed: int) -> Sequence[Argument]:
    """The arguments with ``masked_apart`` decided for this call: where the layout is contiguous most calls have no NaN
    and no row of nothing but -inf, elsewhere few.
    """
    apart = [spec for spec in specs if isinstance(spec, TensorSpec) and spec.nonfinite == "masked_apart"]
    if not apart or case.distribution != "nonfinite":
        return specs
    rare = int(torch.randint(_RARELY, (), generator=stream(seed, "masked apart", "cpu"))) == 0
    alone = (case.layout == "contiguous") != rare

    def decided(spec: Argument) -> Argument:
        if isinstance(spec, Scalar):
            return spec
        if spec in apart:
            return spec if alone else replace(spec, nonfinite="masked_nan")
        return replace(spec, nonfinite="none") if alone else spec

    return [decided(spec) for spec in specs]


def _share_rows(x: torch.Tensor, y: torch.Tensor, generator: torch.Generator) -> None:
    """Puts secret rows of x at secret places of y (next to last dim), one in four of them, in each item of a batch
    alike. Of fewer than four none: a gradient that is 0 everywhere would hide all else.
    """
    rows = y.shape[-2]
    if y.numel() and x.numel():
        places = torch.randperm(rows, generator=generator, device=y.device)[: rows // 4]
        chosen = torch.randint(x.shape[-2], (len(places),), generator=generator, device=y.device)
        y[..., places, :] = x[..., chosen, :]


def _saturated(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in an eight-bit type, no number beyond its largest: e4m3fn has no infinity, and would make it NaN."""
    most = float(torch.finfo(dtype).max)
    return tensor.clamp_(-most, most).to(dtype)


def upstream(
    outputs: Sequence[tuple[tuple[int, ...], str]],
    seed: int,
    device: str,
    layout: str = "contiguous",
    distribution: str = "standard",
) -> list[torch.Tensor]:
    """Secret upstream gradients: standard data for each output (shape, dtype) of floating type, scaled as the case's
    distribution wants it; equal along :func:`expanded_dims` under the ``expanded`` layout.

    Args:
        seed: secret, up to 63 bits; streams differ from those of :func:`draw`.
    """
    grads = []
    for position, (shape, dtype) in enumerate(outputs):
        if _dtype(dtype).is_floating_point or _dtype(dtype).is_complex:
            spec = gradient_of(tuple(shape), dtype)
            generator = stream(seed, f"upstream {position}", device)
            grad = _repeated(spec, "standard", layout, generator)
            grads.append(grad if dtype == "float16" else grad.mul_(_UPSTREAM_SCALE.get(distribution, 1.0)))
    return grads


def exchanged(tensor: torch.Tensor, part: float, generator: torch.Generator, width: int = 1) -> torch.Tensor:
    """A contiguous copy with pairs of elements, or of rows of this ``width``, at secret places exchanged.

    The first and the last element stay where they are, and so do, up to rounding, the sum, the norm, the extremes and
    every other figure that does not depend on order: what a cache might take for the content.

    Args:
        tensor: left as it is. With fewer than four elements, nothing is exchanged.
        part: part of the elements that move, at least one pair and at most 2^23 elements.
    """
    flat = tensor.reshape(-1, width).clone()
    middle = len(flat) - 2
    if middle >= 2:
        count = 2 * max(1, min(round(middle * part), middle, _MOST_EXCHANGED) // 2)
        # one place in each of as many blocks, so that no place is taken twice
        block = middle // count
        start = torch.arange(count, device=flat.device) * block + 1
        places = start + torch.randint(block, (count,), generator=generator, device=flat.device)
        first, second = places[torch.randperm(count, generator=generator, device=flat.device)].view(2, -1)
        flat[first], flat[second] = flat[second], flat[first]
    return flat.view(tensor.shape)


def stream(seed: int, name: str, device: str) -> torch.Generator:
    """A generator on the device for one purpose; hashing keeps the streams of one secret apart."""
    derived = int(digest(str(seed), name)[:16], 16) >> 1
    return torch.Generator(device=device).manual_seed(derived)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"{name!r} is no dtype of torch")
    return found


def _other(spec: TensorSpec, case: Case, generator: torch.Generator) -> torch.Tensor:
    """A weight, index or mask: standard values; weights scaled, and indices not uniform, beside data that are not
    standard or not contiguous.
    """
    tensor = _values(spec, spec.shape, generator)
    if spec.role == "index" and (case.distribution, case.layout) != ("standard", "contiguous"):
        tensor = structures.indices(spec, case, tensor, generator)
    if spec.lengths:
        return structures.beside_blocks(spec, tensor, generator)
    if spec.role == "weight" and spec.along and case.distribution == "far_mean":  # the bias of a layer before a norm
        return structures.by_rows(spec, tensor, case.distribution, generator)
    if spec.role == "weight" and _common(spec, case.distribution, tensor.dtype):
        return _near_common(spec, tensor, generator)
    if spec.role == "weight" and case.distribution in _WEIGHT_SCALE and tensor.is_floating_point():
        tensor.mul_(_WEIGHT_SCALE[case.distribution])
        if spec.values == "ones_normal":
            tensor.mul_(torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device).mul_(2).sub_(1))
        if spec.vanishes and case.distribution == "outlier":
            _vanish(spec, tensor, generator)
    if spec.role == "mask" and spec.values == "bool" and tensor.ndim and tensor.shape[-1]:
        tensor = structures.opened(tensor, generator)
        tensor = structures.lonely(tensor, generator) if case.direction == "forward" else tensor
    if spec.scale != 1 and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.mul_(spec.scale)
    return tensor


def _vanish(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Makes one in 16 elements of a gain 0; of another weight all of one in 16 rows, and of one in 16 columns."""
    sizes = list(tensor.shape)
    lines = [[size if dim == own else 1 for dim, size in enumerate(sizes)] for own in range(min(2, len(sizes)))]
    for shape in [sizes] if spec.values == "ones_normal" else lines:
        if math.prod(shape) >= _FEW_GAINS:
            tensor.masked_fill_(torch.randint(_VANISHED, shape, generator=generator, device=tensor.device) == 0, 0)


def _repeated(spec: TensorSpec, distribution: str, layout: str, generator: torch.Generator) -> torch.Tensor:
    """A contiguous data tensor, equal along a dim where the layout wants it so."""
    dims = expanded_dims(spec) if layout == "expanded" else ()
    if not dims:
        return _in_steps(spec, _data(spec, spec.shape, distribution, generator), distribution)
    reduced = tuple(1 if dim in dims else size for dim, size in enumerate(spec.shape))
    return _in_steps(spec, _data(spec, reduced, distribution, generator), distribution).expand(spec.shape).contiguous()


def _in_steps(spec: TensorSpec, tensor: torch.Tensor, distribution: str) -> torch.Tensor:
    """The tensor rounded to ``TensorSpec.step``."""
    step = spec.step * (SMALL_SCALE if distribution == "small_scale" else 1.0)
    if not step:
        return tensor
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))  # float16 has no so many steps
    return tensor.copy_(wide.div_(step).round_().mul_(step))


def _data(spec: TensorSpec, shape: tuple[int, ...], distribution: str, generator: torch.Generator) -> torch.Tensor:
    """A data tensor of the distribution, times ``spec.scale``."""
    dtype = _dtype(spec.dtype)
    if not (dtype.is_floating_point or dtype.is_complex) or spec.values in ("integers", "bits", "bool"):
        return _discrete(spec, shape, distribution, generator)
    if distribution == "zeros":
        least = {"positive": 0.1, "variance": 0.5, "ones_normal": 1.0, "above_one": 1.0}.get(spec.values, 0.0)
        tensor = torch.full(shape, least * spec.scale, dtype=dtype, device=generator.device)
        signed = not least and not dtype.is_complex and spec.values != "nonnegative"
        return _with_signs(tensor, generator) if signed else tensor
    if distribution == "constant":
        return _constant(spec, dtype, generator).expand(shape).contiguous()
    tensor = _values(spec, shape, generator)
    of_rows = distribution in ROW_DISTRIBUTIONS and (spec.along or spec.slow != (1.0, 0.0))
    if of_rows and (distribution != "full" or spec.edges):
        return structures.by_rows(spec, tensor, distribution, generator).mul_(spec.scale)
    if distribution == "ordered" and spec.values == "normal":  # a bias of what is selected: ties stay ties
        return torch.zeros(shape, dtype=dtype, device=generator.device)
    if distribution == "standard" or distribution in ROW_DISTRIBUTIONS:
        tensor = _structured(spec, tensor, generator)
        whole = spec.values in _MATRICES and shape[-2:] == spec.shape[-2:] and tensor.numel()
        return _MATRICES[spec.values](tensor, generator) if whole else tensor
    if distribution == "outlier" and tensor.numel() > 1:
        count = max(1, round(tensor.numel() * OUTLIER_SHARE))
        flat = tensor.view(-1)
        places = torch.randint(flat.numel(), (count,), generator=generator, device=flat.device)
        flat[places] = flat[places] * OUTLIER_FACTOR
        tensor = _sparse(tensor, generator) if spec.values in ("normal", "nonnegative") else tensor
        tensor = tensor.abs_() if spec.values == "nonnegative" else tensor
        tensor = _lone_zeros(tensor, generator) if spec.values == "ones_normal" else tensor
    elif distribution == "nonfinite" and tensor.numel() and spec.nonfinite != "none":
        _not_finite(spec, tensor, generator)
    elif _common(spec, distribution, dtype):
        return _near_common(spec, tensor, generator)
    elif distribution == "negative" and spec.values == "normal":
        tensor = tensor.abs_().neg_()
    elif distribution == "large_scale" and spec.scores and tensor.numel():
        tensor = _tied_largest(tensor, generator)
    large = spec.large_half if dtype == torch.float16 else LARGE_SCALE
    factor = spec.scale * {"large_scale": large, "small_scale": SMALL_SCALE}.get(distribution, 1.0)
    return tensor.mul_(factor) if factor != 1 else tensor


def _tied_largest(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with the largest element of about half of its rows (last dim) at up to three places more: of a softmax
    without them one weight is 1 and all others are 0, whatever the logarithm of the row's sum is rounded to. One row in
    four lies below -1, so that large scores are: numbers put for hidden ones may be larger.
    """
    rows, width = (*tensor.shape[:-1], 1), tensor.shape[-1]
    below = torch.randint(0, 4, rows, generator=generator, device=tensor.device) == 0
    tensor = torch.where(below, -1 - tensor.abs(), tensor)
    most = tensor.amax(-1, keepdim=True)
    chosen = torch.randint(0, 2, rows, generator=generator, device=tensor.device) == 0
    for _ in range(_LARGEST):
        place = torch.randint(width, rows, generator=generator, device=tensor.device)
        tensor = tensor.scatter(-1, place, torch.where(chosen, most, tensor.gather(-1, place)))
    return tensor


def _not_finite(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Puts a few NaN and infinities at secret places, as ``TensorSpec.nonfinite`` says."""
    if spec.nonfinite.startswith("masked"):
        long = tensor.flatten(-len(spec.along)) if len(spec.along) > 1 else tensor  # rows of several dims, a view
        _mask_out(long, generator, rows=spec.nonfinite != "masked_nan")
    if spec.nonfinite in ("masked", "masked_apart"):
        return
    if spec.nonfinite == "channels":
        channels = tensor.flatten(0, 1)
        order = torch.randperm(len(channels), generator=generator, device=tensor.device)
        channels[order[: max(1, len(channels) // _NAN_ROWS)]] = math.nan
        return
    flat = tensor.view(-1)
    each = max(1, min(_NONFINITE_EACH, flat.numel() // 64))
    values = NONFINITE[:1] if spec.nonfinite in ("nan", "masked_nan") else NONFINITE[spec.nonfinite == "infinite" :]
    if spec.nonfinite == "limits" and spec.values in _FROM_ZERO:  # -inf is none of the numbers that it is defined for
        values = tuple(value for value in values if value > 0 or math.isnan(value))
    places = torch.randint(flat.numel(), (len(values), each), generator=generator, device=flat.device)
    for row, value in enumerate(values):
        flat.index_fill_(0, places[row], value)
    if spec.along:
        _special_rows(spec, tensor, generator)


def _missing(spec: TensorSpec, distribution: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Puts what the operator leaves out or replaces (``Arg.missing``) at secret places of data not standard; one column
    has numbers alone, so no row is without.
    """
    if distribution in ("outlier", "large_scale", "small_scale") and tensor.numel():
        kind = torch.randint(_MISSING, tensor.shape, generator=generator, device=tensor.device)
        kind[..., int(torch.randint(tensor.shape[-1], (), generator=generator, device=tensor.device))] = _MISSING
        for number, value in enumerate(NONFINITE if spec.nonfinite == "ieee" else NONFINITE[:1]):
            tensor.masked_fill_(kind == number, value)


def _special_rows(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Fills a few secret rows with NaN, as many but for one place, and as many at one place alone, where there are at
    least four; not those of ``infinite``. Where infinities are defined, others get one of them over a part, over all or
    over all but one place: a search that starts at a finite number has it for its result there.
    """
    dims = [*(dim for dim in range(tensor.ndim) if dim not in spec.along), *spec.along]
    outer = [tensor.shape[dim] for dim in dims[: tensor.ndim - len(spec.along)]]
    rows, width = math.prod(outer), tensor.numel() // max(1, math.prod(outer))
    if rows < _LEAST_ROWS:
        return
    device = tensor.device
    order = torch.randperm(rows, generator=generator, device=device)[:, None]
    kept = torch.randint(width, (rows, 1), generator=generator, device=device)
    place, few = torch.arange(width, device=device), max(1, rows // _NAN_ROWS)
    shape = [tensor.shape[dim] for dim in dims]

    def fill(where: torch.Tensor, value: float) -> None:
        back = where.view(shape).permute([dims.index(dim) for dim in range(tensor.ndim)])
        tensor.masked_fill_(back, value)

    if spec.nonfinite != "infinite":
        fill((order < few) | ((order < 2 * few) & (place != kept)) | ((order < 3 * few) & (place == kept)), math.nan)
    if spec.nonfinite in ("ieee", "infinite"):
        parts = (place >= 0, place <= kept, place >= kept, place != kept)
        first = int(torch.randint(2, (), generator=generator, device=device))
        for number in range(min(2 * len(parts), rows // few - 4)):
            chosen = (order >= (3 + number) * few) & (order < (4 + number) * few)
            fill(chosen & parts[number // 2], math.inf if number % 2 == first else -math.inf)


def _mask_out(tensor: torch.Tensor, generator: torch.Generator, *, rows: bool) -> None:
    """Minus infinity over parts of half of the rows (last dim), and of an eighth of the lines along every other dim: a
    leading, a trailing or an inner part, whole blocks of a secret power of two, all but one place, or everything.

    Args:
        rows: along the last dim alone, and nowhere over everything.
    """
    for dim, size in enumerate(tensor.shape):
        if rows and dim < tensor.ndim - 1:
            continue
        lines = [1 if d == dim else other for d, other in enumerate(tensor.shape)]
        along = [size if d == dim else 1 for d in range(tensor.ndim)]
        few = 2 if dim == tensor.ndim - 1 else 8

        def chosen(high: int, shape: Sequence[int] = lines) -> torch.Tensor:
            return torch.randint(high, shape, generator=generator, device=tensor.device)

        place = torch.arange(size, device=tensor.device).view(along)
        start, end, style = chosen(size), chosen(size), chosen(8)
        first, last = torch.minimum(start, end), torch.maximum(start, end)
        block = int(chosen(1 << 30, ())) % max(1, size.bit_length() - 1)
        blocks = chosen(2, [(size >> block) + 1]) > 0
        out = torch.where(style <= 1, place < start, torch.where(style == 2, place > start, place != start))
        out = torch.where(style == 3, (place >= first) & (place < last), out)
        out = torch.where((style == 4) | (style == 5), blocks[place >> block] & (place != start), out)
        out |= (style == 7) & (not rows)
        tensor.masked_fill_(out & (chosen(few) == 0), -math.inf)


def _sparse(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """In half of the rows (last dim; of more than two dims in an eighth as many) some elements are exactly 0: see
    ``docs/inputs.md``. No more, because equal terms are all rounded the same way: a variance summed in turn, where
    each of many zeros adds the square of the mean, was off by 1e-5.
    """
    rows, width = (*tensor.shape[:-1], 1), tensor.shape[-1] if tensor.ndim else 1

    def one_in(count: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(0, count, shape, generator=generator, device=tensor.device) == 0

    thin = one_in(2 if tensor.ndim <= 2 else 16, rows)
    place = torch.arange(width, device=tensor.device)
    ends = (place < min(4, width // 4)) | (place == width - 1 if width > 3 else place < 0)
    zero = thin & (ends | one_in(8, tuple(tensor.shape)))
    signed = torch.where(one_in(2, rows), -tensor.abs(), tensor.abs())
    out = torch.where(thin & one_in(2, rows), signed, tensor).masked_fill_(zero, 0)
    return out if out.is_complex() else torch.where(zero, _with_signs(torch.zeros_like(out), generator), out)


def _lone_zeros(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A secret element of every second row (last dim) is 0, half of the time -0, and another one of every eighth."""
    rows, width = (*tensor.shape[:-1], 1), tensor.shape[-1]
    zero = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    for count in (2, 8):
        some = torch.randint(count, rows, generator=generator, device=tensor.device) == 0
        place = torch.randint(width, rows, generator=generator, device=tensor.device)
        zero |= some & (torch.arange(width, device=tensor.device) == place)
    return torch.where(zero, _with_signs(torch.zeros_like(tensor), generator), tensor)


def _with_signs(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with half of its elements, chosen in secret, negated: of zeros half are -0."""
    flip = torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device) == 0
    return torch.where(flip, -tensor, tensor)


def _common(spec: TensorSpec, distribution: str, dtype: torch.dtype) -> bool:
    """Whether the argument lies about ``TensorSpec.common``: in half types scores and gates alone."""
    wanted = distribution == "common" and spec.common != 0
    return wanted and (dtype.itemsize > 2 or spec.scores or spec.common > _GATE)


def _near_common(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Standard values brought near :func:`_about`."""
    spread = _COMMON_SPREAD if tensor.dtype.itemsize > 2 else 1.0  # half types have few numbers there
    return tensor.mul_(spread).add_(_about(spec, tensor, generator))


def _about(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | float:
    """What ``common`` data lies about: one number, or one for each row, of which half are negative."""
    common = min(spec.common, _HALF_GATE) if tensor.dtype.itemsize == 2 else spec.common
    if not spec.common_signs:
        return common
    rows = (*tensor.shape[:-1], 1)
    places = torch.randperm(math.prod(rows), generator=generator, device=tensor.device)
    odd = (places + torch.randint(0, 2, (1,), generator=generator, device=tensor.device)) % 2
    return (2 * odd - 1).view(rows).to(tensor.dtype).mul_(common)


def _values(spec: TensorSpec, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Standard values, not scaled; see ``TensorSpec.values``."""
    dtype, device = _dtype(spec.dtype), generator.device
    if spec.values == "integers":
        high = max(spec.high, spec.low + 1)
        return torch.randint(spec.low, high, shape, generator=generator, device=device, dtype=dtype)
    if spec.values == "bits":
        info = torch.iinfo(dtype)
        tensor = torch.randint(info.min, info.max, shape, generator=generator, device=device, dtype=dtype)
        if info.bits < 64:
            return tensor
        beside = (tensor >> _TIE | 1) * (1 << _TIE) + tensor % 3 - 1  # of fp32, in fp64 just there
        return torch.where(torch.randint(BORDER, shape, generator=generator, device=device) == 0, beside, tensor)
    if spec.values == "bool":
        return torch.randint(0, 2, shape, generator=generator, device=device, dtype=torch.uint8).to(dtype)
    if spec.values in ("uniform", "variance", *_CENTRED):
        tensor = torch.rand(shape, generator=generator, device=device, dtype=dtype)
        if spec.values in _CENTRED:
            return tensor.mul_(2).sub_(1)
        return tensor.add_(0.5) if spec.values == "variance" else tensor
    # rounded from float32: of bfloat16 itself PyTorch 2.11 has 256 normal numbers on processors with AVX-512
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize == 2 else dtype
    tensor = torch.randn(shape, generator=generator, device=device, dtype=wide).to(dtype)
    if spec.values == "special":
        kind = torch.randint(0, 16, shape, generator=generator, device=device)
        tensor.masked_fill_(kind < 2, math.nan).masked_fill_(kind == 2, math.inf).masked_fill_(kind == 3, -math.inf)
        most = most_exponent(dtype, spec.large_half if dtype == torch.float16 else LARGE_SCALE)
        return torch.where(kind == 4, tensor * 2.0**most, tensor)
    if spec.values in ("positive", "nonnegative", "above_one", "rates"):
        return tensor.abs_().add_(1 if spec.values == "above_one" else 0.1)
    return tensor.mul_(0.1).add_(1) if spec.values == "ones_normal" else tensor


def _structured(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows of their own scale and, where the values may be negative, of their own mean; times ``spec.scale``."""
    if spec.values not in _STRUCTURED:
        return tensor.mul_(spec.scale) if spec.scale != 1 else tensor
    rows = (*tensor.shape[:-1], 1) if tensor.ndim else ()
    low, high = (0.5, 1.0) if spec.values in ("uniform", *_CENTRED) else (0.5, 2.0)
    real = torch.zeros((), dtype=tensor.dtype).real.dtype

    def spread(least: float, most: float) -> torch.Tensor:
        unit = torch.rand(rows, generator=generator, device=tensor.device, dtype=real)
        return unit.mul_((most - least) * spec.scale).add_(least * spec.scale)

    factor = spread(low, high)
    if spec.values == "rates":
        return _with_large(tensor.mul_(factor), generator)
    if spec.values != "normal":
        return tensor.mul_(factor)
    return _of_both_signs(torch.addcmul(spread(-1.0, 1.0).to(tensor.dtype), tensor, factor.to(tensor.dtype)), generator)


def _of_both_signs(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Few numbers that are all of one sign with every second one negated: of a row alone below 0, nothing but zeros
    comes out of a ``relu``.
    """
    if not 1 < tensor.numel() <= _FEW_SIGNS or tensor.is_complex():
        return tensor
    alike = tensor.signbit().all() | ~tensor.signbit().any()
    first = torch.randint(2, (), generator=generator, device=tensor.device)
    second = (torch.arange(tensor.numel(), device=tensor.device) % 2 == first).view(tensor.shape)
    return torch.where(alike & second, -tensor, tensor)


def _with_large(rates: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The rates, some rows (last dim) larger; not so large that a half type has not all whole numbers about them."""
    least, most = _RATES[0], min(_RATES[1], 1 / torch.finfo(rates.dtype).eps)
    rows = (*rates.shape[:-1], 1)
    chosen = torch.randint(_FEW_RATES, rows, generator=generator, device=rates.device) == 0
    factor = least * (most / least) ** torch.rand(rows, generator=generator, device=rates.device)
    return torch.where(chosen, (rates * factor).clamp(max=most).to(rates.dtype), rates)


def _constant(spec: TensorSpec, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """One secret value (0-d), of either sign where the values may be negative, in [0.5, 2] times the scale."""
    unit = torch.rand(2, generator=generator, device=generator.device)
    if spec.values in ("uniform", *_CENTRED):
        value = unit[0] if spec.values == "uniform" else 2 * unit[0] - 1
    elif spec.values in ("variance", "ones_normal", "above_one"):
        value = unit[0] + (1 if spec.values == "above_one" else 0.5)
    else:
        value = unit[0] * 1.5 + 0.5
        if spec.values == "normal":
            value = torch.where(unit[1] < 0.5, -value, value)
    return (value * spec.scale).to(dtype)


def _discrete(spec: TensorSpec, shape: tuple[int, ...], distribution: str, generator: torch.Generator) -> torch.Tensor:
    """Integers and flags as data: constant, zeros, ordered and binned keep their meaning, the others have none."""
    if distribution == "zeros":
        least = 0 if spec.values != "integers" else min(max(0, spec.low), max(spec.high - 1, spec.low))
        return torch.full(shape, least, dtype=_dtype(spec.dtype), device=generator.device)
    if distribution in ("constant", "full"):
        value = _values(spec, (1,) * len(shape), generator)
        if distribution == "full":  # counted, whatever is
            value = torch.where(value == 0, spec.high - 1, value).to(value.dtype)
        return value.expand(shape).contiguous()
    tensor = _values(spec, shape, generator)
    if spec.values == "bool":
        return structures.sparse_flags(spec, tensor, generator)
    ordered = distribution in ("ordered", "binned") and spec.values == "integers" and spec.along
    return structures.by_rows(spec, tensor, distribution, generator) if ordered else tensor
