"""What an agent says that it used: nothing of it is trusted to be there, or to be what it should."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

PRICES = "as the agent says"
"""List that an agent's own figure is from, for ``Origin.prices``."""

_MOST = 10**12
_TRIES = 200

_IN = ("input_tokens", "prompt_tokens", "tokens_in")
_OUT = ("output_tokens", "completion_tokens", "tokens_out")
_CACHED = ("cached_tokens", "cached_input_tokens", "cache_read_input_tokens", "tokens_cached")
_REASONING = ("reasoning_tokens", "reasoning_output_tokens", "tokens_reasoning")
_MONEY = ("total_cost_usd", "cost_usd", "money_usd")
_TURNS = ("num_turns", "turns")
_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Not included in ``input_tokens`` where they have these names (Anthropic's API); elsewhere included."""

_DETAILS = ("input_tokens_details", "prompt_tokens_details", "output_tokens_details", "completion_tokens_details")


def read_usage(text: str) -> dict[str, Any]:
    """Usage from a JSON object, or from the last one of several lines that has any.

    Known are flat objects with ``model``, ``input_tokens``, ``output_tokens``, ``cached_tokens``, ``reasoning_tokens``,
    ``cost_usd`` and ``turns``, and those that the programs of model makers print: with a table ``usage``, with
    ``total_cost_usd``, ``num_turns`` and ``modelUsage``.

    Returns:
        those of ``model``, ``tokens_in``, ``tokens_out``, ``tokens_cached``, ``tokens_reasoning``, ``money_usd``,
        ``prices`` and ``turns`` that are given and valid: whole numbers that are not negative, parts no larger than
        what they are a part of. Empty where nothing is.
    """
    for found in _objects(text):
        if told := _read(found):
            return told
    return {}


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """The whole text as JSON, else the objects that begin a line, the last one first."""
    whole = _parse(text)
    if isinstance(whole, list):
        yield from (one for one in reversed(whole) if isinstance(one, dict))
        return
    if isinstance(whole, dict):
        yield whole
        return
    end = len(text)
    for _ in range(_TRIES):
        start = text.rfind("\n{", 0, end) + 1
        if start == 0 and not text.startswith("{"):
            return
        found = _parse(text[start:].partition("\n")[0]) or _parse(text[start:])
        if isinstance(found, dict):
            yield found
        if start == 0:
            return
        end = start - 1


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(found: Mapping[str, Any]) -> dict[str, Any]:
    inner = found.get("usage")
    parts: list[Mapping[str, Any]] = [found]
    if isinstance(inner, dict):
        parts = [inner, *(inner[name] for name in _DETAILS if isinstance(inner.get(name), dict)), found]
    told: dict[str, Any] = {}
    tokens_in, out = _count(parts, _IN), _count(parts, _OUT)
    if tokens_in is not None:
        beside = [_count(parts, (name,)) or 0 for name in _BESIDE]
        told["tokens_in"] = tokens_in + sum(beside)
    if out is not None:
        told["tokens_out"] = out
    for name, keys, of in (("tokens_cached", _CACHED, "tokens_in"), ("tokens_reasoning", _REASONING, "tokens_out")):
        part = _count(parts, keys)
        if part is not None and part <= told.get(of, -1):
            told[name] = part
    turns = _count(parts, _TURNS)
    if turns is not None:
        told["turns"] = turns
    money = _first(parts, _MONEY)
    if _is_number(money) and 0 <= money <= _MOST:
        told |= {"money_usd": float(money), "prices": PRICES}
    if told and (model := _model(found)):
        told["model"] = model
    return told


def _model(found: Mapping[str, Any]) -> str:
    table = found.get("modelUsage")
    names = [found.get("model"), *(sorted(table) if isinstance(table, dict) else ())]
    known = [n for n in names if isinstance(n, str) and n.strip() and n.isprintable() and len(n) <= 200]
    return known[0] if isinstance(found.get("model"), str) and known else ", ".join(known[:3])


def _first(parts: list[Mapping[str, Any]], keys: tuple[str, ...]) -> Any:
    return next((part[key] for key in keys for part in parts if part.get(key) is not None), None)


def _count(parts: list[Mapping[str, Any]], keys: tuple[str, ...]) -> int | None:
    value = _first(parts, keys)
    if not _is_number(value) or not 0 <= value <= _MOST or value != int(value):
        return None
    return int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
