"""Secret inputs: their values, drawn on the device, and where their elements lie in memory.

Every tensor comes from a generator of its own, seeded from the secret and the argument's position, so nothing larger
than a seed is ever made on the host and no argument tells anything about another. Of each memory layout there are
variants, so that the strides of one argument do not follow from another's; ``buffers.py`` lays tensors out by these
numbers. See ``docs/correctness.md`` for what each distribution is there to find.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval.devices import contiguous_strides
from kerneleval.judge.windows import structures
from kerneleval.judge.windows.matrices import HALF_LINK, faint, leaning, linked, off_eye, resized, skew, turned
from kerneleval.judge.windows.whole_numbers import mark_ignored, widen
from kerneleval.records import (
    DISTRIBUTIONS,
    LAYOUTS,
    ROW_DISTRIBUTIONS,
    Argument,
    Case,
    Scalar,
    TensorSpec,
    UsageError,
    digest,
    near,
)

_PAD = 3
"""Elements between the rows of a slice, and before a 1-D one."""

_PACKED = 3
"""Projections that lie in one tensor, as queries, keys and values do."""

_ROOM = 8
"""Elements between the columns of a transposed slice: none is misaligned that would not be without."""


def strided(layout: str, spec: TensorSpec, variant: int = 0) -> tuple[int, tuple[int, ...], int]:
    """(elements of storage, strides, storage offset) that realise a layout, all in elements. Its forms are listed in
    ``docs/correctness.md``.

    Where a layout has several forms, the sizes say which; a ``variant`` (1 to 3) is the next of them, and so on: no
    layout has more than four. A tensor without elements is contiguous in every layout, and so is a scalar, except under
    ``offset``.

    Raises:
        UsageError: an unknown layout.
    """
    shape = spec.shape
    if layout not in LAYOUTS:
        raise UsageError(f"layout {layout!r} is unknown; {near(layout, LAYOUTS)}")
    plain = contiguous_strides(shape)
    if spec.numel == 0:
        return 0, plain, 0
    if layout == "offset":
        return spec.numel + 1, plain, 1
    if layout == "contiguous" or not shape:
        return spec.numel, plain, 0
    if layout == "transposed":
        return _transposed(shape, variant)
    if layout == "sliced":
        return _sliced(shape, variant)
    dims = expanded_dims(spec)
    reduced = [1 if dim in dims else size for dim, size in enumerate(shape)]
    strides = tuple(0 if dim in dims else step for dim, step in enumerate(contiguous_strides(reduced)))
    return math.prod(reduced), strides, 0


def _transposed(shape: tuple[int, ...], variant: int) -> tuple[int, tuple[int, ...], int]:
    if len(shape) == 1:
        return 2 * shape[0] - 1, (2,), 0
    dims, number = tuple(range(len(shape))), sum(shape)
    order, room = (*dims[:-2], dims[-1], dims[-2]), (number + variant) % 2
    if len(dims) == 3:
        order = (order, (1, 0, 2))[room]
    elif len(dims) > 3:
        heads, plain = (0, 2, 1, *dims[3:]), number // 3 % 2
        forms = ((order, 0), (heads, 1 - plain), ((0, *dims[2:], 1), 0), (heads, plain))
        order, room = forms[(number % 3 + variant) % 4]
    sizes = [shape[dim] for dim in order]
    if len(dims) == 2 and room:
        sizes[-1] += _ROOM
    if len(dims) == 4 and room:
        sizes[2] *= _PACKED
    inner = dict(zip(order, contiguous_strides(sizes), strict=True))
    return math.prod(sizes), tuple(inner[dim] for dim in range(len(shape))), 0


def _sliced(shape: tuple[int, ...], variant: int) -> tuple[int, tuple[int, ...], int]:
    if len(shape) == 1:
        return shape[0] + 2 * _PAD, (1,), _PAD
    *outer, rows, width = shape
    every, offset = 1, 0
    match (sum(shape) + variant) % 3, len(shape):
        case 0, _:
            sizes, offset = (*outer, rows, 2 * width), width
        case 1, _:
            sizes = (*outer, rows, width + _PAD + width % 2)
        case _, 2:
            sizes, every = (3 * rows, width), 3  # not 2: the right half of wider rows has the same strides
        case _:
            sizes, offset = (*outer, rows + _PAD, width), width
    strides = contiguous_strides(sizes)
    return math.prod(sizes), (every * strides[0], *strides[1:]), offset


def gradient_of(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    """The upstream gradient of an output."""
    return TensorSpec(name="gradient", shape=shape, dtype=dtype, role="gradient")


def laid_out(tensor: torch.Tensor, layout: str, spec: TensorSpec) -> torch.Tensor:
    """A copy, lying as the layout says, of a tensor of the spec's shape; along a stride of 0 the first element counts.

    Raises:
        UsageError: an unknown layout.
    """
    extent, strides, offset = strided(layout, spec)
    out = tensor.new_zeros(extent).as_strided(spec.shape, strides, offset)
    target = out
    for dim, stride in enumerate(strides):
        if stride == 0 and spec.shape[dim] > 1:
            target, tensor = target.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    target.copy_(tensor)
    return out


def expanded_dims(spec: TensorSpec) -> tuple[int, ...]:
    """The dims along which the ``expanded`` layout repeats: the first with more than one element; of upstream gradients
    the sizes choose (``docs/correctness.md``). In more dims all are not: gradients of normalisations are nothing then.
    """
    dims = [dim for dim, size in enumerate(spec.shape) if size > 1]
    if spec.role != "gradient" or not dims:
        return tuple(dims[:1])
    match sum(spec.shape) % 3, len(spec.shape):
        case 0, _:
            return (dims[0],)
        case 1, 2:
            return tuple(dims)
    return (dims[-1],)


OUTLIER_SHARE = 1e-3
"""Share of the elements that ``outlier`` multiplies (KernelBench-X)."""

OUTLIER_FACTOR = 50.0
"""What it multiplies them by (KernelBench-X)."""

SMALL_SCALE = 1e-3
"""Factor of ``small_scale``."""

LARGE_SCALE = 1e5
"""Factor of ``large_scale``: beyond the range of half types, in which a kernel may hold parts of wider numbers. float16
itself gets ``TensorSpec.large_half``."""

_WEIGHT_SCALE = {"outlier": 4.0, "large_scale": 8.0, "small_scale": 0.125}
"""Factors of weights beside data of these distributions; gains about 1 get secret signs there as well."""

_UPSTREAM_SCALE = {"outlier": 256.0, "large_scale": 1024.0, "small_scale": 1 / 256}
"""Factors of upstream gradients there, as scaled losses have them; float16 keeps its own size."""

_COMMON_SPREAD = 0.25
"""Standard deviation of ``common`` data about ``TensorSpec.common``; half types have 1."""

_HALF_STEPS = 16
"""Multiples of a scale beside which ties lie, or of a divisor, at most."""

_LARGEST = 3
"""Further places of a row's largest score under ``large_scale``."""

