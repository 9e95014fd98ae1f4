"""One candidate on several devices, for people: the portability matrix, and where outputs differ."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.records import Apart, CaseAnswers, CompiledKernel, Differential, Element, Matrix, MatrixRow, Rung
from kerneleval.reports.tables import add_columns
from kerneleval.reports.text import MISSING, plural, safe
from kerneleval.scores.common.cells import by_key

_STYLES = {"yes": "green", "no": "bold red", "not evaluated": "dim"}
_SHORT = {"yes": "yes", "no": "no", "not evaluated": MISSING}
_MOST = 600
"""Characters of a message that are shown."""

_ASIDE = ("spill", "ldmatrix", "mbarrier", "setmaxnreg")
_LEGEND = (
    "registers a thread, spilled (AMD: registers, else bytes) and shared (bytes): the most that a kernel takes; uses: "
    "special units, widest access (B)"
)
_WIDE = 110
"""Terminal width in columns from which on GPUs and times are shown too."""


def render_matrix(matrix: Matrix, console: Console) -> None:
    """Print a row for each target, what its kernels take, and the first words of whatever failed."""
    title = f"{safe(matrix.task)}, {safe(matrix.language)} candidate {matrix.candidate[:12]}"
    console.print(Text(title, style="bold"), soft_wrap=True)
    wide = console.width >= _WIDE
    table = Table(box=None, padding=(0, 2 if wide else 1, 0, 0))
    table.add_column("target", no_wrap=True)
    if wide:
        table.add_column("GPU", no_wrap=True)
    add_columns(table, ("compiles", "runs", "correct", "≥ 0.8×"), justify="center", no_wrap=True)
    add_columns(table, ("registers", "spilled", "shared", *(["s"] if wide else [])), justify="right", no_wrap=True)
    add_columns(table, ("R", "H"), justify="right", no_wrap=True)
    table.add_column("uses", overflow="fold")
    for row in matrix.rows:
        cells: list[str | Text] = [safe(row.target), *([safe(row.product)] if wide else [])]
        cells += [_cell(row.compiles), _cell(row.runs), _cell(row.correct), _fast(row)]
        cells += [_most(row.kernels, name) for name in ("registers", "spilled", "shared_bytes")]
        cells += [f"{row.seconds:.1f}" if row.seconds else ""] if wide else []
        cells += [str(axis.level or "") if axis else "" for axis in (row.representation, row.hardware)]
        table.add_row(*cells, _uses(row.kernels))
    console.print(table)
    compiled = sum(row.compiles.answer == "yes" for row in matrix.rows)
    tried = sum(row.compiles.answer != "not evaluated" for row in matrix.rows)
    remark = f"compiles for {compiled} of {plural(tried, 'target')} tried" if tried else "no target was tried"
    console.print(f"{remark}; – is not evaluated")
    if any(row.kernels for row in matrix.rows):
        console.print(Text(_LEGEND, style="dim"), soft_wrap=True)
    _failures(matrix, console)
    _evidence(matrix, console)


def _failures(matrix: Matrix, console: Console) -> None:
    """The first words of whatever failed, for which variant alone it compiles, and why it was not compiled."""
    for row in matrix.rows:
        for name in ("compiles", "runs", "correct", "fast"):
            rung: Rung = getattr(row, name)
            if rung.answer == "no" and rung.why:
                console.print(Text(f"{safe(row.target)}, {_NAMES[name]}: ", style="bold"), end="")
                console.print(Text(safe(rung.why, _MOST)), soft_wrap=True)
                break
    for row in matrix.rows:
        if row.only_for:
            note = f"{safe(row.target)}: compiles for {safe(row.only_for)} alone, whose binaries run on no later GPU"
            console.print(Text(note), soft_wrap=True)
    left_out = [row for row in matrix.rows if row.compiles.answer == "not evaluated" and row.compiles.why]
    for why, targets in by_key((row.compiles.why, safe(row.target)) for row in left_out).items():
        console.print(Text(f"not evaluated: {', '.join(targets)} ({safe(why, _MOST)})", style="dim"), soft_wrap=True)


def _evidence(matrix: Matrix, console: Console) -> None:
    """What the levels of the rubric (R, representation; H, hardware) rest on, once for all targets of which the same is
    said.
    """
    for axis, name in (("R", "representation"), ("H", "hardware")):
        rated = [(row.target, found) for row in matrix.rows if (found := getattr(row, name)) is not None]
        said = by_key((f"{axis} ({name}) {found.level or '–'}, {found.reason}", target) for target, found in rated)
        for reason, targets in said.items():
            where = ", ".join(map(safe, targets))
            console.print(Text(f"{where}: {safe(reason, _MOST)}", style="dim"), soft_wrap=True)


_NAMES = {"compiles": "compiles", "runs": "runs", "correct": "correct", "fast": "≥ 0.8×"}


def _cell(rung: Rung) -> Text:
    return Text(_SHORT[rung.answer], style=_STYLES[rung.answer])


def _fast(row: MatrixRow) -> Text:
    remark = f" {row.speedup:.2f}×" if row.speedup is not None and row.fast.answer != "not evaluated" else ""
    return Text(_SHORT[row.fast.answer] + remark, style=_STYLES[row.fast.answer])


def _most(kernels: Sequence[CompiledKernel], name: str) -> str:
    """The most that one of the kernels takes; empty: not known."""
    values = [int(getattr(kernel, name)) for kernel in kernels]
    return str(max(values)) if values and max(values) >= 0 else ""


def _uses(kernels: Sequence[CompiledKernel]) -> str:
    """Classes of instructions of all kernels, and the widest access in bytes; what has a column of its own, and what
    comes with others, aside.
    """
    classes = dict.fromkeys(name for kernel in kernels for name, _ in kernel.instructions if name not in _ASIDE)
    widest = max((kernel.widest_bytes for kernel in kernels), default=-1)
    return ", ".join([*classes, *([f"{widest} B"] if widest > 0 else [])])


_SHOWN = 3
"""Cases of one device that are shown in full; the JSON document has all."""
_ROWS = 12


def render_differential(found: Differential, console: Console) -> None:
    """Print for each device in how many cases it is right, where it is wrong, and how far the devices differ."""
    console.print(Text(f"{safe(found.task)} on {', '.join(found.candidates)}", style="bold"), soft_wrap=True)
    console.print(_devices(found))
    remark = "largest error of correct outputs, as a share of the allowed error ('of bound'): at most 1"
    console.print(Text(remark, style="dim"), soft_wrap=True)
    for device, why in found.not_evaluated.items():
        console.print(Text(f"not evaluated: {device} ({safe(why, 300)})", style="dim"), soft_wrap=True)
    for device, count in found.wrong.items():
        if count:
            _render_wrong(found, device, console)
    _render_apart(found, console)
    wrong = [device for device, count in found.wrong.items() if count]
    remark = f"wrong: {', '.join(wrong)}" if wrong else "no device is wrong in the cases judged"
    console.print(Text(remark, style="bold red" if wrong else "bold green"))


def _devices(found: Differential) -> Table:
    """A row for each device; files by their last names, where these differ."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    files = set(found.sources.values())
    names = {file: Path(file).name for file in files}
    if len(set(names.values())) < len(files):
        names = {}
    table.add_column("device", no_wrap=True)
    table.add_column("machine")
    table.add_column("file", overflow="fold")
    add_columns(table, ("right", "wrong"), justify="right", no_wrap=True)
    for name in ("unsupported", "largest error"):
        table.add_column(name, justify="right", min_width=len(name.split()[0]))
    for device, machine in found.machines.items():
        answers = [one for case in found.cases for one in case.answers if one.device == device]
        counts = [sum(one.answer == what for one in answers) for what in ("right", "wrong", "unsupported")]
        right = [one.of_bound for one in answers if one.answer == "right"]
        largest = f"{max(right):.2f}" if right else "–"
        wrong = Text(str(counts[1]), style="bold red" if counts[1] else "dim")
        source = safe(names.get(found.sources[device], found.sources[device]), 60)
        table.add_row(device, safe(machine.name, 60), source, str(counts[0]), wrong, str(counts[2]), largest)
    return table


