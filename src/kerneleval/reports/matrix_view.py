"""The portability matrix of a candidate, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.records import CompiledKernel, Matrix, MatrixRow, Rung
from kerneleval.reports.text import plural, safe

_STYLES = {"yes": "green", "no": "bold red", "not evaluated": "dim"}
_SHORT = {"yes": "yes", "no": "no", "not evaluated": "–"}
_MOST = 600
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
    for name in ("compiles", "runs", "correct", "≥ 0.8×"):
        table.add_column(name, justify="center", no_wrap=True)
    for name in ("registers", "spilled", "shared", *(["s"] if wide else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("R", "H"):
        table.add_column(name, justify="right", no_wrap=True)
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
    told = f"compiles for {compiled} of {plural(tried, 'target')} tried" if tried else "no target was tried"
    console.print(f"{told}; – is not evaluated")
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
    reasons: dict[str, list[str]] = {}
    for row in matrix.rows:
        if row.compiles.answer == "not evaluated" and row.compiles.why:
            reasons.setdefault(row.compiles.why, []).append(safe(row.target))
    for why, targets in reasons.items():
        console.print(Text(f"not evaluated: {', '.join(targets)} ({safe(why, _MOST)})", style="dim"), soft_wrap=True)


def _evidence(matrix: Matrix, console: Console) -> None:
    """What the levels of the rubric (R, representation; H, hardware) rest on, once for all targets of which the same is
    said.
    """
    for axis, name in (("R", "representation"), ("H", "hardware")):
        said: dict[str, list[str]] = {}
        for row in matrix.rows:
            if (found := getattr(row, name)) is not None:
                said.setdefault(f"{axis} ({name}) {found.level or '–'}, {found.reason}", []).append(row.target)
        for reason, targets in said.items():
            where = ", ".join(map(safe, targets))
            console.print(Text(f"{where}: {safe(reason, _MOST)}", style="dim"), soft_wrap=True)


_NAMES = {"compiles": "compiles", "runs": "runs", "correct": "correct", "fast": "≥ 0.8×"}


def _cell(rung: Rung) -> Text:
    return Text(_SHORT[rung.answer], style=_STYLES[rung.answer])


def _fast(row: MatrixRow) -> Text:
    told = f" {row.speedup:.2f}×" if row.speedup is not None and row.fast.answer != "not evaluated" else ""
    return Text(_SHORT[row.fast.answer] + told, style=_STYLES[row.fast.answer])


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