_NONFINITE = (float("nan"), float("inf"), float("-inf"))
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_MEETING = (*_NONFINITE, 0.0, -0.0, 1.0)
_NONFINITE_EACH = 4
_RARELY = 8
"""One in so many calls is of the other kind than its layout has (:func:`_apart`)."""
_RESET = 64
"""One in so many gates is ``Arg.reset``."""
_IDLE = 8
"""One in so many rows is ``Arg.idle``."""
_VANISHED = 16
"""One in so many gains is 0 beside ``outlier`` data."""
_FEW_GAINS = 4
"""Of fewer gains none is: an output that is nothing but a bias would hide all else."""
_MISSING = 16
"""One in so many numbers is NaN in data of which some may be."""
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
_APART = 1.125
"""Part of this at which the others begin: one may be the largest alone in half types, too."""
_HALF_FARTHEST = 6
"""One over the part of the largest float16 that they are there: divided by a temperature they are finite."""
_MOST_NEARING = 7
"""Exponents of the factors of ``Arg.nearing``."""
_NEAR_EPSILON = 64.0
"""From an eighth of an epsilon to eight of it."""
_FAR_DOWN = -1000.0
"""A score beside 0 of which exp is 0 in every type."""
_BORDER, _BORDER_HALF = 4, 16
"""One in so many numbers lies at a border. Borders are exact in bfloat16: of many, float16 cut to it would not show."""
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
    each distribution holds, and which arguments follow it, is in ``docs/correctness.md``.

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
            if (case.direction, case.distribution) == ("backward", "common") and spec.slow[0] < 1:
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
    """Puts in what several arguments share, and what replaces parts of them; not where elements must be equal."""
    if any(isinstance(spec, TensorSpec) and spec.wide for spec in specs):
        widen(specs, values, case, stream(seed, "whole numbers", device))
    if any(isinstance(spec, TensorSpec) and spec.ignored for spec in specs):
        mark_ignored(specs, values, stream(seed, "ignored", device))
    if case.distribution == "nonfinite" and case.layout != "expanded":
        _meeting(specs, values, seed)
        _open_targets(specs, values)
    _sign_nans(specs, values, case, seed)
    if case.layout == "expanded":
        return
    match case.distribution:
        case "standard":
            _even_rows(specs, values, seed)
            _at_borders(specs, values, case.direction, seed)
            _unset(specs, values, seed)
            _idle(specs, values, seed)
            _resets(specs, values, seed)
            _half_steps(specs, values, seed)
            _multiples(specs, values, seed)
            _one_sided(specs, values, seed)
        case "ordered":
            _last_places(specs, values, seed)
        case "common" if case.direction == "forward":
            _far_scores(specs, values, seed)
        case "full":
            _all_different(specs, values)
        case "large_scale" | "small_scale":
            _extreme(specs, values, case, seed)
            if case.direction == "forward":
                (_far_rows if case.distribution == "large_scale" else _nearer)(specs, values, seed)
    if case.distribution == "small_scale":
        _tiny_rows(specs, values, case.direction, seed)


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


