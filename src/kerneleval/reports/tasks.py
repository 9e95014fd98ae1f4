"""Tasks as plain data and as tables: what there is to solve, and what one call of it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerneleval.records import Protocol, Scalar, Task, UsageError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["describe", "render_selftest", "render_task", "render_tasks", "summarise"]

_SAMPLE_BYTES = 64 << 20
_SAMPLE_FLOPS = 1 << 36
"""Limits of the sample shape that :func:`describe` shows: it should be a typical size, not one that fills a GPU."""


def summarise(task: Task) -> dict[str, Any]:
    """One line of the list, as plain data: what identifies a task and where it is judged."""
    return {
        "name": task.name,
        "category": task.category,
        "source": task.source,
        "level": task.level,
        "summary": task.summary,
        "dims": [dim.name for dim in task.dims],
        "dtypes": list(task.dtypes),
        "directions": list(task.directions),
    }


def describe(task: Task) -> dict[str, Any]:
    """Everything about one task, as plain data; ``sample`` is one call at a shape that the planner chose.

    ``sample.bytes`` is the least that a call must move, ``sample.flops`` what it computes, ``sample.intensity`` their
    quotient in floating-point operations a byte.
    """
    return summarise(task) | {
        "dims": [
            {"name": d.name, "low": d.low, "high": d.high, "multiple_of": d.multiple_of, "scaled": d.scaled}
            for d in task.dims
        ],
        "no_backward": task.no_backward,
        "distributions": list(task.distributions),
        "layouts": list(task.layouts),
        "empty": task.empty,
        "in_place": list(task.in_place),
        "module": task.module,
        "tolerance": {"kind": task.tolerance.kind, "factor": task.tolerance.factor},
        "relations": [relation.name for relation in task.relations],
        "sample": _sample(task),
    }


def _sample(task: Task) -> dict[str, Any]:
    dims = _sample_dims(task)
    dtype = task.dtypes[0]
    flops, moved = task.flops(dims), task.bytes(dims, dtype)
    return {
        "dims": dims,
        "dtype": dtype,
        "arguments": [_argument(argument) for argument in task.arguments(dims, dtype)],
        "flops": flops,
        "bytes": moved,
        "intensity": flops / moved if moved else 0.0,
    }


def _sample_dims(task: Task) -> dict[str, int]:
    from kerneleval.tasks import shapes

    budget = shapes.Budget(memory_bytes=_SAMPLE_BYTES, flops=_SAMPLE_FLOPS)
    cases = shapes.plan(task, Protocol(directions=("forward",), dtypes=task.dtypes[:1]), budget)
    if not cases:
        raise UsageError(f"task {task.name}: no shape fits into {_SAMPLE_BYTES >> 20} MiB")
    return next((case for case in cases if case.shape_category == "medium"), cases[0]).dims_map


def _argument(argument: Any) -> dict[str, Any]:
    if isinstance(argument, Scalar):
        return {"name": argument.name, "value": argument.value}
    return {
        "name": argument.name,
        "shape": list(argument.shape),
        "dtype": argument.dtype,
        "role": argument.role,
        "differentiable": argument.differentiable,
    }


# --------------------------------------------------------------------------------------------------------------------
# Terminal
# --------------------------------------------------------------------------------------------------------------------

_WIDE = 100
"""Columns from which the list shows dtypes and backward too."""

_SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def render_tasks(tasks: list[dict[str, Any]], console: Console) -> None:
    """The list: a row for each of :func:`summarise`'s records."""
    from rich.text import Text

    from kerneleval.reports.text import safe

    names: tuple[str, ...] = ("category", "task", "dims", "dtypes", "backward", "formula")
    rows: list[tuple[str, ...]] = []
    for task in tasks:
        before = tasks[len(rows) - 1]["category"] if rows else ""
        rows.append(
            (
                task["category"] if task["category"] != before else "",
                task["name"],
                " ".join(task["dims"]),
                " ".join(_SHORT.get(dtype, dtype) for dtype in task["dtypes"]),
                "yes" if "backward" in task["directions"] else "no",
                task["summary"],
            )
        )
    if console.width < _WIDE:
        names, rows = names[:3] + names[-1:], [row[:3] + row[-1:] for row in rows]
    # Rich's tables shrink every column when one is too long; here only the formula may be cut.
    widths = [max(len(row[i]) for row in (names, *rows)) for i in range(len(names) - 1)]
    for row in (names, *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        line = Text(safe("  ".join((*padded, row[-1]))))
        if row is names:
            line.stylize("bold")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line)
    console.print(f"{len(tasks)} tasks. One of them: kerneleval tasks NAME", style="dim")


