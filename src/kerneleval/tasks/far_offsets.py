"""Sizes and strides at which offsets exceed 31 bits. ``judge/probes/far.py`` calls a candidate there."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kerneleval.records import DTYPES, FAR, Arg, Case, Task, TensorSpec, formula_names
from kerneleval.tasks.sampling import draw, exists
from kerneleval.tasks.shapes import EDGE

_TRIALS = 16
"""How often secret sizes are drawn until some fit and are new."""

FAR_ELEMENTS = 1 << 31
"""The first offset that a signed 32-bit number does not hold."""

FAR_PARTS = 6
"""How many times what the largest ordinary case may take, such a case may: no wider copies of it are made."""

_FAR_ROWS = 48
"""Rows at most that are drawn for a case of many."""


def far_apart(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """(elements of storage, strides) of a tensor that is contiguous but for its first dim with several elements, whose
    last one begins at element ``FAR_ELEMENTS`` or a little behind it.
    """
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    dim = next(place for place, size in enumerate(shape) if size > 1)
    strides[dim] = -(-FAR_ELEMENTS // (shape[dim] - 1))
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)), tuple(strides)


def is_far(task: Task, case: Case) -> bool:
    """Whether some offset in the case exceeds 31 bits."""
    return case.layout == FAR or (not task.module and beyond(task, case.dims_map))


def beyond(task: Task, dims: Mapping[str, int]) -> bool:
    """Whether a tensor argument has more elements than a signed 32-bit number can count."""
    specs = task.arguments(dims, task.dtypes[0])
    return any(isinstance(spec, TensorSpec) and spec.numel > FAR_ELEMENTS for spec in specs)


def far_bytes(task: Task, case: Case) -> int:
    """Memory that such a case takes: of what is given a copy of the judge's and a shared range of up to twice its size,
    of what comes out besides the candidate's own and the judge's.
    """
    specs = [s for s in task.arguments(case.dims_map, case.dtype) if isinstance(s, TensorSpec)]
    given = sum(s.nbytes for s in specs)
    out = task.bytes(case.dims_map, case.dtype) - given
    if case.layout == FAR:
        given += far_apart(specs[0].shape)[0] * DTYPES[specs[0].dtype]
    return 3 * given + 4 * out


def far_cases(task: Task, right: Sequence[Case]) -> Iterator[Case]:
    """Two secret cases in which offsets exceed 31 bits, in the smallest of the types in which a forward case was right:
    few items of the first argument, far apart (:data:`FAR`); and, where rows are independent (``folded``), many rows,
    which are those of a small case again and again.
    """
    dtypes = sorted({c.dtype for c in right if c.direction == "forward"}, key=lambda dtype: (DTYPES[dtype], dtype))
    if not dtypes or task.case_dims or task.module or len(right) < 2:
        return
    begun = next(c for c in right if (c.direction, c.dtype) == ("forward", dtypes[0]))
    begun = replace(begun, layout="contiguous", distribution="standard", shape_category=EDGE)
    small = "small" if exists(task, "small") else "tiny"
    drawn = [dims for _ in range(_TRIALS) if (dims := draw(task, small, 0, 1, secrets.randbits(63), lambda _: True))]
    for dims in drawn:
        first = next((s for s in task.arguments(dims, dtypes[0]) if isinstance(s, TensorSpec)), None)
        if first is not None and first.role == "data" and sum(size > 1 for size in first.shape) > 1:
            yield replace(begun, dims=tuple(dims.items()), layout=FAR)
            break
    name = task.table.folded
    if drawn and name and rows_alone(task):
        some = secrets.choice(range(_FAR_ROWS // 2, _FAR_ROWS))
        wide = [dim.name for dim in task.dims if dim.scaled and dim.name != name]
        sizes = drawn[0] | {dim: max(drawn[0][dim], secrets.choice(range(2048, 4096))) for dim in wide}
        each = next(s for s in task.arguments(sizes | {name: some}, dtypes[0]) if isinstance(s, TensorSpec)).numel
        sizes[name] = some * (FAR_ELEMENTS // each + 2)
        if task.allows(sizes) and each * sizes[name] // some > FAR_ELEMENTS:
            yield replace(begun, dims=tuple((dim.name, sizes[dim.name]) for dim in task.dims))


def rows_alone(task: Task) -> bool:
    """Whether every row of the outputs follows from the same row of the arguments."""
    name, outputs = task.table.folded, task.table.outputs
    tensors = [arg for arg in task.table.args if isinstance(arg, Arg)]
    if name in formula_names(task.table.reduction or "1", task.name):
        return False
    return name == "M" and all(name in out.shape.split() for out in outputs) and name in tensors[0].shape.split()


def repeated_rows(case: Case, name: str) -> int:
    """How many rows of a case with many are drawn: all others are these again."""
    rows = case.dims_map[name]
    return next(count for count in range(_FAR_ROWS, 0, -1) if rows % count == 0)
