"""Tasks for people: the list, one task, and what their self-test found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.records import CATEGORIES, GROUPS
from kerneleval.reports.tables import add_columns
from kerneleval.reports.text import plural, safe
from kerneleval.scores.common.cells import by_key
from kerneleval.tasks import ALIASES

_WIDE = 100
"""Columns from which the list shows group, dtypes and backward too."""

_LONGEST_NAME = {True: 34, False: 26}
"""Columns of the names, where the list is wide and where it is not: longer ones, those of chains, repeat the
formula, and take its room."""

_SHORT = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "complex64": "c64", "complex128": "c128",
}  # fmt: skip

_FILTERS = "--category, --group, --source, --level, --complexity, --dtype, --direction, --real, --search"


# -- The list ---------------------------------------------------------------------------------------------------------


def render_tasks(tasks: Sequence[Mapping[str, Any]], console: Console, total: int = 0) -> None:
    """Print records of :func:`kerneleval.reports.tasks.summarise`, category by category, and counts; ``total``: how
    many tasks there are, 0: no more than those listed.
    """
    wide = console.width >= _WIDE
    head = ("task", "group", "dims", "dtypes", "backward") if wide else ("task", "dims")
    rows = [_row(task, wide) for task in tasks]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    widths[0] = min(widths[0], _LONGEST_NAME[wide])
    _line(console, head, "formula", widths, "bold")
    for category in dict.fromkeys(task["category"] for task in tasks):
        of = [(row, task) for row, task in zip(rows, tasks, strict=True) if task["category"] == category]
        console.print(Text(f"\n{safe(category)}: {plural(len(of), 'task')}", style="bold"))
        for row, task in of:
            _line(console, row, task["summary"], widths)
    console.print()
    for line in _counts(tasks, total):
        console.print(Text(safe(line), style="dim"))


def _row(task: Mapping[str, Any], wide: bool) -> tuple[str, ...]:
    dims = " ".join(task["dims"])
    if not wide:
        return task["name"], dims
    backward = "yes" if "backward" in task["directions"] else "no"
    return task["name"], task["group"], dims, _dtypes(task["dtypes"]), backward


def _line(console: Console, cells: Sequence[str], formula: str, widths: Sequence[int], style: str = "") -> None:
    """One row that never wraps: Rich's tables shrink every column when one is too long; here the formula is cut."""
    padded = (safe(cell).ljust(width) for cell, width in zip(cells, widths, strict=True))
    line = Text("  ".join((*padded, safe(formula).replace("\n", " "))), style=style)
    line.truncate(console.width, overflow="ellipsis")
    console.print(line)


def _counts(tasks: Sequence[Mapping[str, Any]], total: int) -> list[str]:
    """What is listed, in numbers."""

    def by(field: str, order: Iterable[Any] = (), word: str = "") -> str:
        found = Counter(task[field] for task in tasks)
        names = [name for name in dict.fromkeys((*order, *sorted(found))) if found[name]]
        return ", ".join(f"{found[name]} {word}{name}" for name in names)

    whole = plural(len(tasks), "task")
    if len(tasks) < total:
        whole = f"{len(tasks)} of {plural(total, 'task')}"
    if not tasks:
        return [f"{whole}; leave a filter out: {_FILTERS}"]
    backward = sum("backward" in task["directions"] for task in tasks)
    real = sum(bool(task["real_shapes"]) for task in tasks)
    dtypes = Counter(_dtypes([dtype]) for task in tasks for dtype in task["dtypes"])
    return [
        f"{whole}: {by('category', CATEGORIES)}",
        f"by group: {by('group', GROUPS)}",
        f"by source: {by('source')}; by level: {by('level', word='of ')}; by K: {by('complexity', word='of ')}",
        f"by dtype: {', '.join(f'{n} {dtype}' for dtype, n in dtypes.most_common())}; "
        f"{backward} with backward, {real} with shapes of models",
        f"aliases: {', '.join(f'{alias} = {name}' for alias, name in ALIASES.items())}",
        f"One of them: kerneleval tasks NAME. Fewer: {_FILTERS}",
    ]


def _dtypes(dtypes: Iterable[str]) -> str:
    return " ".join(_SHORT.get(dtype, dtype) for dtype in dtypes)


# -- One task ---------------------------------------------------------------------------------------------------------