def render_task(task: dict[str, Any], console: Console) -> None:
    """One task: a block for the sizes, one for the rules, one for the cost of a call."""
    from rich.table import Table

    console.print(f"[bold]{_plain(task['name'])}[/bold]  {_plain(_origin(task))}")
    console.print(f"{_plain(task['summary'])}\n")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _rows(task):
        table.add_row(name, _plain(text))
    console.print(table)


def _origin(task: dict[str, Any]) -> str:
    return f"{task['category']}, level {task['level']}, {task['source']}"


def _rows(task: dict[str, Any]) -> list[tuple[str, str]]:
    sample = task["sample"]
    at = ", ".join(f"{name}={value}" for name, value in sample["dims"].items())
    rows = [("dims", _dim(dim)) for dim in task["dims"]]
    rows[1:] = [("", text) for _, text in rows[1:]]
    rows += [
        ("dtypes", ", ".join(task["dtypes"])),
        ("backward", "no: " + task["no_backward"] if task["no_backward"] else "yes"),
        ("inputs", ", ".join(task["distributions"])),
        ("layouts", ", ".join(task["layouts"])),
        ("empty", "defined" if task["empty"] else "not defined"),
        ("tolerance", f"{task['tolerance']['kind']}, factor {task['tolerance']['factor']:g}"),
        ("relations", ", ".join(task["relations"]) or "none"),
        ("", ""),
        ("a call", f"{at}, {sample['dtype']}"),
    ]
    rows += [("", _signature(argument)) for argument in sample["arguments"]]
    rows.append(
        (
            "cost",
            f"{_scaled(sample['flops'], 1000)}FLOP, {_scaled(sample['bytes'], 1024)}B at least, "
            f"{sample['intensity']:.3g} FLOP/B",
        )
    )
    return rows


def _dim(dim: dict[str, Any]) -> str:
    text = f"{dim['name']}: {dim['low']} to {dim['high']}"
    if dim["multiple_of"] > 1:
        text += f", multiples of {dim['multiple_of']}"
    return text if dim["scaled"] else f"{text}, the same range in every shape category"


def _signature(argument: dict[str, Any]) -> str:
    if "value" in argument:
        return f"{argument['name']} = {argument['value']!r}"
    shape = " x ".join(map(str, argument["shape"])) or "one element"
    suffix = ", differentiable" if argument["differentiable"] else ""
    return f"{argument['name']}: {argument['dtype']} {shape}{suffix}"


def _plain(text: str) -> str:
    from rich.markup import escape

    from kerneleval.reports.text import safe

    return escape(safe(text))


def _scaled(value: float, base: int) -> str:
    """``1.23 M`` (base 1000) or ``1.23 Mi`` (base 1024), ready for a unit."""
    prefixes = ("", "k", "M", "G", "T", "P") if base == 1000 else ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    step = 0
    while abs(value) >= base and step < len(prefixes) - 1:
        value, step = value / base, step + 1
    return f"{value:.3g} {prefixes[step]}"


def render_selftest(found: list[dict[str, Any]], console: Console) -> None:
    """A line for each task of :func:`kerneleval.pipeline.selftest`, and what is wrong beneath it."""
    from kerneleval.reports.text import safe

    width = max(len(one["task"]) for one in found)
    for one in found:
        state = "not tested" if not one["cases"] else "passed" if one["passed"] else "FAILED"
        line = f"{one['task'].ljust(width)}  {state:10}  {one['cases']:4} cases  {one['seconds']:6.1f} s"
        console.print(safe(line), markup=False)
        for finding in one["findings"]:
            line = f"  {finding['test']}: {finding['case']}: {finding['message']}"
            console.print(safe(line), markup=False, soft_wrap=True)
    wrong = sum(not one["passed"] for one in found)
    console.print(f"{wrong} of {len(found)} tasks failed" if wrong else f"all {len(found)} tasks passed")
