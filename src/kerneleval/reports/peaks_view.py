"""The measured peaks of a machine, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import MISSING, figure, safe

_WIDE = 110
"""Terminal width in columns from which on the method of each measurement is shown."""


def render_peaks(found: Mapping[str, Any], console: Console) -> None:
    """Print a row for each peak: best, median over best, samples, the vendor's figure and the share of it reached."""
    machine = found["machine"]
    console.print(Text(f"{safe(machine['name'])} ({safe(machine['arch'])})", style="bold"), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("peak", no_wrap=True)
    for name in ("measured", "median", "samples", *(("data sheet", "of it") if found["product"] else ())):
        table.add_column(name, justify="right", no_wrap=True)
    wide = console.width >= _WIDE
    if wide:
        table.add_column("measured by", overflow="fold")
    missing = []
    for peak in found["peaks"]:
        if peak["why_not"]:
            missing.append(peak)
            continue
        unit = peak["unit"]
        cells = [safe(peak["name"]), rate(peak["best"], unit), f"{100 * peak['median'] / peak['best']:.0f} %"]
        cells.append(str(peak["n"]))
        if found["product"]:
            cells.append(rate(peak["datasheet"], unit) if peak["datasheet"] else MISSING)
            cells.append(f"{100 * peak['share']:.0f} %" if peak["share"] else MISSING)
        table.add_row(*cells, *([safe(peak["how"])] if wide else []))
    console.print(table)
    told = "measured: the best sample, which is the limit; median: the median sample as a share of it"
    console.print(Text(told, style="dim"), soft_wrap=True)
    for peak in missing:
        console.print(Text(f"{peak['name']}: not available: {safe(peak['why_not'])}", style="dim"), soft_wrap=True)
    if found["product"]:
        told = f"data sheet: {found['product']} ({found['source']}); dense rates; shown only, no limit comes from it"
    else:
        told = "no vendor's figures are known for this device"
    console.print(Text(told, style="dim"), soft_wrap=True)
    if found["unsteady"]:
        text = (
            f"unsteady machine: {safe(found['unsteady'])}; measure again when it is quiet: kerneleval peaks --measure"
        )
        console.print(Text(text, style="yellow"), soft_wrap=True)


def rate(value: float, unit: str) -> str:
    """A rate with the prefix that suits it: ``4.21 TB/s``, ``989 TFLOP/s``."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{figure(value / size)} {prefix}{unit}"
    return f"{figure(value)} {unit}"