def _open_targets(specs: Sequence[Argument], values: Sequence[Any]) -> None:
    """Puts 0 at the place of each row of ``masked_apart`` that an index for each row names, where it is -inf: such a
    row's loss is infinite, and so is the mean.
    """
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.nonfinite == "masked_apart" and value.numel():
            for other, places in zip(specs, values, strict=True):
                if isinstance(other, TensorSpec) and other.role == "index" and other.shape == value.shape[:-1]:
                    at = places[..., None].long()
                    named = value.gather(-1, at)
                    value.scatter_(-1, at, torch.where(named == -math.inf, torch.zeros_like(named), named))


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
    if spec.role == "weight" and case.distribution in _WEIGHT_SCALE and tensor.is_floating_point():
        tensor.mul_(_WEIGHT_SCALE[case.distribution])
        if spec.values == "ones_normal":
            tensor.mul_(torch.randint(0, 2, tensor.shape, generator=generator, device=tensor.device).mul_(2).sub_(1))
        if spec.vanishes and case.distribution == "outlier" and tensor.numel() >= _FEW_GAINS:
            gone = torch.randint(_VANISHED, tensor.shape, generator=generator, device=tensor.device) == 0
            tensor.masked_fill_(gone, 0)
    if spec.role == "mask" and spec.values == "bool" and tensor.ndim and tensor.shape[-1]:
        tensor = structures.opened(tensor, generator)
        tensor = structures.lonely(tensor, generator) if case.direction == "forward" else tensor
    if spec.scale != 1 and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.mul_(spec.scale)
    return tensor


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
    return tensor.div_(step).round_().mul_(step) if step else tensor


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
    elif distribution == "common" and spec.common and (dtype.itemsize > 2 or spec.scores):
        spread = _COMMON_SPREAD if dtype.itemsize > 2 else 1.0  # half types have few numbers there
        return tensor.mul_(spread).add_(_about(spec, tensor, generator))
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
    values = _NONFINITE[:1] if spec.nonfinite in ("nan", "masked_nan") else _NONFINITE[spec.nonfinite == "infinite" :]
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
        for number, value in enumerate(_NONFINITE if spec.nonfinite == "ieee" else _NONFINITE[:1]):
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


