from __future__ import annotations

import io

from rich.console import Console

from kerneleval.reports.machine_view import rate, render_peaks

PEAK = {"unit": "B/s", "best": 4.2e12, "median": 4.1e12, "n": 7, "how": "copy over 2 GiB", "why_not": ""}
FOUND = {
    "machine": {"name": "NVIDIA H200", "arch": "sm_90"},
    "product": "NVIDIA H200 SXM",
    "source": "data sheet",
    "unsteady": "the load is high",
    "peaks": [
        PEAK | {"name": "copy", "datasheet": 4.8e12, "share": 0.875},
        PEAK | {"name": "cache", "datasheet": None, "share": None},
        PEAK | {"name": "matrix/int8", "best": 0.0, "why_not": "no\x1b[31m such", "datasheet": 1.0, "share": None},
    ],
}


def shown(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    render_peaks(FOUND, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_row_a_peak_beside_the_data_sheet() -> None:
    text = shown(140)
    (copy,) = [line for line in text.splitlines() if line.startswith("copy")]
    assert copy.split() == [
        "copy",
        "4.20",
        "TB/s",
        "98",
        "%",
        "7",
        "4.80",
        "TB/s",
        "88",
        "%",
        "copy",
        "over",
        "2",
        "GiB",
    ]
    assert "matrix/int8: not available: no\\x1b[31m such" in text
    assert "unsteady machine: the load is high" in text
    assert "NVIDIA H200 SXM (data sheet)" in text


def test_narrow_terminals_get_the_figures_alone() -> None:
    assert "over 2 GiB" not in shown(80)


def test_rates_have_the_prefix_that_suits_them() -> None:
    assert rate(9.894e14, "FLOP/s") == "989.4 TFLOP/s"
    assert rate(1.979e15, "OP/s") == "1.98 POP/s"
    assert rate(12.0, "B/s") == "12.00 B/s"
