"""The plots: specifications for plotly.js, traces and layout as plain data; and small multiples of the shapes, one
strip an operator, which the templates draw as SVG, readable without a script.

Colours are names such as ``@g0`` (first generator) or ``@ink/0.2`` (with opacity): the script puts in those of the
theme in force. Text of others is escaped: plotly.js reads tags in labels.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kerneleval.records import SHAPE_CATEGORIES
from kerneleval.reports.html.document import Document
from kerneleval.reports.text import figure, number
from kerneleval.scores.common.cells import by_key

Plain = dict[str, Any]

COLOURS = 8
"""Colours before they come again (style.css has them as --g0 ...), from Okabe and Ito's palette for all kinds of colour
vision (2008, https://jfly.uni-koeln.de/color/), darker or lighter where the background needs it."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
"""One for each generator, so that colour is never the only sign."""
FILLS = ("", "-open", "-dot", "-open-dot")
"""How they are filled when colours come again; script.js has the same."""
GLYPHS = "●■◆▲✚✖★⬢○□◇△✛✕☆⬡"
"""The same as letters, for legends."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SHORT = {"power_of_two": "2ⁿ", "non_power_of_two": "not 2ⁿ"}
"""Shape categories with a long name."""
ROOFLINE_POINTS = 4000
"""Points drawn in the roofline plot."""


def symbol(slot: int) -> str:
    """Mark of a generator: filled for the first eight, then hollow, with a dot, hollow with a dot."""
    return SYMBOLS[slot % len(SYMBOLS)] + FILLS[slot // len(SYMBOLS) % len(FILLS)]


def colours(document: Document) -> dict[str, int]:
    """Generator -> number of its colour and symbol, the same in the whole report."""
    names = dict.fromkeys([*document["run"]["generators"], *document["scores"]])
    return {name: i for i, name in enumerate(names)}


def label(text: str, limit: int = 60) -> str:
    """Text of others as plotly.js shows it unchanged."""
    return html.escape(text if len(text) <= limit else text[: limit - 1] + "…", quote=False)


def figures(document: Document) -> dict[str, Plain]:
    """Plot identifier -> ``data``, ``layout``, ``height`` (pixels) and ``legend`` (generators in it)."""
    makers = {"fast-p": _fast_p, "shapes": _by_shape, "roofline": _roofline}
    return {f"plot-{name}": make(document) for name, make in makers.items() if name not in document["not_evaluated"]}


def _axis(title: str, **more: Any) -> Plain:
    plain = {
        "title": {"text": title, "standoff": 8},
        "gridcolor": "@line",
        "linecolor": "@line-strong",
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        "fixedrange": False,
    }
    return plain | more


def _layout(x: Plain, y: Plain, **more: Any) -> Plain:
    plain = {
        "xaxis": x,
        "yaxis": y,
        "showlegend": False,
        "margin": {"l": 52, "r": 12, "t": 12, "b": 44},
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
    }
    return plain | more


def ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Round ticks of a logarithmic axis of speedups, at most about eight, and their texts."""
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
        values = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        inside = [v for v in values if low * 0.999 <= v <= high * 1.001]
        if len(inside) <= 8:
            break
    inside = inside[:: max(1, math.ceil(len(inside) / 8))]
    return inside, [f"{v:g}×" for v in inside]


def _log_axis(title: str, low: float, high: float, **more: Any) -> Plain:
    values, texts = ticks(low, high)
    span = {"type": "log", "range": [math.log10(low), math.log10(high)], "tickvals": values, "ticktext": texts}
    return _axis(title, **span, **more)


def _around(values: Iterable[float], least: tuple[float, float] = (0.9, 1.1), air: float = 0.06) -> tuple[float, float]:
    """A range for a logarithmic axis that holds all values and the least range, with some air."""
    positive = [v for v in values if 0 < v < math.inf]
    low, high = min([*positive, least[0]]), max([*positive, least[1]])
    room = (high / low) ** air
    return low / room, high * room


# -- fast_p -----------------------------------------------------------------------------------------------------------


def _fast_p(document: Document) -> Plain:
    largest = document["fast_p"]["largest"]
    end = max(largest * 1.02, 1.2)
    against = label(document["run"]["protocol"]["baseline"], 20)
    place = colours(document)
    data: list[Plain] = []
    for name, curve in document["fast_p"]["curves"].items():
        if not curve["p"]:
            continue
        colour = f"@g{place[name] % COLOURS}"
        p, value, low, high = ([*curve[key], curve[key][-1]] for key in ("p", "value", "low", "high"))
        p[-1] = end
        shared = {"type": "scatter", "mode": "lines", "legendgroup": str(place[name]), "x": p}
        hidden = {"line": {"shape": "hv", "width": 0}, "hoverinfo": "skip"}
        data.append({**shared, **hidden, "y": low})
        data.append({**shared, **hidden, "y": high, "fill": "tonexty", "fillcolor": f"{colour}/0.11"})
        bounds = [f"{100 * a:.0f}–{100 * b:.0f} %" for a, b in zip(low, high, strict=True)]
        data.append(
            {
                **shared,
                "y": value,
                "line": {"shape": "hv", "width": 2.25, "color": colour, "dash": DASHES[place[name] // COLOURS % 6]},
                "customdata": bounds,
                "name": label(name),
                "hovertemplate": "<b>%{fullData.name}</b><br>p = %{x:.3g}: %{y:.0%} of tasks"
                "<br>95 % interval %{customdata}<extra></extra>",
            }
        )
    layout = _layout(
        _axis("p: times the baseline's speed", range=[0, end], rangemode="tozero"),
        _axis("tasks correct and faster than p", range=[0, 1.03], tickformat=".0%"),
        shapes=[_line(x=1)],
        annotations=[{"x": 1, "y": 1.03, "yref": "y", "text": f"1× ({against})", **_NOTE}],
        margin={"l": 52, "r": 12, "t": 30, "b": 44},
    )
    return {"data": data, "layout": layout, "height": 380, "legend": list(document["fast_p"]["curves"]), "log": True}


_NOTE: Plain = {"showarrow": False, "xanchor": "left", "yanchor": "bottom", "font": {"color": "@ink-soft"}}


def _line(*, x: float) -> Plain:
    style = {"color": "@ink-soft", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": style, "layer": "below"}


# -- Shapes -----------------------------------------------------------------------------------------------------------


def _by_shape(document: Document) -> Plain:
    """Median speedup by shape category, generators side by side, with intervals."""
    place = colours(document)
    seen = dict.fromkeys(k for of in document["scores"].values() for k in of.get("speedup_by_shape", {}))
    order: list[str] = [c for c in SHAPE_CATEGORIES if c in seen] + [c for c in seen if c not in SHAPE_CATEGORIES]
    names = [name for name, of in document["scores"].items() if of.get("speedup_by_shape")]
    data: list[Plain] = []
    limits: list[float] = []
    for row, name in enumerate(names):
        table = document["scores"][name]["speedup_by_shape"]
        mine = {i: table[c] for i, c in enumerate(order) if c in table}
        offset = (row - (len(names) - 1) / 2) * min(0.22, 0.7 / max(len(names), 1))
        data.append(_medians(name, place[name], mine, order, offset))
        limits += [number(score[end]) for score in mine.values() for end in ("low", "value", "high")]
    low, high = _around(limits)
    words = [label(SHORT.get(c, c), 24) for c in order]
    y = _axis("", tickvals=list(range(len(order))), ticktext=words, range=[len(order) - 0.4, -0.6], showgrid=False)
    layout = _layout(
        _log_axis("median speedup", low, high),
        y,
        shapes=[_line(x=1), *_bands(len(order))],
        margin={"l": 12, "r": 12, "t": 12, "b": 44},
    )
    return {"data": data, "layout": layout, "height": 110 + 38 * len(order), "legend": names}


def _medians(name: str, slot: int, mine: Mapping[int, Plain], order: list[str], offset: float) -> Plain:
    """One generator's medians, each in the row of its category, moved by the offset."""
    colour = f"@g{slot % COLOURS}"
    bounds = [(figure(number(score["low"])), figure(number(score["high"]))) for score in mine.values()]
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": str(slot),
        "name": label(name),
        "x": [number(score["value"]) for score in mine.values()],
        "y": [i + offset for i in mine],
        "error_x": {
            "type": "data",
            "array": [_gap(score["high"], score["value"]) for score in mine.values()],
            "arrayminus": [_gap(score["value"], score["low"]) for score in mine.values()],
            "color": f"{colour}/0.55",
            "thickness": 1.5,
            "width": 0,
        },
        "marker": {"color": colour, "size": 9, "symbol": symbol(slot)},
        "customdata": [[label(order[i]), *of] for i, of in zip(mine, bounds, strict=True)],
        "hovertemplate": "<b>%{fullData.name}</b>, %{customdata[0]}<br>%{x:.3g}×"
        " [%{customdata[1]}, %{customdata[2]}]<extra></extra>",
    }


def _bands(rows: int) -> list[Plain]:
    """Every other row is shaded, to lead the eye."""
    shared = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 0}, "layer": "below"}
    return [{**shared, "y0": i - 0.5, "y1": i + 0.5, "fillcolor": "@ink/0.035"} for i in range(0, rows, 2)]


def _gap(upper: Any, lower: Any) -> float:
    gap = number(upper) - number(lower)
    return gap if 0 <= gap < math.inf else 0.0


# -- Roofline ---------------------------------------------------------------------------------------------------------


def _roofline(document: Document) -> Plain:
    place = colours(document)
    points = document["roofline"]
    usable = [p for p in points if all(0 < number(p[name]) < math.inf for name in ("intensity", "achieved_flop_s"))]
    every = max(1, math.ceil(len(usable) / ROOFLINE_POINTS))
    groups: dict[str, list[Plain]] = by_key((point["generator"], point) for point in usable[::every])
    data = [_points(name, of, place.get(name, 0)) for name, of in groups.items()]
    xs = [number(p["intensity"]) for p in usable] or [1.0]
    names = {m["fingerprint"]: m["name"] for m in document["run"]["machines"]}
    limits = {names.get(machine, machine): of for machine, of in document["limits"].items()}
    roofs, notes = _roofs(limits, min(xs), max(xs))
    layout = _layout(
        _axis("arithmetic intensity (FLOP / byte)", type="log", dtick=1, exponentformat="power"),
        _axis("achieved (FLOP / s)", type="log", dtick=1, exponentformat="power"),
        annotations=notes,
    )
    drawn = sum(map(len, groups.values()))
    return {
        "data": roofs + data,
        "layout": layout,
        "height": 460,
        "legend": list(groups),
        "shown": [drawn, len(usable), len(points)],
    }


def _points(name: str, of: list[Plain], slot: int) -> Plain:
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": str(slot),
        "name": label(name),
        "x": [number(p["intensity"]) for p in of],
        "y": [number(p["achieved_flop_s"]) for p in of],
        "customdata": [[label(str(p["case"]), 120), _percent(p.get("fraction"))] for p in of],
        "marker": {
            "color": f"@g{slot % COLOURS}",
            "size": 7,
            "opacity": 0.75,
            "symbol": symbol(slot),
        },
        "hovertemplate": "<b>%{fullData.name}</b><br>%{customdata[0]}<br>%{x:.3g} FLOP/byte, %{y:.3s}FLOP/s"
        "<br>%{customdata[1]} of the limit<extra></extra>",
    }


