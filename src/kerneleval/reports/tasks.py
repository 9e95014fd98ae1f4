"""Tasks as plain data: what there is to solve, how it is judged, and what one call of it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kerneleval.records import REAL, Arg, Argument, Plain, Protocol, Scalar, Table, Task, to_plain
from kerneleval.tasks import ALIASES, peers
from kerneleval.tasks.real_shapes import real_shapes

_SAMPLE_BYTES = 64 << 20
_SAMPLE_FLOPS = 1 << 36
"""Limits of the sample shapes that :func:`describe` shows: these should be typical sizes, not ones that fill a GPU."""


_SUMMARISED = (
    *("name", "category", "group", "source", "level", "complexity", "summary", "dims", "dtypes", "directions"),
    *("backward_dtypes", "no_backward", "distributions", "forward_only", "layouts", "empty", "in_place", "module"),
    *("tolerance", "relations", "real_shapes"),
)


def summarise(task: Task) -> dict[str, Any]:
    """One line of the list, as plain data: what identifies a task, and where and how it is judged."""
    own = {
        "dims": [dim.name for dim in task.dims],
        "backward_dtypes": list(task.backward_dtypes or task.dtypes) if "backward" in task.directions else [],
        "tolerance": _tolerance(task),
        "relations": [relation.name for relation in task.relations],
        "real_shapes": [shape.name for shape in real_shapes(task)],
    }
    return {name: own[name] if name in own else to_plain(getattr(task, name)) for name in _SUMMARISED}


def describe(task: Task) -> dict[str, Any]:
    """Everything about one task, as plain data.

    ``dims`` are records here. Shapes in ``arguments`` and ``outputs`` are in names of dims, explained in ``derived``;
    both are empty for problem files, which have numbers alone. ``samples`` are standard forward cases, one of each
    shape category, as the planner chooses them in the first dtype; ``sample`` is the medium one, with its arguments and
    the shapes of its outputs.
    ``real_shapes`` are the same at the shapes of models, with where these are from. ``aliases`` are further names of
    the task; ``peers`` are the names of other benchmarks that it covers.
    ``bytes`` is the least that a call must move, ``flops`` what it computes, ``intensity`` their quotient in
    floating-point operations a byte, ``terms`` how many terms are summed into one output element.
    """
    table = task.table
    samples = [_sample(task, category, dims, task.dtypes[0]) for category, dims in _sample_dims(task)]
    chosen = next((s for s in samples if s["shape_category"] == "medium"), samples[0])
    arguments = [_specified(argument) for argument in task.arguments(chosen["dims"], chosen["dtype"])]
    return summarise(task) | {
        "dims": [to_plain(dim) for dim in task.dims],
        "constraint": _constraint(task),
        "any_rank": table.folded_text,
        "derived": {name: str(formula) for name, formula in table.derive.items()},
        "arguments": [_declared(argument) for argument in table.args],
        "outputs": [_declared(output) for output in table.outputs],
        "sample": {**chosen, "arguments": arguments, "outputs": _shapes(table, chosen["dims"])},
        "samples": samples,
        "aliases": [alias for alias, name in ALIASES.items() if name == task.name],
        "peers": [{"system": row.system, "name": row.name, "note": row.note} for row in peers.covering(task.name)],
        "real_shapes": [
            {**_sample(task, REAL + shape.name, shape.dims, task.dtypes[0]), "name": shape.name, "source": shape.source}
            for shape in real_shapes(task)
        ],
    }


def _tolerance(task: Task) -> dict[str, Any]:
    """Every field of the tolerance; formulas as text, empty where there are none."""
    tolerance = task.tolerance
    return {
        "kind": tolerance.kind,
        "factor": tolerance.factor,
        "sums": tolerance.reduction is not None,
        "reduction": task.table.reduction,
        "gathered": task.table.gathered,
        "normwise": tolerance.normwise,
        "kept": tolerance.kept,
        "drifts": tolerance.drifts,
        "stable": tolerance.stable,
        "rms": tolerance.rms,
        "outlier_rms": tolerance.outlier_rms,
        "quantised": tolerance.exact_form is not None,
        "unbiased": tolerance.unbiased,
        "contract": list(tolerance.contract) if tolerance.exact_form is not None else None,
    }


def _constraint(task: Task) -> str:
    if task.constraint is None:
        return ""
    return task.table.where or "some values are not allowed together"


def _declared(argument: Arg | Plain) -> dict[str, Any]:
    """An argument with its shape and formulas in names of dims."""
    if isinstance(argument, Plain):
        value = argument.formula or to_plain(argument.value)
        return {"name": argument.name, "value": value, "among": list(argument.among)}
    bounds = ("low", "high") if argument.values == "integers" else ()
    names = ("name", "shape", "dtype", "role", "values", "differentiable", "fan_in", *bounds)
    return {name: getattr(argument, name) for name in names} | ({"wide": argument.wide_text} if bounds else {})


def _specified(argument: Argument) -> dict[str, Any]:
    """An argument at a sample shape, with every field."""
    if isinstance(argument, Scalar):
        return {"name": argument.name, "value": to_plain(argument.value)}
    plain: dict[str, Any] = to_plain(argument)
    return plain | {"shape": list(argument.shape)}


def _shapes(table: Table, dims: Mapping[str, int]) -> list[list[int]]:
    """Shapes of the outputs."""
    sizes = table.sizes(dims)
    return [[sizes[name] for name in output.shape.split()] for output in table.outputs]


def _sample(task: Task, category: str, dims: Mapping[str, int], dtype: str) -> dict[str, Any]:
    flops, moved, reduction = task.flops(dims), task.bytes(dims, dtype), task.tolerance.reduction
    return {
        "shape_category": category,
        "dims": dict(dims),
        "dtype": dtype,
        "flops": flops,
        "bytes": moved,
        "intensity": flops / moved if moved else 0.0,
        "terms": 1 if reduction is None else int(reduction(dims)),
    }


def _sample_dims(task: Task) -> list[tuple[str, dict[str, int]]]:
    """Shape category and dims of one case in each category."""
    from kerneleval.tasks import shapes

    if task.case_dims:
        return [(category, dict(dims)) for category, dims in task.case_dims]
    budget = shapes.Budget(memory_bytes=_SAMPLE_BYTES, flops=_SAMPLE_FLOPS)
    protocol = Protocol(directions=("forward",), dtypes=task.dtypes[:1], distributions=("standard",))
    return [(case.shape_category, case.dims_map) for case in shapes.plan(task, protocol, budget)]


def summarise_peer(system: str) -> dict[str, Any]:
    """The map of one peer (in any case) as plain data: counts, and its names in the order of the map; raises
    UsageError for an unknown one, which lists those that there are.
    """
    rows = peers.names(system)
    counts = peers.covered(system)
    return {
        "system": rows[0].system,
        **dataclasses.asdict(counts),
        "rows": [
            {"group": row.group, "name": row.name, "tasks": list(row.tasks), "note": row.note, "listed": row.listed}
            for row in rows
        ],
    }