def render_task(task: Mapping[str, Any], console: Console) -> None:
    """Print a record of :func:`kerneleval.reports.tasks.describe`: what goes in and out of a task, how it is judged,
    what a call costs.
    """
    console.print(Text(safe(task["name"]), style="bold").append(f"  {safe(_origin(task))}", style="not bold"))
    console.print(Text(safe(task["summary"])))
    console.print()
    for block in (_sizes(task), _rules(task)):
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, texts in block.items():
            for i, text in enumerate(texts):
                table.add_row(name if i == 0 else "", Text(safe(text)))
        console.print(table)
        console.print()
    console.print(_costs(task))
    sources = {shape["name"].partition(".")[0]: shape["source"] for shape in task["real_shapes"]}
    for model, source in sources.items():
        console.print(Text(safe(f"{model}: {source}"), style="dim"), soft_wrap=True)


def _origin(task: Mapping[str, Any]) -> str:
    group = f", {task['group']}" if task["group"] else ""
    return f"{task['category']}{group}, {task['source']}, level {task['level']}, K {task['complexity']}"


def _sizes(task: Mapping[str, Any]) -> dict[str, list[str]]:
    named, sample = task["arguments"], task["sample"]["arguments"]
    derived = [f"{name} = {text}" for name, text in task["derived"].items() if text and not text.isdecimal()]
    return {
        "dims": [_dim(dim) for dim in task["dims"]] or ["none"],
        "where": [text for text in (task["constraint"], "; ".join(derived)) if text],
        "any rank": [task["any_rank"]] if task["any_rank"] else [],
        "arguments": [_argument(*pair) for pair in zip(named, sample, strict=True)]
        if named
        else list(map(_at, sample)),
        "outputs": [
            _output(*pair, task["sample"]) for pair in zip(task["outputs"], task["sample"]["outputs"], strict=True)
        ],
    }


def _dim(dim: Mapping[str, Any]) -> str:
    if dim["low"] == dim["high"]:
        return f"{dim['name']}: {dim['low']}"
    text = f"{dim['name']}: {dim['low']} to {dim['high']}"
    if dim["multiple_of"] > 1:
        text += f", multiples of {dim['multiple_of']}"
    if dim["long"]:
        text += f", or up to {dim['long']} beside few others"
    return text if dim["scaled"] else f"{text}, the same range in every shape category"