def _percent(value: Any) -> str:
    fraction = number(value)
    return "–" if math.isnan(fraction) else f"{100 * fraction:.3g} %"


def _roofs(limits: Mapping[str, Plain], low: float, high: float) -> tuple[list[Plain], list[Plain]]:
    """The slope of each machine's bandwidth and the ceilings of its data types, with a word at each ceiling."""
    data: list[Plain] = []
    notes: list[Plain] = []
    for i, (machine, of) in enumerate(limits.items()):
        bandwidth = number(of["bandwidth_byte_s"])
        rates = {dtype: number(rate) for dtype, rate in of["flop_s"].items() if number(rate) > 0}
        right = max([high, *(rate / bandwidth for rate in rates.values())]) * 4
        left = low / 4
        top = max(rates.values(), default=math.inf)
        knee = min(top / bandwidth, right)
        slope = ([left, knee], [left * bandwidth, knee * bandwidth])
        data.append(_roof(*slope, f"{label(machine)}: memory", i))
        for dtype, rate in rates.items():
            data.append(_roof([rate / bandwidth, right], [rate, rate], f"{label(machine)}: {label(dtype)}", i))
            where = {"x": math.log10(right), "y": math.log10(rate), "xanchor": "right", "yanchor": "bottom"}
            notes.append({**where, "text": label(dtype, 20), "showarrow": False, "font": {"color": "@ink-soft"}})
    return data, notes


