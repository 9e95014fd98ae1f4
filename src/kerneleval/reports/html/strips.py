"""Small multiples of the shapes: one strip an operator, drawn as SVG, readable without a script."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from kerneleval.reports.html.document import Document
from kerneleval.reports.html.plots import COLOURS, SHORT, colours, ticks

PANELS = 30
"""Operators shown as small multiples; the menu has all."""
PANEL_POINTS = 160
"""Points drawn in one panel."""

_WIDTH, _LEFT, _ROW, _TOP, _BOTTOM = 260, 58, 11, 4, 18


def panels(document: Document) -> list[dict[str, Any]]:
    """The most uneven operators: ``task``, ``svg``, ``points`` as [drawn, all]. All share one logarithmic axis."""
    shapes = document["shapes"]
    chosen = shapes["operators"][:PANELS]
    place = colours(document)
    low, high = _range(chosen)
    found = []
    for one in chosen:
        marks, drawn = _marks(one, place, low, high)
        svg = _frame(shapes["categories"], low, high, marks)
        found.append({"task": one["task"], "svg": svg, "points": [drawn, one["timed"]], "ratio": one["unevenness"]})
    return found


def _range(chosen: list[dict[str, Any]]) -> tuple[float, float]:
    values = [s for one in chosen for of in one["points"].values() for s in of["s"] if s]
    low, high = min([*values, 0.8]), max([*values, 1.25])
    air = (high / low) ** 0.04
    return low / air, high * air


def _x(value: float, low: float, high: float, left: float = _LEFT, width: float = _WIDTH) -> float:
    return left + (width - left - 6) * math.log(value / low) / math.log(high / low)


def _marks(one: dict[str, Any], place: dict[str, int], low: float, high: float) -> tuple[str, int]:
    """Dots, each row of a category shared out among the generators; and how many."""
    parts: list[str] = []
    drawn = 0
    n = max(len(place), 1)
    every = max(1, math.ceil(one["shown"] / PANEL_POINTS))
    for name, of in one["points"].items():
        slot = place[name]
        shift = (slot - (n - 1) / 2) * min(3.0, 7.0 / n)
        dots = []
        for category, value in list(zip(of["c"], of["s"], strict=True))[::every]:
            if value and value > 0:
                y = _TOP + (category + 0.5) * _ROW + shift
                dots.append(f'<circle cx="{_x(value, low, high):.1f}" cy="{y:.1f}" r="2.1"/>')
        drawn += len(dots)
        parts.append(f'<g class="g{slot % COLOURS}" data-g="{slot}">{"".join(dots)}</g>')
    return "".join(parts), drawn


def _frame(categories: list[str], low: float, high: float, marks: str) -> Markup:
    bottom = _TOP + _ROW * len(categories)
    rows = "".join(
        f'<text x="{_LEFT - 6}" y="{_TOP + (i + 0.5) * _ROW + 3:.1f}" text-anchor="end">'
        f"{Markup.escape((SHORT.get(name, name))[:11])}</text>"
        for i, name in enumerate(categories)
    )
    values, texts = ticks(low, high)
    every = max(1, math.ceil(len(values) / 4))
    one = [i for i, v in enumerate(values) if abs(v - 1) < 1e-9]
    kept = set(range(one[0] % every if one else 0, len(values), every))
    grid = "".join(
        f'<line class="{"one" if abs(v - 1) < 1e-9 else "grid"}" x1="{_x(v, low, high):.1f}" '
        f'x2="{_x(v, low, high):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f'<text x="{_x(v, low, high):.1f}" y="{bottom + 12}" text-anchor="middle">{text}</text>'
        for i, (v, text) in enumerate(zip(values, texts, strict=True))
        if i in kept
    )
    size = f'viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}"'
    return Markup(f'<svg {size} role="img" aria-label="speedup by shape">{grid}{rows}{marks}</svg>')


def forest(value: float, low: float, high: float, top: float, slot: int) -> Markup:
    """A bar from 0 with its interval, on an axis up to ``top``; empty where there is no value."""
    if math.isnan(value) or top <= 0:
        return Markup("")
    width = 100.0 / top
    bar = f'<rect class="bar" x="0" y="5" width="{value * width:.2f}" height="6" rx="1"/>'
    line = ""
    if not (math.isnan(low) or math.isnan(high)):
        a, b = (min(100.0, v * width) for v in (low, high))
        line = f'<line x1="{a:.2f}" x2="{b:.2f}" y1="8" y2="8"/>'
    return Markup(
        f'<svg class="forest g{slot % COLOURS}" viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true">'
        f"{bar}{line}</svg>"
    )
