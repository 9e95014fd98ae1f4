"""The document in its templates: text of others made harmless, figures in words, everything inlined."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import time
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from kerneleval import __version__
from kerneleval.records import DIRECTIONS
from kerneleval.reports.html.document import SECTIONS, Document
from kerneleval.reports.html.plots import COLOURS, GLYPHS, colours, figures, panels
from kerneleval.reports.text import duration, ends, figure, number, plural, rate, safe
from kerneleval.scores.common.rules import old_rule

Plain = dict[str, Any]

_LONGEST = 200_000
"""Characters of one text; sources are shortened long before, with a word on it."""


def page(document: Document) -> str:
    """The whole page."""
    clean: Document = harmless(document)
    plots = figures(clean)
    data = as_data(
        {"plots": plots, "shapes": clean["shapes"], "cells": clean["cells"], "colours": list(colours(clean))}
    )
    style, script, plotly = _file("style.css"), _file("script.js"), _plotly()
    template = _environment().get_template("report.html.j2")
    return template.render(
        doc=clean,
        sections=SECTIONS,
        place=colours(clean),
        plots=plots,
        panels=None if "shapes" in clean["not_evaluated"] else panels(clean),
        data=Markup(data),
        style=Markup(style),
        script=Markup(script),
        plotly=Markup(plotly),
        policy=_policy(script, plotly),
        version=__version__,
        columns=_columns(clean),
        factors=FACTORS,
        directed=DIRECTED,
        old_rule=old_rule(clean["run"]["protocol"]),
    )


def harmless(value: Any) -> Any:
    """The same plain data, every control and direction-changing character in it shown by its code."""
    if isinstance(value, str):
        return value if value.replace("\n", "").replace("\t", "").isprintable() else safe(value, _LONGEST)
    if isinstance(value, dict):
        return {harmless(name): harmless(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [harmless(part) for part in value]
    return value


def as_data(value: Any) -> str:
    """Plain data as JSON that ends no ``<script>`` and starts no comment in one."""
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """The same with null, which plotly.js leaves out, for numbers that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> str:
    """The text of plotly.js, from Plotly's package."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script").replace("\r\n", "\n")


def _policy(*scripts: str) -> str:
    """Content security policy: no network at all, and no script but ours, whatever a text of others may hold."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


# -- Templates --------------------------------------------------------------------------------------------------------

LEADERBOARD: tuple[tuple[str, str, str, str], ...] = (
    ("S", "composite", "", ""),
    ("Speed", "speedup_med", "", "×"),
    ("Peak", "peak", "", "×"),
    ("Shape CV", "cv_shape", "", ""),
    ("Coverage", "c_op", "", "%"),
    ("Portability", "p_hw", "", "%"),
    ("fast₁", "fast_p", "1", "%"),
    ("Geo. mean", "geometric_mean", "", "×"),
    ("pass@1", "pass_at_k", "1", "%"),
    ("Shape gap", "shape_gap", "", "×"),
    ("Slower", "regressions", "all", "%"),
)
"""Columns of the leaderboard: title, score, key in its table, unit."""

IF_THERE: tuple[tuple[str, str, str, str], ...] = (
    ("Of the limit", "fraction_of_limit", "", "%"),
    ("US$ a right one", "cost", "usd/correct", ""),
    ("Tokens a right one", "cost", "tokens_out/correct", ""),
)
"""Further columns, where a generator has a value."""

FACTORS = [
    (title, key, unit) for title, key, _, unit in LEADERBOARD if key in ("speedup_med", "cv_shape", "c_op", "p_hw")
]
"""The factors of S: title, score, unit."""

DIRECTED: tuple[tuple[str, str, str, str], ...] = tuple(
    (f"{title}, {direction}" if direction else f"{title}, together", table if direction else score, direction, unit)
    for title, table, score, unit in (
        ("Speed", "speedup_by_direction", "speedup_med", "×"),
        ("Shape CV", "cv_by_direction", "cv_shape", ""),
    )
    for direction in (*DIRECTIONS, "")
)
"""What S is made of that depends on times, by direction: columns as :data:`LEADERBOARD` has them."""


def _columns(document: Document) -> list[tuple[str, str, str, str]]:
    there = []
    for column in IF_THERE:
        _, key, part, _ = column
        tables = [of.get(key) or {} for of in document["scores"].values()]
        found = [table.get(part) if part else table for table in tables]
        if any(score and not math.isnan(number(score["value"])) for score in found):
            there.append(column)
    return [*LEADERBOARD, *there]


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": _score,
        "units": _units,
        "duration": lambda seconds: duration(number(seconds)),
        "figure": lambda value: figure(number(value)),
        "many": lambda n: f"{n:,}",
        "plural": lambda n, noun: plural(n, noun) if n < 1000 else f"{n:,} {noun}s",
        "when": lambda unix_s: time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(unix_s)),
        "rate": lambda value, unit: rate(number(value), unit, "{:.3g}".format),
        # lines are numbered by the style sheet, so that copying takes the source alone
        "code": lambda text: Markup("").join(Markup("<span>{}\n</span>").format(line) for line in text.split("\n")),
        "colour": lambda slot: f"g{slot % COLOURS}",
        "glyph": lambda slot: GLYPHS[slot % len(GLYPHS)],
        "sortable": _sortable,
        "breakable": lambda text: Markup("+<wbr>").join(str(text).split("+")),
        "clip": safe,
        "prose": _prose,
        "anchor": lambda text: hashlib.sha256(str(text).encode()).hexdigest()[:12],
    }
    environment.globals |= {"number": number, "isnan": math.isnan, "max": max, "min": min}
    return environment


def _units(value: float, unit: str) -> str:
    if math.isnan(value):
        return "–"
    if unit == "%":
        shown = 100 * value
        return f"{shown:.0f} %" if shown >= 10 or shown == 0 else f"{shown:.1f} %"
    return figure(value, unit)


def _score(score: Plain | None, unit: str = "") -> Markup:
    """A plain score with its interval, and n and note where the pointer rests."""
    value, low, high = ends(score)
    if score is None or math.isnan(value):
        note = (score or {}).get("note") or "no value"
        return Markup('<span class="none" title="{}">–</span>').format(note)
    title = "; ".join(filter(None, (f"n = {score['n']:,}", score["note"])))
    shown = Markup('<span class="v" title="{}">{}</span>').format(title, _units(value, unit))
    if math.isnan(low) or math.isnan(high):
        return shown + Markup(' <span class="ci">no interval</span>')
    bounds = f"{_units(low, unit).removesuffix(unit).strip()}–{_units(high, unit)}"
    return shown + Markup(' <span class="ci">{}</span>').format(bounds)


def _sortable(score: Plain | None) -> str:
    """What a cell is sorted by; empty: it has no value."""
    value, _, _ = ends(score)
    return "" if math.isnan(value) else f"{value:.9g}"


def _prose(text: str) -> Markup:
    """A docstring's paragraph, its ``names`` in the type of code."""
    parts = text.split("``")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else Markup.escape(part) for i, part in enumerate(parts)
    )
