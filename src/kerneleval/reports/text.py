"""Figures and foreign text as short, harmless strings."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from rich.text import Text

MISSING = "–"


def safe(text: str, limit: int = 2000) -> str:
    """The text with every control and direction-changing character shown by its code, and cut at ``limit``.

    Messages, names and compiler output come from candidates: a raw escape sequence could rewrite the verdict above it.
    """
    cut = text if len(text) <= limit else text[:limit] + f" … ({len(text) - limit} more characters)"
    return "".join(_visible(c) for c in cut)


def _visible(char: str) -> str:
    if char in "\n\t" or (unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def not_judged(run: Mapping[str, Any] | None) -> list[str]:
    """A sentence on each task of a run, as plain data, that is not judged."""
    return [f"{task} is not judged, and counts nowhere: {why}" for task, why in _not_judged(run).items()]


def nothing_in(run: Mapping[str, Any] | None) -> str:
    """Why a run has no results."""
    return "no task of this run can be judged" if _not_judged(run) else "nothing was planned in this run"


def _not_judged(run: Mapping[str, Any] | None) -> Mapping[str, str]:
    return (run or {}).get("not_judged") or {}  # documents of before have none


def number(value: Any) -> float:
    """A number of plain data, where NaN and infinities are text; NaN for None."""
    return math.nan if value is None else float(value)


def figure(value: float, unit: str = "") -> str:
    """Three significant digits at least, two decimals at most; a dash for NaN."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 0.1 or value == 0 else 3
    return f"{value:.{digits}f}{unit}"


def ends(score: Mapping[str, Any] | None) -> tuple[float, float, float]:
    """Value and interval of a plain score; NaN for None."""
    value, low, high = (number(score[name]) if score else math.nan for name in ("value", "low", "high"))
    return value, low, high


def span(score: Mapping[str, Any] | None, unit: str = "", *, narrow: bool = False) -> Text:
    """``1.22x [1.20, 1.24]`` of a plain score; narrow: the interval below the value, as ``1.20–1.24``."""
    value, low, high = ends(score)
    if math.isnan(value):
        return Text(MISSING, style="dim")
    text = Text(figure(value, unit))
    if not (math.isnan(low) or math.isnan(high)):
        interval = f"\n{figure(low)}–{figure(high)}" if narrow else f" [{figure(low)}, {figure(high)}]"
        text.append(interval, style="dim")
    return text


def share(score: Mapping[str, Any] | None) -> Text:
    """``71 %`` of a plain score."""
    value, _, _ = ends(score)
    return Text(MISSING, style="dim") if math.isnan(value) else Text(f"{100 * value:.0f} %")


def times(value: float) -> str:
    """A duration given in nanoseconds."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return MISSING if math.isnan(value) else f"{value:.3g} ns"


def rate(value: float, unit: str, show: Callable[[float], str] = figure) -> str:
    """A quantity or rate with the prefix that suits it: ``4.21 TB/s``, ``989.4 TFLOP/s``."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{show(value / size)} {prefix}{unit}"
    return f"{figure(value)} {unit}"


def duration(seconds: float) -> str:
    """A duration for people: ``42 s``, ``3 min 5 s``, ``2 h 4 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def plural(n: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{n} {noun}{'s' * (n != 1)}"


def count(n: int) -> Text:
    """A count; zero is dim."""
    return Text(str(n), style="dim" if n == 0 else "")