def _meeting(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """Puts infinities, NaN, zeros and 1 at places that are the same in all floating arguments of a shape, so that every
    pair of them meets: equal and opposite infinities, each of them and NaN, a zero and each; the last of them where
    there is room.
    """
    alike: dict[tuple[int, ...], list[torch.Tensor]] = {}
    for spec, value in zip(specs, values, strict=True):
        if not isinstance(spec, TensorSpec) or spec.role != "data" or spec.values in ("integers", "bits", "bool"):
            continue
        if spec.nonfinite in ("ieee", "limits") and value.is_floating_point() and value.itemsize > 1:
            alike.setdefault(tuple(value.shape), []).append(value)
    for shape, together in alike.items():
        room = (n for n in range(len(_MEETING), len(_NONFINITE) - 1, -1) if 8 * n ** len(together) <= math.prod(shape))
        count = next(room, 0)
        if len(together) < 2 or not count:
            continue
        kinds = count ** len(together)
        generator = stream(seed, f"meeting {shape}", str(together[0].device))
        places = torch.randperm(math.prod(shape), generator=generator, device=generator.device)[:kinds]
        for position, value in enumerate(together):
            digits = torch.arange(kinds, device=value.device) // count**position % count
            value.view(-1)[places] = value.new_tensor(_MEETING)[digits]


def _sign_nans(specs: Sequence[Argument], values: Sequence[Any], case: Case, seed: int) -> None:
    """Sets the sign bit of all NaN in three of four rows (last dim; ``Arg.nan_signs``), by whole numbers: arithmetic
    may not keep it. Where rows must be equal, in all or none.
    """
    for position, (spec, value) in enumerate(zip(specs, values, strict=True)):
        if not isinstance(spec, TensorSpec) or not spec.nan_signs or not value.is_floating_point():
            continue
        if (case.distribution == "nonfinite" or spec.missing or spec.values == "special") and value.itemsize > 1:
            generator = stream(seed, f"signs of nan {position}", str(value.device))
            rows = value.ndim * (1,) if case.layout == "expanded" else (*value.shape[:-1], 1)[: value.ndim]
            chosen = torch.randint(4, rows, generator=generator, device=value.device) > 0
            bits = value.view(_BITS[value.itemsize])
            bits.copy_(torch.where(chosen & value.isnan(), bits | torch.iinfo(bits.dtype).min, bits))


def _extreme(specs: Sequence[Argument], values: Sequence[Any], case: Case, seed: int) -> None:
    """Powers of two, the same for all arguments that are ``TensorSpec.extreme``: quotients and what is exact stay so.
    Large data go up to the end of the range at half of the places, and lie there at one in eight; small data, but those
    of float16, are all so small that no square of them is left; unless only ``"large"`` or ``"small"`` ones are wanted;
    ``"floors"`` are less small. ``"angles"`` go up to 64 times as far, and lie there at one in eight; backward, too.
    """
    distribution, backward = case.distribution, case.direction == "backward"
    quotients = distribution == "small_scale" and any(isinstance(spec, TensorSpec) and spec.divides for spec in specs)
    for spec, value in zip(specs, values, strict=True):
        if (
            not isinstance(spec, TensorSpec)
            or spec.extreme in (False, "rows")
            or (backward and spec.extreme != "angles")
        ):
            continue
        if quotients:
            value.mul_(2.0**-_QUOTIENT if spec.divides and value.dtype != torch.float16 else 1.0)
            continue
        generator = stream(seed, f"extreme {spec.shape}", str(value.device))
        if distribution == "large_scale" and spec.extreme not in _SMALLER:
            large = spec.large_half if value.dtype == torch.float16 else LARGE_SCALE
            most = _MOST_ANGLE if spec.extreme == "angles" else _most_exponent(value.dtype, large)
            if spec.extreme == "angles" and value.dtype != torch.float32:  # kernels in half types may round the angle
                continue
            places = torch.randint(-most, most + 1, value.shape, generator=generator, device=value.device)
            end = torch.randint(8, value.shape, generator=generator, device=value.device) == 0
            places.masked_fill_(end, most)
            value.mul_(torch.exp2(places.clamp_(min=0).double()).to(value.dtype))
        elif distribution == "small_scale" and value.dtype != torch.float16 and spec.extreme in (True, *_SMALLER):
            smaller = torch.randint(
                *_SMALLER.get(str(spec.extreme), _UNDERFLOW), (), generator=generator, device=value.device
            )
            value.mul_(2.0 ** -int(smaller))


def _far_rows(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """In every second call, all rows of an argument whose ``extreme`` is ``"rows"`` lie far below or above 0, with one
    element that is the largest by far. Where it names no rows, those of half of these calls all lie below: they may run
    along any dim.
    """
    for spec, value in zip(specs, values, strict=True):
        if not isinstance(spec, TensorSpec) or spec.extreme != "rows" or spec.role != "data":
            continue
        generator = stream(seed, f"far rows {spec.name}", str(value.device))
        kind = int(torch.randint(4, (), generator=generator, device=generator.device))
        if kind < 2 or not value.is_floating_point() or not value.numel():
            continue
        row = spec.along or (value.ndim - 1,)
        rows = [1 if dim in row else count for dim, count in enumerate(value.shape)]
        side = torch.randint(2, rows, generator=generator, device=value.device) * 2 - 1
        side = side if spec.along or spec.common_signs or kind == 2 else side.new_tensor(-1)
        large = spec.large_half if value.dtype == torch.float16 else LARGE_SCALE
        far = (value.double().abs() / (4 * large * spec.scale) + _APART) * side
        first = torch.rand(value.shape, generator=generator, device=value.device)
        far = torch.where(first == first.amax(row, keepdim=True), torch.where(side < 0, -1.0, 3.0), far)
        farthest = _FAR_SCORES if spec.scores else _FARTHEST
        value.copy_(far * min(farthest, torch.finfo(value.dtype).max / _HALF_FARTHEST))
        if spec.scores and value.dtype == torch.float32:
            value.copy_((value / _FAR_STEP).round() * _FAR_STEP)


def _far_scores(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """Draw keys as ``Arg.apart`` says, and enlarge the queries: a number put for the scores of hidden keys may be the
    largest then. Keys are equal along all other dims and exact in TF32, so their order survives every rounding. Where
    there are more keys than ``_MOST_KEYS``, nothing changes.
    """
    tensors = [(s, v) for s, v in zip(specs, values, strict=True) if isinstance(s, TensorSpec) and s.common]
    keys = [(spec, value) for spec, value in tensors if spec.apart and value.dtype == torch.float32]
    if not keys or int(torch.randint(2, (), generator=stream(seed, "far scores", "cpu"))):
        return
    for spec, value in keys:
        sizes = [count if dim in spec.apart else 1 for dim, count in enumerate(value.shape)]
        if math.prod(sizes) > _MOST_KEYS:
            return
        generator = stream(seed, f"order of {spec.name}", str(value.device))
        order = torch.randperm(math.prod(sizes), generator=generator, device=value.device).view(sizes)
        value.copy_((_NEAREST_KEY + order * _KEY_STEP).expand(value.shape))
    for spec, value in tensors:
        if spec.common_signs:
            value.mul_(_FAR_QUERY)


def _nearer(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """Multiply arguments that are ``nearing`` by a secret power of two, up to 64."""
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.nearing:
            generator = stream(seed, f"nearing {spec.name}", "cpu")
            value.mul_(2.0 ** int(torch.randint(_MOST_NEARING, (), generator=generator)))


def _tiny_rows(specs: Sequence[Argument], values: Sequence[Any], direction: str, seed: int) -> None:
    """Half of the rows (last dim) of arguments with an ``epsilon`` have norms down to an eighth of it; half of these,
    up to eight of it. Backward not in half types: gradients jump there, and norms are rounded to the type.
    """
    for position, (spec, value) in enumerate(zip(specs, values, strict=True)):
        if not isinstance(spec, TensorSpec) or not spec.epsilon or not value.numel() or value.dtype == torch.float16:
            continue
        if direction == "backward" and (value.itemsize == 2 or not spec.epsilon_backward):
            continue
        generator = stream(seed, f"tiny rows {position}", str(value.device))
        unit = torch.rand((*value.shape[:-1], 1), generator=generator, device=value.device, dtype=torch.float64)
        about = spec.epsilon / (SMALL_SCALE * spec.scale * math.sqrt(value.shape[-1]))
        least = math.log(min(1.0, about / 8))
        near = (least + (4 * unit - 3) * math.log(_NEAR_EPSILON)).clamp_(max=0)
        value.mul_(torch.exp(torch.where(unit < 0.75, (4 * unit - 2).clamp_(min=0) * least, near)).to(value.dtype))


def _even_rows(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """One in four rows (last dim) of arguments that are ``TensorSpec.even``: 2, 4, 8 or the most possible of its scores
    are 0, one after the other from a secret place on, and the others far below. A share of the row (an argument of as
    many rows) is 1, or less than 1 and what some of them have together where it may be more than 1, too.
    """
    for spec, value in zip(specs, values, strict=True):
        if not isinstance(spec, TensorSpec) or not spec.even or not value.numel() or value.shape[-1] < 2:
            continue
        generator = stream(seed, f"even {spec.name}", str(value.device))
        rows, width = (*value.shape[:-1], 1), value.shape[-1]

        def secret(high: int, of: Sequence[int] = rows, generator: torch.Generator = generator) -> torch.Tensor:
            return torch.randint(high, of, generator=generator, device=generator.device)

        chosen, power, most = secret(4) == 0, secret(4) + 1, width.bit_length() - 1
        count = 1 << torch.where(power == 4, most, power.clamp(max=most))
        alike = (torch.arange(width, device=value.device) + secret(width)) % width < count
        value.copy_(torch.where(chosen, torch.where(alike, 0.0, _FAR_DOWN).to(value.dtype), value))
        some = (secret(1 << 30) % (count - 1) + 1) / count
        for other, share in zip(specs, values, strict=True):
            if isinstance(other, TensorSpec) and other.shape == value.shape[:-1]:
                part = some if other.values == "variance" else torch.ones_like(some)
                share.copy_(torch.where(chosen, part.to(share.dtype), share[..., None])[..., 0])


def _at_borders(specs: Sequence[Argument], values: Sequence[Any], direction: str, seed: int) -> None:
    """Puts each of ``Arg.borders``, and what is ``beside`` it, at secret places, a quarter of all together and in
    float16 a sixteenth, and one number beyond them on each side; backward not at the 0 where a range begins: gradients
    are infinite there.
    """
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.borders:
            if direction == "backward" and spec.differentiable and spec.values == "nonnegative":
                continue
            generator = stream(seed, f"borders {spec.name}", str(value.device))
            given = value.new_tensor(spec.borders)
            if spec.beside:
                bits = given.view(_BITS[value.itemsize])
                steps = torch.tensor([[-1], [0], [1]], dtype=bits.dtype, device=value.device) * (given != 0)
                given = (bits + steps).view(value.dtype).flatten()
            one_in = _BORDER_HALF if value.dtype == torch.float16 else _BORDER
            kind = torch.randint(one_in * len(given), value.shape, generator=generator, device=value.device)
            value.copy_(torch.where(kind < len(given), given[kind.clamp(max=len(given) - 1)], value))
            beyond = (min(spec.borders) - 1, max(spec.borders) + 1)
            if spec.values == "normal" and value.numel() >= len(beyond):
                places = torch.randperm(value.numel(), generator=generator, device=value.device)[: len(beyond)]
                value.view(-1)[places] = value.new_tensor(beyond)


def _all_different(specs: Sequence[Argument], values: Sequence[Any]) -> None:
    """Lets whole numbers differ from those of the argument before at every place: what differs is counted."""
    whole = [v for v, s in zip(values, specs, strict=True) if isinstance(s, TensorSpec) and s.values == "integers"]
    for one, other in itertools.pairwise(whole):
        other.copy_(one ^ 1)


def _last_places(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """In every second row, from the first or the second one on: indices of one place in each row name the least
    element, which has the largest rank, numbers of places are all of the row's, and one of the numbers that are sought
    in the row is above all of its elements.
    """
    tensors = [(spec, value) for spec, value in zip(specs, values, strict=True) if isinstance(spec, TensorSpec)]
    for row, value in tensors:
        for spec, places in tensors if row.along and value.ndim > 1 and value.numel() else ():
            generator = stream(seed, f"last places {spec.name}", "cpu")
            if spec.role == "index" and spec.shape == value.shape[:-1] and spec.high - spec.low == value.shape[-1]:
                first = int(torch.randint(2, (), generator=generator)) % len(places)
                places[first::2] = spec.high - 1 if spec.low else value[first::2].argmin(-1)
            elif spec.edges and row.edges and spec.shape[:-1] == row.shape[:-1] and 0 < spec.shape[-1] < row.shape[-1]:
                first, place = torch.randint(1 << 30, (2,), generator=generator).tolist()
                largest = value[first % min(2, len(value)) :: 2].amax(-1)
                places[first % min(2, len(value)) :: 2, ..., place % places.shape[-1]] = 1 + largest + largest.abs()


def _unset(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """Makes what is ``TensorSpec.unset`` 0 in half of the calls."""
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.unset:
            generator = stream(seed, f"unset {spec.name}", "cpu")
            value.mul_(int(torch.randint(2, (), generator=generator)))


def _idle(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """What ``Arg.idle`` says. The first such argument has the rows; others may have dims in front of them."""
    own = [value for spec, value in zip(specs, values, strict=True) if isinstance(spec, TensorSpec) and spec.idle]
    if own and own[0].dtype != torch.float16:
        generator = stream(seed, "idle", str(own[0].device))
        rows = torch.randint(_IDLE, (*own[0].shape[:-1], 1), generator=generator, device=own[0].device) == 0
        rows &= ~rows.all()  # or nothing but zeros comes out
        for value in own:
            value.masked_fill_(rows, 0)


def _resets(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """Puts ``Arg.reset`` at secret places of data in half types, and of others at half of the last steps."""
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.reset and value.numel():
            generator = stream(seed, f"resets {spec.name}", str(value.device))
            most, (steps,) = _RESET if value.itemsize == 2 else 2, spec.along
            gone = torch.randint(most, value.shape, generator=generator, device=value.device) == 0
            if value.itemsize > 2:
                gone.narrow(steps, 0, value.shape[steps] - 1).fill_(False)
            value.masked_fill_(gone, spec.reset)


def _one_sided(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """What ``Arg.one_sided`` says: an eighth of the rows have no number below 0, and as many none above."""
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.one_sided and value.numel():
            generator = stream(seed, f"one-sided {spec.name}", str(value.device))
            rows = (*value.shape[:-1], 1)
            kind = torch.randint(8, rows, generator=generator, device=value.device)
            distance = torch.rand(rows, generator=generator, device=value.device).to(value.dtype)
            above = value.abs() + value.abs().amax(-1, keepdim=True) * distance
            value.copy_(torch.where(kind == 0, above, torch.where(kind == 1, -above, value)))


def _half_steps(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """What ``Arg.ties`` says, of whole multiples that fit every half type, beside which those of e4m3fn are few."""
    for spec, value in zip(specs, values, strict=True):
        if not isinstance(spec, TensorSpec) or not spec.ties or not value.numel():
            continue
        generator = stream(seed, f"ties {spec.name}", str(value.device))
        if int(torch.randint(2, (), generator=generator, device=generator.device)):
            continue
        step = next(v for one, v in zip(specs, values, strict=True) if one.name == spec.ties)
        if isinstance(step, torch.Tensor):
            step.copy_(torch.exp2(step.double().log2().round()))
        multiples = torch.randint(-_HALF_STEPS, _HALF_STEPS, value.shape, generator=generator, device=value.device)
        chosen = torch.randint(4, value.shape, generator=generator, device=value.device) == 0
        halves = (multiples + 0.5) * (step.double() if isinstance(step, torch.Tensor) else step)
        value.copy_(torch.where(chosen, halves.to(value.dtype), value))


def _multiples(specs: Sequence[Argument], values: Sequence[Any], seed: int) -> None:
    """What ``Arg.multiple_of`` says: divisors are numbers of fp32, so that their multiples are exact."""
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.multiple_of and value.dtype == torch.float64:
            generator = stream(seed, f"multiples {spec.name}", str(value.device))
            divisor = next(v for one, v in zip(specs, values, strict=True) if one.name == spec.multiple_of)
            divisor.copy_(divisor.float())
            times = torch.randint(-_HALF_STEPS, _HALF_STEPS, value.shape, generator=generator, device=value.device)
            chosen = torch.randint(4, value.shape, generator=generator, device=value.device) == 0
            value.copy_(torch.where(chosen, times * divisor, value))


def _most_exponent(dtype: torch.dtype, scale: float) -> int:
    """The largest power of two by which normal numbers times a scale may be multiplied, with room for a sum of two."""
    return int(min(math.log2(torch.finfo(dtype).max), _MOST_EXPONENT) - math.log2(scale)) - 4


def _sparse(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """In half of the rows (last dim; of more than two dims in an eighth as many) some elements are exactly 0: see
    ``docs/correctness.md``. No more, because equal terms are all rounded the same way: a variance summed in turn, where
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


def _about(spec: TensorSpec, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | float:
    """What ``common`` data lies about: one number, or one of secret sign for each row."""
    if not spec.common_signs:
        return spec.common
    rows = (*tensor.shape[:-1], 1)
    signs = torch.randint(0, 2, rows, generator=generator, device=tensor.device).mul_(2).sub_(1)
    return signs.to(tensor.dtype).mul_(spec.common)


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
        return torch.where(torch.randint(_BORDER, shape, generator=generator, device=device) == 0, beside, tensor)
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
        most = _most_exponent(dtype, spec.large_half if dtype == torch.float16 else LARGE_SCALE)
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