def _render_wrong(found: Differential, device: str, console: Console) -> None:
    answers = [(case, one) for case in found.cases for one in case.answers if one.device == device]
    wrong = [(case, one) for case, one in answers if one.answer == "wrong"]
    console.print(Text(f"{device} is wrong in {plural(len(wrong), 'case')} of {len(found.cases)}:", style="bold red"))
    for case, one in wrong[:_SHOWN]:
        others = [other.device for other in case.answers if other.answer == "right"]
        remark = f" ({', '.join(others)} right)" if others else ""
        console.print(Text(f"  {safe(case.case.key)}{remark}"), soft_wrap=True)
        console.print(Text(f"    {one.stage}/{one.reason}: {safe(one.message, _MOST)}"), soft_wrap=True)
        for element in one.elements:
            console.print(Text(f"    {_element(element)}"), soft_wrap=True)
        if one.native:
            console.print(Text(f"    PyTorch's own operators on {device} are {one.native} on these inputs"))
        console.print(Text(f"    {_again(found, case)}", style="dim"), soft_wrap=True)
    if len(wrong) > _SHOWN:
        console.print(f"  and {plural(len(wrong) - _SHOWN, 'case')} more (--json has all)")


def _element(element: Element) -> str:
    shape = "×".join(map(str, element.shape)) or "scalar"
    values = ", ".join(f"{device} {value:.9g}" for device, value in element.values.items())
    place = list(element.index)
    return f"output {element.output} ({shape} {element.dtype}) at {place}: {values}; oracle {element.oracle:.9g}"


