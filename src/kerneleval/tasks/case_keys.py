"""A case from its key (``gelu/forward/M=4,N=7/float32/contiguous/standard``), if it is one that the task defines."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from kerneleval.records import FAR, Case, Direction, Protocol, Task, UsageError
from kerneleval.tasks.far_offsets import FAR_ELEMENTS, FAR_PARTS, beyond, far_bytes, is_far, rows_alone
from kerneleval.tasks.shapes import EDGE, case_bytes, dims_text, judged_in
from kerneleval.tasks.special_sizes import TALLEST

FORM = "TASK/DIRECTION/DIMS/DTYPE/LAYOUT/DISTRIBUTION"
"""What a key is made of."""

_LONGEST = 160
"""Characters of a key that a message repeats."""
_LONGEST_VALUE = 20
"""The same of one dim's value."""


def read_case(key: str, task: Task, protocol: Protocol, planned: Sequence[Case], memory_bytes: int) -> Case:
    """The case of that key (:attr:`Case.key`): a planned one, of which there is at least one, or any other that the
    task defines and the machine can hold. The protocol says what else the user wants, which the case must not
    contradict; the largest case takes ``memory_bytes``, as :func:`shapes.case_bytes` counts.

    Dims other than planned ones must be within the task's own limits and meet its constraint; 0 is allowed where the
    task is defined for empty tensors, and ``2x3`` or ``none`` of a dim that may stand for several dims or for none.
    A task with sizes of its own (``case_dims``) has no others. Raises UsageError: it
    is no such case; the message names the first part that is wrong and what would be right.
    """
    known = {case.key: case for case in reversed(planned)}  # of two with one key the first: the other is an edge case
    if key in known:
        return known[key]
    where = f"case {key if len(key) <= _LONGEST else key[:_LONGEST] + '...'!r}"
    parts = key.split("/")
    if len(parts) != FORM.count("/") + 1:
        nearest = difflib.get_close_matches(key[:_LONGEST], known, n=3, cutoff=0)
        raise UsageError(f"{where} is none: the form is {FORM}, such as {' or '.join(nearest)}")
    name, direction, dims_text, dtype, layout, distribution = parts
    if name != task.name:
        raise UsageError(f"{where} is one of task {name!r}, but the task is {task.name!r}")
    for what, value, own, asked in (
        ("direction", direction, task.directions, protocol.directions),
        ("dtype", dtype, judged_in(task, direction, task.dtypes), protocol.dtypes),
        ("layout", layout, (*task.layouts, FAR), ()),
        ("distribution", distribution, task.distributions, protocol.distributions),
    ):
        if value not in own:
            why = f" ({task.no_backward})" if value == "backward" and task.no_backward else ""
            raise UsageError(f"{where}: task {task.name} has no {what} {value!r}{why}; it has {', '.join(own)}")
        if asked and value not in asked:
            raise UsageError(f"{where}: its {what} {value} is not among those chosen: {', '.join(asked)}")
    if direction == "backward" and distribution == "nonfinite":
        raise UsageError(f"{where}: infinities and NaN are given forward only")
    dims_text, folds = _unfolded(dims_text, task.table.folded)
    dims = _dims(where, dims_text, task, planned)
    case = Case(
        task=name,
        direction=cast(Direction, direction),
        dims=tuple(dims.items()),
        dtype=dtype,
        layout=layout,
        distribution=distribution,
        shape_category="given",
        folds=folds,
    )
    if is_far(task, case):
        return _far(where, task, case, FAR_PARTS * memory_bytes)
    need = case_bytes(task, direction, dims, dtype)
    if need > memory_bytes:
        raise UsageError(
            f"{where} takes {need / 2**20:.1f} MiB of tensors; "
            f"at most {memory_bytes / 2**20:.1f} MiB can be judged here"
        )
    return case


def _far(where: str, task: Task, case: Case, most_bytes: int) -> Case:
    """One in which offsets exceed 31 bits; it is not timed."""
    if (case.direction, case.distribution) != ("forward", "standard") or case.layout not in ("contiguous", FAR):
        raise UsageError(f"{where}: offsets beyond 31 bits are judged forward, on standard contiguous data")
    if (need := far_bytes(task, case)) > most_bytes:
        raise UsageError(f"{where} takes {need >> 30} GiB; at most {most_bytes >> 30} GiB can be judged here")
    return replace(case, shape_category=EDGE)


def _unfolded(text: str, name: str) -> tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    """The text with the product of the sizes where a dim stands for several dims (``M=2x3``) or none (``M=none``); and
    its name and these sizes.
    """
    found = re.search(rf"(?<![^,]){name}=(none|[1-9][0-9]{{0,5}}(?:x[1-9][0-9]{{0,5}}){{1,4}})(?![^,])", text)
    if not name or found is None:
        return text, ()
    sizes = () if found[1] == "none" else tuple(map(int, found[1].split("x")))
    return f"{text[: found.start()]}{name}={math.prod(sizes)}{text[found.end() :]}", ((name, sizes),)


def _dims(where: str, text: str, task: Task, planned: Sequence[Case]) -> dict[str, int]:
    pairs = [part.partition("=") for part in text.split(",")] if text else []
    if [name for name, _, _ in pairs] != [dim.name for dim in task.dims]:
        wanted = ",".join(f"{dim.name}=..." for dim in task.dims) or "nothing"
        raise UsageError(f"{where}: the dims of task {task.name} are given as {wanted}, not as {text[:_LONGEST]!r}")
    # no int(value) of just any text: it takes digits of other scripts, underscores and blanks
    values = [int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None for _, _, value in pairs]
    dims = {dim.name: value for dim, value in zip(task.dims, values, strict=True) if value is not None}
    if task.case_dims:
        sizes = [own for _, own in task.case_dims]
        if dims not in sizes:
            own_sizes = " or ".join(dict.fromkeys(map(dims_text, sizes)))
            raise UsageError(f"{where}: task {task.name} is judged at sizes of its own only: {own_sizes}")
        return dims
    rest = (0 < dims.get(dim.name, 0) <= dim.high for dim in task.dims if dim.name != task.table.folded)
    many = rows_alone(task) and len(dims) == len(values) and all(rest) and beyond(task, dims)
    for dim, value, (_, _, given) in zip(task.dims, values, pairs, strict=True):
        high = max(dim.high, dim.long)
        if dim.name == task.table.folded:
            high = FAR_ELEMENTS if many else max(high, TALLEST)
        allowed = value is not None and dim.low <= value <= high and value % dim.multiple_of == 0
        if not allowed and not (task.empty and value == 0):
            said = given if len(given) <= _LONGEST_VALUE else given[:_LONGEST_VALUE] + "..."
            kind = "an integer" if dim.multiple_of == 1 else f"a multiple of {dim.multiple_of}"
            limits = f"{kind} from {dim.least} to {high}" + (" or 0" if task.empty else "")
            raise UsageError(f"{where}: {dim.name} must be {limits}, not {said!r}")
    if not task.allows(dims):
        raise UsageError(
            f"{where}: task {task.name} does not allow {dims_text(dims)} together; "
            f"it allows {dims_text(planned[0].dims_map)}"
        )
    return dims
