"""Data with the structure of real data: indices, masks, lengths, and rows that are sorted, tied or at edges of bins.

``inputs.py`` draws the values and says which case has which structure. What each is there to find stands in
``docs/inputs.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kerneleval.records import BINNED, DISTRIBUTIONS, DTYPES, FAR_DEVIATION, FAR_MEANS, LAYOUTS, Case, TensorSpec

_OPEN = 4
"""Least places that each other row of a mask leaves open, where it has as many."""
_LONELY = 8
"""One in so many rows of a mask has a single open place, where there are as many: what comes out of it is
that of the value there, and gradients are rounding noise, so forward alone."""
_ALIKE_ROWS = 16
"""Rows of a mask that are open in the same manner."""
_INDEX_STRUCTURES = 4
"""Ways in which indices are not uniform: see :func:`indices`."""
_ORDERS = 6
"""Structures of rows under ``ordered``: see :func:`_in_order`."""
_CONTRAST = 2.0**-10
"""Factor on the differences within rows of low contrast, at least eight roundings of the type."""
_LANES = 10
"""Binary logarithm of the largest distance of places that are filled first: threads of a block."""
_FEWEST = 8
"""Flags of a row of which few are set, or few are not, at least."""
_FEW = 3
"""Values in a row of few bins, at most."""
_TIED = 8
"""Values in a row of ties, at most."""


def indices(spec: TensorSpec, case: Case, uniform: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Indices with the structure of real ones: all the same, skewed, sorted, or at the two ends of their range. Which
    of these, distribution and layout say, so that the cases of one dtype have all of them.

    Where colliding terms are added up in a half type, indices are at most sorted: PyTorch adds them in the type, so
    that a hundred of them leave nothing but rounding.
    """
    if uniform.numel() < 2 or spec.high - spec.low < 2:
        return uniform
    structure = (DISTRIBUTIONS.index(case.distribution) + LAYOUTS.index(case.layout)) % _INDEX_STRUCTURES
    flip = bool(torch.randint(2, (), generator=generator, device=uniform.device))
    if DTYPES[case.dtype] <= 2 and (spec.summed or case.direction == "backward"):
        return _sorted(uniform, descending=flip) if structure == 2 else uniform
    ends = torch.where(uniform % 2 == 0, spec.low, spec.high - 1)
    match structure:
        case 0:
            return (ends if flip else uniform).reshape(-1)[:1].expand(uniform.numel()).reshape(uniform.shape).clone()
        case 1:
            return _skewed(spec, uniform, generator)
        case 2:
            return _sorted(_skewed(spec, uniform, generator), descending=flip)
    return ends.to(uniform.dtype)


def _sorted(indices: torch.Tensor, *, descending: bool) -> torch.Tensor:
    return indices.reshape(-1).sort(descending=descending).values.view(indices.shape)


def _skewed(spec: TensorSpec, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Indices by Zipf's law: a secret value is the most frequent, each following one less so, and most do not occur."""
    values = spec.high - spec.low
    unit = torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float64)
    first = torch.randint(values, (), generator=generator, device=like.device)
    rank = ((values + 1.0) ** unit - 1).long().clamp_(max=values - 1)
    return ((first + rank) % values + spec.low).to(like.dtype)


