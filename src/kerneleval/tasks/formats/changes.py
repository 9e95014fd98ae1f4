"""How the inputs and weights of a problem file are made other ones: by a little, and under its distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from kerneleval.records import FAR_DEVIATION
from kerneleval.tasks.formats.soundness import is_eight_bit
from kerneleval.tasks.formats.traits import are_flags, is_float, is_ordered, sums_to_one

_ALIKE = 1.0 / 16.0
"""Under ``alike``, what is left of the rows' distance from one of them."""

_NEARER = 8.0
"""Rows of boxes keep from all of their way to another to 2 to the minus this of it, any power as likely."""

_PADDED_ROWS, _PADDED, _ENDS = 4, 8, 16
"""Under ``padded``, one row in so many is zero, one is from a place on, one element in so many is elsewhere, and where
all numbers are within [0, 1) one in so many is 1."""

_FEW_VALUES = 4
"""Under ``padded``, half of a vector has so many numbers of it at most."""

_OUTLIERS, _OUTLIER = 1e-3, 10.0
"""Under ``outlier``, this share of the elements is this many times as large."""

LAST, _HEAVY = 8, 0.25
"""There, one of the last eight elements is as large as a quarter of the norm of all: a kernel that leaves out the end
of a long sum has left out much of it. Each argument has it at another place: at one place they would cancel in every
difference."""

_FAINT = 0.01
"""A constant parameter below this size keeps a branch out of a network that has learned nothing yet (layer scale)."""

Vary = Literal["freely", "inwards", "never"]
"""How far arguments that a file gives alike under every seed, or weights, are varied: as ``ModuleProblem.inputs`` and
``ModuleProblem.weights`` say; within the range of their own numbers (:func:`mirrored_inwards`); or not at all."""

_SPREAD = 0.2
"""Of weights, the part of themselves by which constant ones change at most."""


def make_vary(
    tensor: torch.Tensor, generator: torch.Generator, *, inwards: bool, rows: bool = False, parts: bool = False
) -> torch.Tensor:
    """A constant input made to vary, by element or by ``rows``: see :meth:`ModuleProblem.inputs` and :data:`Vary`;
    ``parts``: these are the parts of complex numbers.
    """
    if tensor.is_complex():
        return _as_complex(make_vary(_as_real(tensor), generator, inwards=inwards, parts=True))
    if is_eight_bit(tensor):
        most = torch.finfo(tensor.dtype).max
        return make_vary(tensor.float(), generator, inwards=inwards).clamp(-most, most).to(tensor.dtype)
    if not torch.any(tensor != 0):
        varied = tensor + 0.1 * _normal(tensor, generator)
    else:
        like = tensor[..., :1] if rows else tensor if parts else _movable(tensor)
        varied = torch.where(torch.isfinite(tensor), tensor * _factors(like, 0.1, generator), tensor)
    return mirrored_inwards(tensor, varied) if inwards else varied


def with_norms(given: torch.Tensor, varied: torch.Tensor) -> torch.Tensor:
    """``varied`` with rows that sum to 1, or have length 1, as those of the given tensor do."""
    sums = sums_to_one(given)
    return torch.div(varied, varied.sum(-1, keepdim=True) if sums else varied.norm(dim=-1, keepdim=True))


