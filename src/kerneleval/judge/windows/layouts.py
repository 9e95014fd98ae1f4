"""Memory layouts of data arguments: strides, offset and extent of each shape in a storage of its own.

It moves no data: ``buffers.py`` lays tensors out by these numbers. Of each layout there are variants, so that the
strides of one argument do not follow from another's.
"""

from __future__ import annotations

import math

import torch

from kerneleval.devices import contiguous_strides
from kerneleval.records import LAYOUTS, TensorSpec, UsageError, near

__all__ = ["expanded_dims", "gradient_of", "laid_out", "strided"]

_PAD = 3
"""Elements between the rows of a slice, and before a 1-D one."""

_PACKED = 3
"""Projections that lie in one tensor, as queries, keys and values do."""

_ROOM = 8
"""Elements between the columns of a transposed slice: none is misaligned that would not be without."""


def strided(layout: str, spec: TensorSpec, variant: int = 0) -> tuple[int, tuple[int, ...], int]:
    """(elements of storage, strides, storage offset) that realise a layout, all in elements.

    Where a layout has several forms, the sizes say which; a ``variant`` (1 to 3) is the next of them, and so on: no
    layout has more than four.

    * ``contiguous``: row-major from the start of the storage.
    * ``transposed``: the dims lie in memory in another order, by the sizes one of those that are usual: the last two
      swapped, the second and the third (heads and positions of attention, every second size of these a part of three
      that are packed), or the second one last (channels); of three dims the last two or the first two are swapped.
      Every second size of a matrix is the transpose of a slice, with room between its columns. A vector takes every
      second element of a longer one.
    * ``sliced``: a part of a larger tensor, by the sizes one of three: the left part of wider rows, whose pitch is odd,
      so that successive rows start at changing alignments; the right half of rows of twice the width; or, of a matrix,
      every third row, of more dims, rows from the second on of more than there are. A vector starts three elements
      into a longer one.
    * ``offset``: row-major, but starting at element 1, which is misaligned to 16 bytes in every type below 16 bytes.
    * ``expanded``: stride 0 along all :func:`expanded_dims`, as ``Tensor.expand`` gives; contents are equal along it.

    A tensor without elements is contiguous in every layout, and so is a scalar, except under ``offset``.

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
    """The dims along which the ``expanded`` layout repeats: the first with more than one element; none: no dim has.

    For upstream gradients, by the sizes, the last one (of a mean over it), the first one (of a mean over a batch, which
    few outputs have: a sum of equal terms rounds as no other does) or, of matrices, both, as a sum over all has them.
    In more dims all are not: gradients of normalisations are nothing then.
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
