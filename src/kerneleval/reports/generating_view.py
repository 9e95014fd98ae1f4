"""Prompts, what was generated and what a run would cost, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneleval.reports.text import duration, plural, safe

_FIGURES = {
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "usd": "US dollars",
    "asking_s": "asking",
    "judging_s": "judging",
}


def render_prompts(prompts: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print prompts as they would be sent; nothing is wrapped, so that they can be copied."""
    for prompt in prompts:
        characters = sum(len(m["content"]) for m in prompt["messages"])
        title = f" {safe(prompt['task'])} · {safe(prompt['template'])} · {characters:,} characters "
        console.rule(Text(title, style="bold"), align="left")
        console.print(Text(f"hash {prompt['hash']}", style="dim"), soft_wrap=True)
        for message in prompt["messages"]:
            console.print(Text(f"\n[{safe(message['role'])}]", style="bold cyan"))
            for line in str(message["content"]).split("\n"):
                console.print(Text(safe(line, len(line))), soft_wrap=True)


def render_generated(found: Mapping[str, Any], console: Console) -> None:
    """Print how many candidates a generator gave, and what they cost."""
    without = ", ".join(f"{count} {safe(problem)}" for problem, count in found["without"].items())
    text = f"{plural(int(found['candidates']), 'candidate')} in {safe(found['folder'])}"
    console.print(Text(text + (f"; without one: {without}" if without else "")), soft_wrap=True)
    cost = f"{found['tokens_in']:,} tokens in, {found['tokens_out']:,} out, {found['usd']:.4f} US dollars"
    console.print(Text(f"{cost}, {duration(float(found['seconds']))} of answering"), soft_wrap=True)
    if found["unasked"]:
        console.print(Text(f"note: {safe(found['unasked'])}", style="yellow"), soft_wrap=True)


def render_estimate(found: Mapping[str, Any], console: Console) -> None:
    """Print what a run would cost, generator by generator."""
    for name, row in found["generators"].items():
        table = Table(title=f"{safe(name)}: {plural(int(row['requests']), 'request')}", title_justify="left", box=None)
        table.add_column("")
        table.add_column("expected", justify="right")
        table.add_column("range", justify="right")
        if found["against"]:
            table.add_column("the run", justify="right")
        table.add_column("from", overflow="fold")
        for key, label in _FIGURES.items():
            figure = row.get(key)
            cells = ["–", "", "not known"] if figure is None else _cells(key, figure)
            if figure is None and row["requests"] == 0 and key != "judging_s":
                continue
            if found["against"]:
                actual = (figure or {}).get("actual")
                cells.insert(2, "–" if actual is None else _value(key, actual))
            table.add_row(label, *(Text(safe(cell)) for cell in cells))
        console.print(table)


def _cells(key: str, figure: Mapping[str, Any]) -> list[str]:
    return [
        _value(key, figure["value"]),
        f"{_value(key, figure['low'])} to {_value(key, figure['high'])}",
        str(figure["basis"]),
    ]


def _value(key: str, value: float) -> str:
    if key == "usd":
        return f"{value:.4f}" if value < 1 else f"{value:,.2f}"
    return duration(value) if key.endswith("_s") else f"{value:,.0f}"