def turned(rotations: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The rotations after another one, near none; a shift beside them (4 x 4) stays."""
    size = 3 if rotations.shape[-1] == 4 else rotations.shape[-1]
    noise = torch.randn(size, size, generator=generator, device=rotations.device, dtype=torch.float64)
    q, r = torch.linalg.qr(torch.eye(size).to(noise) + 0.1 * noise)
    turn = torch.eye(rotations.shape[-1]).to(noise)
    turn[:size, :size] = q * r.diagonal().sign()
    return torch.matmul(turn, rotations.double()).to(rotations.dtype)


def _movable(tensor: torch.Tensor) -> torch.Tensor:
    """What may change by factors of its own: each element, or all of them together where they are in order."""
    return tensor.reshape(-1)[:1].reshape((1,) * tensor.dim()) if is_ordered(tensor) else tensor


def change_weight(
    name: str, tensor: torch.Tensor, parameter: bool, generator: torch.Generator, *, parts: bool = False
) -> torch.Tensor:
    """A weight with other content of like scale: see :meth:`ModuleProblem.weights`; ``parts``: as :func:`make_vary`."""
    if tensor.is_complex():
        return _as_complex(change_weight(name, _as_real(tensor), parameter, generator, parts=True))
    if not is_float(tensor) or not tensor.numel():
        return tensor
    if not torch.any(tensor != 0):
        return tensor + 0.1 * _normal(tensor, generator)
    if parameter or name.rpartition(".")[2] == "running_mean":
        mean, std = tensor.mean(), tensor.std(correction=0)
        if bool(torch.isfinite(std)) and bool(std > 1e-3 * mean.abs()):
            return mean + 0.8 * (tensor - mean) + 0.6 * std * _normal(tensor, generator)
    if not (parameter or parts) and are_flags(tensor):
        return tensor
    like = tensor if parameter or parts else _movable(tensor)
    return torch.where(torch.isfinite(tensor), tensor * _factors(like, _SPREAD, generator), tensor)


def mirrored_inwards(given: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """``changed``, mirrored at the ends of the given tensor's range; for that of a single number counts what lies
    between it and its half, and for that of zeros [0, 1]. Probabilities stay such, and so does what has a root.
    """
    if given.is_complex():
        return _as_complex(mirrored_inwards(_as_real(given), _as_real(changed)))
    if not given.is_floating_point() or not given.numel():
        return changed
    if not torch.any(given != 0):
        return changed.abs().clamp(max=1)
    low, high = given.aminmax()
    if bool(low == high):  # the range of one number is from there to a half of it
        low, high = torch.minimum(low, low / 2), torch.maximum(high, high / 2)
    inside = torch.where(changed < low, low + (low - changed), changed)
    return torch.where(inside > high, high + (high - inside), inside).clamp(low, high)


def as_trained(
    made: torch.Tensor, changed: torch.Tensor, generator: torch.Generator, *, mild: bool = False
) -> torch.Tensor:
    """A parameter as training might leave it: see :meth:`ModuleProblem.weights`."""
    if made.is_complex():
        return _as_complex(as_trained(_as_real(made), _as_real(changed), generator, mild=mild))
    if not made.is_floating_point() or not made.numel():
        return changed
    if not torch.any(made != 0):
        return changed * 10
    mean, std = made.mean(), made.std(correction=0)
    if bool(std > 1e-3 * mean.abs()):
        return changed if mild else changed * 2
    size = torch.where(mean.abs() < _FAINT, torch.ones_like(mean), mean)
    return size * _signs(made, generator) * _powers(made.shape, 1.0 if mild else 3.0, made, generator)


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The real and imaginary parts of a complex tensor, which change each for itself."""
    return torch.view_as_real(tensor.resolve_conj())


def _as_complex(parts: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(parts.contiguous())


_BY_ITEM, BELOW = 0.5, 0.6
"""How often items have signs of their own; and where they have not, how often the whole tensor is below 0."""


def make_uneven(tensor: torch.Tensor, end: int, generator: torch.Generator) -> torch.Tensor:
    """Rows of sizes of their own, from 1/16 to 16 times theirs, secret signs, a few large elements, and a heavy one
    ``end`` places before the last.
    """
    rows = (*tensor.shape[:-1], 1) if tensor.dim() > 1 else tensor.shape
    flat = _signs(tensor, generator).mul_(tensor).mul_(_powers(rows, 4.0, tensor, generator)).reshape(-1)
    if flat.numel():
        count = max(1, round(flat.numel() * _OUTLIERS))
        places = torch.randint(flat.numel(), (count,), generator=generator, device=flat.device).unique()
        flat[places] = flat[places] * _OUTLIER
        last = flat.numel() - 1 - end % flat.numel()
        flat[last] = _HEAVY * torch.linalg.vector_norm(flat) * _signs(flat[last], generator)
    return flat.view(tensor.shape)


def far_from_zero(tensor: torch.Tensor, far: float) -> torch.Tensor:
    """The tensor as a whole at so many standard deviations from 0, so that every part of it is of which a mean is taken
    off. Half types have too few digits for it.
    """
    if tensor.dtype.itemsize < 4 or tensor.numel() < 2:
        return tensor
    deviation, mean = torch.std_mean(tensor)
    if not 0 < float(deviation) < math.inf:
        return tensor
    return (tensor - mean) * (FAR_DEVIATION / deviation) + far * FAR_DEVIATION


def moved_biases(values: Mapping[Any, Any], shifted: Mapping[Any, Any], far: float) -> dict[Any, Any]:
    """The values, with biases moved as a whole by so many deviations of what the matrix beside each makes of numbers of
    deviation 1, and tables, each its own matrix, by so many of their numbers. Whole numbers stay, those of half types,
    and those of another number of rows.
    """
    found = dict(values)
    for name in values.keys() & shifted.keys():
        bias, matrix = values[name], values[shifted[name]]
        fits = bias.shape == matrix.shape or bias.numel() in matrix.shape
        if fits and matrix.numel() and not matrix.is_complex() and is_float(bias) and bias.itemsize > 2:
            found[name] = bias + far * float(matrix.double().norm()) / math.sqrt(bias.numel())
    return found


def with_padding(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Zeros at secret places and behind one in some rows, rows and items of zeros if there are several, and ones where
    the numbers are from [0, 1). Half of a vector has a few numbers again and again, as scores that are tied.
    """

    def one_in(many: int, shape: Sequence[int], *, first: bool = False) -> torch.Tensor:
        chosen = torch.randint(many, tuple(shape), generator=generator, device=tensor.device) == 0
        if first:
            chosen.view(-1)[torch.randint(chosen.numel(), (), generator=generator, device=tensor.device)] = True
        return chosen

    if not tensor.dim() or tensor.numel() < 2:
        return tensor
    if tensor.dim() < 2:
        few = tensor[torch.randint(len(tensor), (_FEW_VALUES,), generator=generator, device=tensor.device)]
        again = few[torch.randint(_FEW_VALUES, tensor.shape, generator=generator, device=tensor.device)]
        out = torch.where(one_in(2, tensor.shape), again, tensor)
        return out.masked_fill(one_in(_PADDED, tensor.shape, first=True), 0)
    within = bool((tensor >= 0).all() & (tensor < 1).all())
    zero = one_in(_PADDED, tensor.shape)
    out = tensor.masked_fill(one_in(_ENDS, tensor.shape), 1) if within else tensor
    rows = (*tensor.shape[:-1], 1)
    behind = torch.randint(tensor.shape[-1], rows, generator=generator, device=tensor.device)
    cut = one_in(_PADDED_ROWS, rows) & (torch.arange(tensor.shape[-1], device=tensor.device) > behind)
    zero |= cut | one_in(_PADDED_ROWS, rows, first=True)
    if tensor.dim() > 2 and tensor.shape[0] > 1:
        items = one_in(_PADDED_ROWS, tensor.shape[:1], first=True)
        zero |= items.view(-1, *(1,) * (tensor.dim() - 1))
    return out.masked_fill(zero, 0)


def with_edges(tensor: torch.Tensor, numbers: torch.Tensor, beside: bool, generator: torch.Generator) -> torch.Tensor:
    """The tensor with one of these numbers at one place in so many, every third with its neighbour of the type on
    either side, if asked. Zeros stay zeros: their neighbours are none to hardware that flushes them.
    """
    shape, device = tensor.shape, tensor.device
    chosen = numbers.to(tensor)[torch.randint(len(numbers), shape, generator=generator, device=device)]
    if beside and tensor.dtype in (torch.float32, torch.float64):
        toward = torch.randint(-1, 2, shape, generator=generator, device=device) * math.inf
        moved = torch.nextafter(chosen, toward.to(tensor))
        chosen = torch.where((chosen == 0) | toward.isnan(), chosen, moved)
    return torch.where(_some(tensor, generator), chosen, tensor)


def at_edges(tensor: torch.Tensor, numbers: torch.Tensor, beside: bool) -> torch.Tensor:
    """Where the tensor has one of these numbers, or, if asked, one next to it."""
    own = numbers.to(tensor)
    if beside and tensor.dtype in (torch.float32, torch.float64):
        own = torch.cat([own, *(torch.nextafter(own, torch.full_like(own, end)) for end in (-math.inf, math.inf))])
    return torch.isin(tensor, own)


def with_number(tensor: torch.Tensor, number: float, dim: int | None, generator: torch.Generator) -> torch.Tensor:
    """The tensor with the number at one place in so many, or in all places of half of the slices along a dim."""
    if dim is None:
        return tensor.masked_fill(_some(tensor, generator), number)
    half = torch.randperm(tensor.shape[dim], generator=generator, device=tensor.device) % 2 == 0
    return torch.where(half.view(-1, *(1,) * (tensor.dim() - 1 - dim)), number, tensor)


def are_tied(tensor: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Where the tensor is equal to the others beside it, or, where the shapes are not those of elements beside each
    other, to any of them.
    """
    try:
        return torch.eq(tensor.abs(), others.broadcast_to(tensor.shape).abs())
    except RuntimeError:
        return torch.isin(tensor, others)


def with_ties(tensor: torch.Tensor, others: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with numbers of others at one place in so many: those beside them, or, where the shapes are not those
    of elements beside each other, any of the same row.
    """
    try:
        beside = others.to(tensor).broadcast_to(tensor.shape)
    except RuntimeError:
        if not others.numel() or (others.dim() > 1 and others.shape[:-1] != tensor.shape[:-1]):
            return tensor
        places = torch.randint(others.shape[-1], tensor.shape, generator=generator, device=tensor.device)
        table = others.to(tensor).expand(*tensor.shape[:-1], -1) if tensor.dim() else others.to(tensor)
        beside = table.gather(-1, places) if tensor.dim() else table[places]
    return torch.where(_some(tensor, generator), beside, tensor)


def _some(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One place in :data:`_PADDED`, and one of all."""
    places = torch.randint(_PADDED, tensor.shape, generator=generator, device=tensor.device) == 0
    if tensor.numel():
        places.view(-1)[torch.randint(tensor.numel(), (), generator=generator, device=tensor.device)] = True
    return places


def one_hot_rows(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with some rows that are 1 at a secret place and 0 elsewhere: they sum to 1, and their length is 1."""
    shape = (*tensor.shape[:-1], 1)
    place = torch.randint(tensor.shape[-1], shape, generator=generator, device=tensor.device)
    rows = torch.randint(_PADDED_ROWS, shape, generator=generator, device=tensor.device) == 0
    rows.view(-1)[torch.randint(rows.numel(), (), generator=generator, device=tensor.device)] = True
    return torch.where(rows, torch.zeros_like(tensor).scatter(-1, place, 1), tensor)


def has_both_signs(tensor: torch.Tensor) -> bool:
    """Whether some numbers are below 0 and others above."""
    return bool((tensor < 0).any() & (tensor > 0).any())


def one_sided(tensor: torch.Tensor, generator: torch.Generator, *, items: bool, below: float) -> torch.Tensor:
    """Numbers with one sign: all of them, below 0 so often; or, as often as not where there are several ``items``, half
    of these with each. A maximum that begins at 0 is right wherever one number is above it.
    """
    by_item, down = torch.rand(2, generator=generator, device=tensor.device).tolist()
    if items and by_item < _BY_ITEM:
        return by_halves(tensor.abs(), generator)
    return tensor.abs() * (-1 if down < below else 1)


def by_halves(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the items of the first dim that has several, secret ones, with the other sign."""
    dim = next((dim for dim, size in enumerate(tensor.shape) if size > 1), 0)
    turns = torch.randperm(tensor.shape[dim], generator=generator, device=tensor.device) % 2 * 2 - 1
    return tensor * turns.to(tensor.dtype).view(-1, *(1,) * (tensor.dim() - 1 - dim))


def has_items(tensor: torch.Tensor) -> bool:
    """Whether it may hold several items along its first dim."""
    return tensor.dim() > 1 and len(tensor) > 1


def near_one_row(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """All rows near a secret one of them: where rows are sent to places by what they are, nearly all go to one."""
    if tensor.dim() < 2 or not tensor.numel():
        return tensor
    rows = tensor.reshape(-1, tensor.shape[-1])
    place = torch.randint(len(rows), (), generator=generator, device=tensor.device)
    return torch.lerp(rows[place].expand_as(rows), rows, _ALIKE).view(tensor.shape)


def nearer_one_row(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row on the way to a secret one of them, most of them near it: boxes that lie scattered overlap, and stay
    boxes. Columns of whole numbers, as of an item's place, stay.
    """
    rows = tensor.reshape(-1, tensor.shape[-1])
    place = torch.randint(len(rows), (), generator=generator, device=tensor.device)
    share = torch.exp2(-_NEARER * torch.rand((len(rows), 1), generator=generator, device=tensor.device))
    near = torch.lerp(rows[place].expand_as(rows), rows, share.to(tensor.dtype))
    return torch.where((rows == rows.trunc()).all(0), rows, near).view(tensor.shape)


def _signs(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randint(0, 2, like.shape, generator=generator, device=like.device, dtype=torch.int8)
    return drawn.to(like.dtype).mul_(2).sub_(1)


def _powers(shape: Sequence[int], most: float, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Powers of 2 between -most and most, any real one as likely."""
    unit = torch.rand(tuple(shape), generator=generator, device=like.device, dtype=torch.float32)
    return torch.exp2((2 * unit - 1) * most).to(like.dtype)


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=torch.float32).to(like.dtype)


def _factors(like: torch.Tensor, spread: float, generator: torch.Generator) -> torch.Tensor:
    uniform = torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)
    return (1 + spread * (2 * uniform - 1)).to(like.dtype)