def _argument(named: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    """An argument by names of dims; bounds and numbers that have no text as they are at the sample."""
    if "value" in named:
        others = f" (or {', '.join(map(str, named['among']))})" if named["among"] else ""
        return f"{named['name']} = {at['value'] if named['value'] is None else named['value']}{others}"
    parts = [named["role"], named["values"]]
    if "low" in named:
        parts[1] += f" from {named['low'] if named['low'] != '' else at['low']} to below {named['high'] or at['high']}"
        parts[1] += named["wide"]
    if named["fan_in"]:
        terms = named["fan_in"].split()
        parts.append(f"scaled by {terms[0] if len(terms) == 1 else '(' + ' * '.join(terms) + ')'} ** -0.5")
    parts += [named["dtype"]] if named["dtype"] else []
    parts += ["differentiable"] if named["differentiable"] else []
    return f"{named['name']} [{named['shape']}]: {', '.join(parts)}"


def _at(at: Mapping[str, Any]) -> str:
    """An argument at the sample, where there are no names."""
    if "value" in at:
        return f"{at['name']} = {at['value']!r}"
    shape = " x ".join(map(str, at["shape"])) or "one element"
    suffix = ", differentiable" if at["differentiable"] else ""
    return f"{at['name']} [{shape}]: {at['role']}, {at['values']}, {at['dtype']}{suffix}"


def _output(output: Mapping[str, Any], shape: Sequence[int], sample: Mapping[str, Any]) -> str:
    dtype = f": {output['dtype']}" if output["dtype"] else ""
    if not shape:
        return f"one element{dtype}"
    at = " x ".join(map(str, shape))
    return f"[{output['shape']}]{dtype}, {at} at {sample['shape_category']} sizes"


def _rules(task: Mapping[str, Any]) -> dict[str, list[str]]:
    peers: dict[str, list[str]] = by_key((row["system"], row["name"]) for row in task["peers"])
    return {
        "dtypes": [", ".join(task["dtypes"])],
        "backward": [_backward(task)],
        "inputs": [", ".join(task["distributions"])],
        "layouts": [", ".join(task["layouts"])],
        "empty": ["defined" if task["empty"] else "not defined"],
        "in place": [", ".join(task["in_place"])] if task["in_place"] else [],
        "tolerance": [_tolerance(task["tolerance"])],
        "relations": [", ".join(task["relations"]) or "none"],
        "aliases": [", ".join(task["aliases"])] if task["aliases"] else [],
        "peers": [f"{system}: {', '.join(names)}" for system, names in peers.items()],
    }


def _backward(task: Mapping[str, Any]) -> str:
    if task["no_backward"]:
        return f"no: {task['no_backward']}"
    text = "yes"
    if task["backward_dtypes"] != task["dtypes"]:
        text += f", in {', '.join(task['backward_dtypes'])} alone"
    return text + (f"; not under {', '.join(task['forward_only'])}" if task["forward_only"] else "")


def _tolerance(tolerance: Mapping[str, Any]) -> str:
    parts = [tolerance["kind"]]
    if tolerance["kind"] == "float":
        parts.append(f"factor {tolerance['factor']:g}")
        parts.append(f"sums of {tolerance['reduction'] or 'several'} terms" if tolerance["sums"] else "nothing summed")
    if tolerance["gathered"]:
        parts.append(f"gradients' sums of {tolerance['gathered']} terms")
    if tolerance["normwise"]:
        parts.append("by the norm of the output")
    if tolerance["quantised"]:
        cosine, l1, rms = tolerance["contract"]
        parts.append(f"quantised: cosine at least {cosine:g}, relative L1 {l1:g} and rms {rms:g} at most")
    return ", ".join(parts)


def _costs(task: Mapping[str, Any]) -> Table:
    """What a forward call costs at a shape of each category, in the first dtype."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    add_columns(table, ("cost", "at"), overflow="fold")
    add_columns(table, ("FLOP", "bytes", "FLOP/B", "terms"), justify="right", no_wrap=True)
    for sample in task["samples"]:
        table.add_row(*_cost(sample))
    for shape in task["real_shapes"]:
        table.add_row(*_cost(shape))
    table.caption = Text(safe(f"one forward call in {task['sample']['dtype']}; bytes: the least that it must move"))
    table.caption_justify = "left"
    return table


def _cost(sample: Mapping[str, Any]) -> tuple[Text | str, ...]:
    at = " ".join(f"{name}={value}" for name, value in sample["dims"].items())
    return (
        Text(safe(sample["shape_category"])),
        Text(safe(at)),
        _scaled(sample["flops"], 1000),
        f"{_scaled(sample['bytes'], 1024)}B",
        f"{sample['intensity']:.3g}",
        str(sample["terms"]),
    )


def _scaled(value: float, base: int) -> str:
    """``1.23 M`` (base 1000) or ``1.23 Mi`` (base 1024), ready for a unit."""
    prefixes = ("", "k", "M", "G", "T", "P") if base == 1000 else ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    step = 0
    while abs(value) >= base and step < len(prefixes) - 1:
        value, step = value / base, step + 1
    return f"{value:.3g} {prefixes[step]}"


def render_peer(peer: Mapping[str, Any], console: Console) -> None:
    """Print the map of one peer (:func:`kerneleval.reports.tasks.summarise_peer`), group by group, and counts."""
    rows = peer["rows"]
    for group in dict.fromkeys(row["group"] for row in rows):
        of = [row for row in rows if row["group"] == group]
        mapped = sum(bool(row["tasks"]) for row in of)
        table = Table(box=box.SIMPLE_HEAD, title=Text(f"{safe(group)}: {mapped} of {len(of)}"), title_justify="left")
        table.add_column("name", overflow="fold", ratio=2)
        table.add_column("tasks", overflow="fold", ratio=3)
        table.add_column("note", overflow="fold", style="dim", ratio=3)
        for row in of:
            tasks = Text(safe("\n".join(row["tasks"]))) if row["tasks"] else Text("none", style="dim")
            table.add_row(Text(safe(row["name"])), tasks, Text(safe(row["note"])))
        console.print(table)
    console.print(Text(safe(_counted(peer)), style="bold"))


def _counted(peer: Mapping[str, Any]) -> str:
    text = f"{peer['system']}: {peer['mapped']} of {peer['names']} mapped, to {peer['tasks']} tasks"
    if peer["listed"] < peer["names"]:
        text += f"; {peer['listed_mapped']} of {peer['listed']} of its own list"
    return text


# -- Self-test --------------------------------------------------------------------------------------------------------


def render_selftest(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    """A line for each task of :func:`kerneleval.pipeline.selftest`, and what is wrong beneath it."""
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
