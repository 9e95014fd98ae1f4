"""What several devices gave on the same inputs, for people."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.records import Apart, CaseAnswers, Differential, Element
from kerneleval.reports.text import plural, safe

_SHOWN = 3
"""Cases of one device that are shown in full; the JSON document has all."""
_ROWS = 12
_TEXT = 600


def render_differential(found: Differential, console: Console) -> None:
    """Print for each device in how many cases it is right, where it is wrong, and how far the devices lie apart."""
    console.print(Text(f"{safe(found.task)} on {', '.join(found.candidates)}", style="bold"), soft_wrap=True)
    console.print(_devices(found))
    told = "largest error of correct outputs, as a share of the allowed error ('of bound'): at most 1"
    console.print(Text(told, style="dim"), soft_wrap=True)
    for device, why in found.not_evaluated.items():
        console.print(Text(f"not evaluated: {device} ({safe(why, 300)})", style="dim"), soft_wrap=True)
    for device, count in found.wrong.items():
        if count:
            _render_wrong(found, device, console)
    _render_apart(found, console)
    wrong = [device for device, count in found.wrong.items() if count]
    told = f"wrong: {', '.join(wrong)}" if wrong else "no device is wrong in the cases judged"
    console.print(Text(told, style="bold red" if wrong else "bold green"))


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
    for name in ("right", "wrong"):
        table.add_column(name, justify="right", no_wrap=True)
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
        told = f" ({', '.join(others)} right)" if others else ""
        console.print(Text(f"  {safe(case.case.key)}{told}"), soft_wrap=True)
        console.print(Text(f"    {one.stage}/{one.reason}: {safe(one.message, _TEXT)}"), soft_wrap=True)
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
    for name in ("devices", "direction", "output"):
        table.add_column(name, no_wrap=True)
    for name in ("equal", "relative rms", "of bound", "max", "of bound"):
        table.add_column(name, justify="right", min_width=max(map(len, name.split())))
    for key in sorted(different, key=lambda key: -_size(different[key][0]))[:_ROWS]:
        apart, equal, of = different[key]
        figures = (apart.relative_rms, apart.rms_of_bound, apart.max_abs, apart.max_of_bound)
        told = f"{100 * min(equal / of, 0.9999):.2f} %", *map(_figure, figures)
        table.add_row(f"{key[0]}, {key[1]}", *key[2:], *told)
    console.print(table)
    if len(different) > _ROWS:
        console.print(f"and {len(different) - _ROWS} more (--json has all)")


def _size(apart: Apart) -> float:
    return apart.max_abs if math.isnan(apart.rms_of_bound) else apart.rms_of_bound


def _figure(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2g}"