def _roof(x: list[float], y: list[float], name: str, number_of_machine: int) -> Plain:
    line = {"color": "@ink-soft", "width": 1.5, "dash": DASHES[number_of_machine % len(DASHES)]}
    hover = "%{fullData.name}<br>%{y:.3s}FLOP/s<extra></extra>"
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "line": line, "hovertemplate": hover}


# -- Small multiples ---------------------------------------------------------------------------------------------------

PANELS = 30
"""Operators shown as small multiples; the menu has all."""
PANEL_POINTS = 160
"""Points drawn in one panel."""


def panels(document: Document) -> Plain:
    """The most uneven operators, all on one logarithmic axis from 0 to 1.

    Returns:
        ``ticks`` of the axis (place, text), ``rows`` (names of the shape categories) and ``strips``, each with
        ``task``, ``ratio``, ``points`` ([drawn, all]) and ``marks``: slot of a generator -> places (x, row) of its
        points.
    """
    shapes, place = document["shapes"], colours(document)
    chosen = shapes["operators"][:PANELS]
    low, high = _around((s for one in chosen for of in one["points"].values() for s in of["s"] if s), (0.8, 1.25), 0.04)

    def x(value: float) -> float:
        return math.log(value / low) / math.log(high / low)

    values, texts = ticks(low, high)
    every = max(1, math.ceil(len(values) / 4))
    one = [i for i, v in enumerate(values) if abs(v - 1) < 1e-9]
    kept = range(one[0] % every if one else 0, len(values), every)
    return {
        "ticks": [(x(values[i]), texts[i]) for i in kept],
        "rows": [SHORT.get(name, name)[:11] for name in shapes["categories"]],
        "strips": [_strip(one, place, x) for one in chosen],
    }


def _strip(one: Plain, place: Mapping[str, int], x: Callable[[float], float]) -> Plain:
    """One operator; the row of a category is shared out among the generators."""
    n = max(len(place), 1)
    every = max(1, math.ceil(one["shown"] / PANEL_POINTS))
    marks: dict[int, list[tuple[float, float]]] = {}
    for name, of in one["points"].items():
        slot = place[name]
        row = 0.5 + (slot - (n - 1) / 2) * min(0.27, 0.64 / n)
        points = list(zip(of["c"], of["s"], strict=True))[::every]
        marks[slot] = [(x(value), category + row) for category, value in points if value and value > 0]
    drawn = sum(map(len, marks.values()))
    return {"task": one["task"], "ratio": one["unevenness"], "points": [drawn, one["timed"]], "marks": marks}