def beside_blocks(spec: TensorSpec, lengths: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The lengths, a secret half of them at a multiple of 256, 512 or 1024, or one beside, where their range has any:
    kernels that divide a sequence have a last part there that is full, or of a single element.
    """

    def secret(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, lengths.shape, generator=generator, device=lengths.device)

    block = 256 << secret(0, 3)
    most = (spec.high - 1) // block
    placed = block * (1 + secret(0, 1 << 30) % most.clamp(min=1)) + secret(-1, 2)
    inside = (most > 0) & (placed >= spec.low) & (placed < spec.high)
    return torch.where(inside & (secret(0, 2) == 0), placed, lengths)


def opened(mask: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The mask with secret places opened in each row, one in every quarter; half of its rows, neighbours together, are
    open at one end alone, as padding and causal masks are.

    A row that sees nothing is 0 / 0 in most operators, and over one key gradients cancel to rounding noise.
    """
    rows, width = (*mask.shape[:-1], 1), mask.shape[-1]
    for part in range(_OPEN):
        first, stop = part * width // _OPEN, (part + 1) * width // _OPEN
        if first < stop:
            place = torch.randint(first, stop, rows, generator=generator, device=mask.device)
            mask.scatter_(-1, place, mask.new_ones(()).expand(rows))
    if width <= _OPEN:
        return mask
    count = mask.numel() // width
    styles = torch.randint(4, (count // _ALIKE_ROWS + 1,), generator=generator, device=mask.device)
    style = styles.repeat_interleave(_ALIKE_ROWS)[:count].view(rows)
    seen = torch.randint(_OPEN, width + 1, rows, generator=generator, device=mask.device)
    place = torch.arange(width, device=mask.device)
    mask = torch.where(style == 0, place < seen, mask)
    return torch.where(style == 1, place >= width - seen, mask)


def lonely(mask: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The mask with a single place open in every eighth row or so; as it is where it has fewer rows."""
    rows, width = (*mask.shape[:-1], 1), mask.shape[-1]
    if mask.numel() < _LONELY * width:
        return mask
    few = torch.randint(_LONELY, rows, generator=generator, device=mask.device) == 0
    place = torch.randint(width, rows, generator=generator, device=mask.device)
    return torch.where(few, torch.arange(width, device=mask.device) == place, mask)


def sparse_flags(spec: TensorSpec, flags: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The flags, with few set in a quarter of the rows, and few not set in another: one to eight of a row on average.

    A row runs along ``spec.along``, or along the last dim. If all flags are alike, one is turned. Where half of all
    flags are set, runs are no longer than a few elements, and any and all of many flags are always the same.
    """
    dims = spec.along or tuple(range(flags.ndim))[-1:]
    width = math.prod(flags.shape[dim] for dim in dims)
    if width < _FEWEST or not flags.numel():
        return flags
    rows = tuple(1 if dim in dims else size for dim, size in enumerate(flags.shape))
    kind = torch.randint(4, rows, generator=generator, device=flags.device)
    share = 2.0 ** torch.randint(4, rows, generator=generator, device=flags.device) / width
    few = torch.rand(flags.shape, generator=generator, device=flags.device) < share
    flags = torch.where(kind == 0, few, torch.where(kind == 1, ~few, flags))
    place = torch.randint(flags.numel(), (), generator=generator, device=flags.device)
    other = (torch.arange(flags.numel(), device=flags.device) == place).view(flags.shape)
    return flags ^ (other & (flags.all() | ~flags.any()))


def by_rows(spec: TensorSpec, tensor: torch.Tensor, distribution: str, generator: torch.Generator) -> torch.Tensor:
    """Standard values with the structure of one of ``ROW_DISTRIBUTIONS``, not scaled; contiguous."""
    if distribution == "full":
        return tensor.abs_().add_(spec.edges[1] + 1)
    if distribution == "long_memory":
        factor, shift = spec.slow if spec.slow != (1.0, 0.0) else (1.0, float(spec.values == "normal"))
        return tensor.mul_(factor).add_(shift)
    dims = [*(dim for dim in range(tensor.ndim) if dim not in spec.along), *spec.along]
    moved = tensor.permute(dims)
    rows = moved.reshape(-1, math.prod(tensor.shape[dim] for dim in spec.along))
    if not rows.numel():
        return tensor
    turn = torch.arange(len(rows), device=tensor.device)[:, None]
    if distribution == "ordered":
        first = torch.randint(_ORDERS, (), generator=generator, device=tensor.device)
        found = _in_order(rows, (turn + first) % _ORDERS, generator)
    elif distribution == "binned":
        found = _in_bins(spec, rows, (turn + sum(tensor.shape)) % BINNED, generator) if spec.edges else rows
    elif spec.values == "normal" and rows.dtype.itemsize > 2:
        found = torch.where(turn % 2 == 0, *FAR_MEANS).mul_(spec.far).to(rows.dtype).add(rows).mul_(FAR_DEVIATION)
    else:
        found = rows
    return found.view(moved.shape).permute([dims.index(dim) for dim in range(tensor.ndim)]).contiguous()


def _in_order(rows: torch.Tensor, order: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row (last dim) in one of these orders: ascending; descending; ascending from a secret place on, around the
    end; the largest in one class of places modulo a secret power of two; all values near one of its own; few values.
    """
    width, device = rows.shape[-1], rows.device
    places = torch.arange(width, device=device)
    turned = int(torch.randint(width, (), generator=generator, device=device))
    most = max(1, min(_LANES, width.bit_length() - 4))
    stride = 1 << int(torch.randint(max(1, most - 3), most + 1, (), generator=generator, device=device))
    ranks = torch.argsort(torch.argsort(places % stride * width + places))
    ascending = rows.sort(-1).values
    every = (places, places.flip(0), places.roll(turned), ranks)
    found = ascending.gather(-1, torch.stack(every)[order[:, 0].clamp(max=len(every) - 1)])
    if rows.is_floating_point():
        centre = ascending[:, 3 * width // 4, None]
        contrast = max(_CONTRAST, 8 * torch.finfo(rows.dtype).eps)
        found = torch.where(order == len(every), torch.lerp(centre, rows, contrast), found)
    tied = rows[:, torch.randint(min(width, _TIED), (width,), generator=generator, device=device)]
    return torch.where(order == _ORDERS - 1, tied, found)


def _in_bins(spec: TensorSpec, rows: torch.Tensor, structure: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row (last dim) with all elements at one edge of a bin, at the last one or at the first one; at both ends; at
    edges and next to them; with few values, so that most bins are empty; or at edges in order.
    """
    first, last, step = spec.edges
    shape, width = rows.shape, rows.shape[-1]

    def secret(high: int, of: Sequence[int] = shape) -> torch.Tensor:
        return torch.randint(high, of, generator=generator, device=rows.device)

    edges = secret(round((last - first) / step) + 1 if step else 1).double() * step + first
    beside = secret(3) - 1
    if rows.is_floating_point() and spec.values != "integers":
        kind = torch.finfo(rows.dtype)
        near = torch.where(edges == 0, beside * kind.tiny, edges * (1 + beside * kind.eps))
    else:
        near = (edges + beside).clamp(spec.low, spec.high - 1)
    ends = torch.where(secret(2) > 0, last, first)
    few = rows.double()[:, secret(min(width, _FEW), (width,))]
    alike = (edges[:, :1], torch.full_like(edges, last), torch.full_like(edges, first))
    found = rows.double()
    for number, values in enumerate((*alike, ends, near, few, edges.sort(-1).values)):
        found = torch.where(structure == number, values, found)
    return found.to(rows.dtype)