def _again(found: Differential, case: CaseAnswers) -> str:
    files = list(dict.fromkeys(found.sources.values()))
    what = "--reference" if files == ["reference"] else " ".join(shlex.quote(safe(file)) for file in files)
    devices = ",".join(found.candidates)
    task, key = (shlex.quote(safe(text)) for text in (found.task_source, case.case.key))
    return f"again: kerneleval differ {what} --task {task} --devices {devices} --case {key}"


def _render_apart(found: Differential, console: Console) -> None:
    """The greatest distance of each pair of devices, by output, over the cases where both are right."""
    greatest: dict[tuple[str, ...], tuple[Apart, int, int]] = {}
    for case in found.cases:
        right = {one.device for one in case.answers if one.answer == "right"}
        for apart in case.apart:
            if not {apart.first, apart.second} <= right:
                continue
            output = f"{apart.output} {apart.worst.dtype}"
            key: tuple[str, ...] = (apart.first, apart.second, case.case.direction, output)
            before, equal, of = greatest.get(key, (apart, 0, 0))
            larger = apart if _size(apart) > _size(before) else before
            greatest[key] = larger, equal + apart.equal, of + apart.of
    for pair in dict.fromkeys(key[:2] for key in greatest):
        if all(equal == of for key, (_, equal, of) in greatest.items() if key[:2] == pair):
            console.print(f"{' and '.join(pair)} agree in every element, where both are right")
    different = {key: of for key, of in greatest.items() if of[1] < of[2]}
    if not different:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), title="Farthest apart where both are right", title_justify="left")
    add_columns(table, ("devices", "direction", "output"), no_wrap=True)
    for name in ("equal", "relative rms", "of bound", "max", "of bound"):
        table.add_column(name, justify="right", min_width=max(map(len, name.split())))
    for key in sorted(different, key=lambda key: -_size(different[key][0]))[:_ROWS]:
        apart, equal, of = different[key]
        figures = (apart.relative_rms, apart.rms_of_bound, apart.max_abs, apart.max_of_bound)
        remark = (
            f"{100 * min(equal / of, 0.9999):.2f} %",
            *(MISSING if math.isnan(value) else f"{value:.2g}" for value in figures),
        )
        table.add_row(f"{key[0]}, {key[1]}", *key[2:], *remark)
    console.print(table)
    if len(different) > _ROWS:
        console.print(f"and {len(different) - _ROWS} more (--json has all)")


def _size(apart: Apart) -> float:
    return apart.max_abs if math.isnan(apart.rms_of_bound) else apart.rms_of_bound
