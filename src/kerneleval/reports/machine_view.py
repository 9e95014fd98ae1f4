"""This machine for people: what it can judge, and its measured peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.tables import add_columns
from kerneleval.reports.text import MISSING, rate, safe


def render_doctor(found: dict[str, Any], console: Console) -> None:
    """Print the answer of :func:`kerneleval.pipeline.doctor.examine`."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _rows(found):
        table.add_row(Text(safe(name)), Text(safe(text)))
    console.print(table)
    if found["advice"]:
        console.print("\nWhat could be better:", style="bold")
        for line in found["advice"]:
            console.print(Text(f"  - {safe(line)}"))
    verdict = "This machine can judge." if found["usable"] else "This machine cannot judge yet; see above."
    console.print(f"\n{verdict}", style="green" if found["usable"] else "red")


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("versions", ", ".join(f"{name} {text or 'absent'}" for name, text in found["versions"].items()))]
    for device in found["devices"]:
        rows += _device_rows(device)
    for i, compiler in enumerate(found["compilers"]):
        text = compiler["error"] or compiler["version"] or "absent"
        where = f"  ({compiler['path']})" if compiler["path"] else ""
        rows.append(("compilers" if i == 0 else "", f"{compiler['name']}: {text}{where}"))
    clock, memory, store = found["clock"], found["memory"], found["store"]
    calm = (
        f"{'calm' if clock['calm'] else 'unsteady'}: resolution {clock['resolution_ns']} ns; loops of "
        f"{clock['spin_ns'] / 1e6:.2f} ms spread by {clock['spread']:.1%}, 99th percentile "
        f"{clock['p99_over_median'] - 1:.0%} over the median, {clock['stalls']:.1%} stalled"
    )
    limit = f", limited to {_gib(memory['limit_bytes'])}" if memory["limit_bytes"] else ""
    host = (
        f"{memory['cores']} cores, load {memory['load_1min']:.1f}, memory {_gib(memory['host_bytes'])}{limit}; "
        f"free on disk: {_gib(memory['temporary_free_bytes'])} in {memory['temporary_dir']}, "
        f"{_gib(memory['cache_free_bytes'])} for {memory['cache_dir']}"
    )
    runs = f"{store['runs']} runs" if store["reachable"] and not store["message"] else store["message"]
    return [*rows, ("clock", calm), ("host", host), ("store", f"{store['place']}: {runs}")]


def _device_rows(device: dict[str, Any]) -> list[tuple[str, str]]:
    if not device["available"]:
        return [(device["name"], f"not usable: {device['reason']}{_mark(device)}")]
    machine, sandbox = device["machine"], device["sandbox"]
    numbers = {name: value for name, value in device["conditions"].items() if type(value) in (int, float)}
    conditions = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
    ready = [
        x["name"] + (f" (not {', '.join(x['not_judged'])})" if x["not_judged"] else "")
        for x in device["languages"]
        if not x["missing"]
    ]
    lines = [
        f"{machine['name']}, {machine['arch']}, {machine['units']} units, {_gib(machine['memory_bytes'])}, "
        f"last-level cache {machine['cache_bytes'] / 2**20:.0f} MiB, driver {machine['driver']}{_mark(device)}",
        f"can: {_abilities(device['capabilities'])}",
        f"languages: {', '.join(ready) or 'none'}",
        f"sandbox: {sandbox['error']}"
        if sandbox["error"]
        else f"sandbox: {sandbox['level']} ({', '.join(sandbox['layers'])}); zygote started in "
        f"{sandbox['zygote_start_s']:.2f} s, a worker in {sandbox['fork_s'] * 1e3:.0f} ms",
        *([f"now: {conditions}"] if conditions else []),
    ]
    return [("" if i else device["name"], line) for i, line in enumerate(lines)]


def _mark(device: dict[str, Any]) -> str:
    return "" if device.get("on_hardware", True) else " (not run on hardware)"


def _abilities(capabilities: dict[str, Any]) -> str:
    """What a device can do, by name."""
    able = [name.replace("_", " ") for name, value in capabilities.items() if value is True]
    return f"{', '.join(able)}; memory {capabilities['sharing']}"


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


_WIDE = 110
"""Terminal width in columns from which on the method of each measurement is shown."""


def render_peaks(found: Mapping[str, Any], console: Console) -> None:
    """Print a row for each peak: best, median over best, samples, the vendor's figure and the share of it reached."""
    machine = found["machine"]
    console.print(Text(f"{safe(machine['name'])} ({safe(machine['arch'])})", style="bold"), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("peak", no_wrap=True)
    add_columns(
        table,
        ("measured", "median", "samples", *(("data sheet", "of it") if found["product"] else ())),
        justify="right",
        no_wrap=True,
    )
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
    remark = "measured: the best sample, which is the limit; median: the median sample as a share of it"
    console.print(Text(remark, style="dim"), soft_wrap=True)
    for peak in missing:
        console.print(Text(f"{peak['name']}: not available: {safe(peak['why_not'])}", style="dim"), soft_wrap=True)
    if found["product"]:
        remark = f"data sheet: {found['product']} ({found['source']}); dense rates; shown only, no limit comes from it"
    else:
        remark = "no vendor's figures are known for this device"
    console.print(Text(remark, style="dim"), soft_wrap=True)
    if found["unsteady"]:
        text = (
            f"unsteady machine: {safe(found['unsteady'])}; measure again when it is quiet: kerneleval peaks --measure"
        )
        console.print(Text(text, style="yellow"), soft_wrap=True)
