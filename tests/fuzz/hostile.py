"""What every fuzz test draws from: text, numbers and JSON as only an adversary writes them, and how many of each.

Fast by default: each test takes a few seconds, and a failing example is shown as it was found. ``KERNELEVAL_FUZZ=N``
multiplies the number of examples by N and has failing ones made small, which takes minutes. Where the environment has
``CI``, the examples are the same every time; elsewhere they are new every time.
"""

from __future__ import annotations

import math
import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

__all__ = ["CONTROL", "NASTY", "SCALE", "effort", "json_values", "numbers", "texts"]

SCALE = max(1, int(os.environ.get("KERNELEVAL_FUZZ", "1") or 1))
"""How many times more examples than usual."""

NASTY = (
    "",
    "\x00",
    "\x1b[2J\x1b[1;1H",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\r\n\x0b\x0c\x85\u2028\u2029",
    "\u202eright to left\u202c\u2066\u2069\u200b",
    "\ud800",
    "\udcff",
    "\U0001f600\U0010ffff",
    "[bold red]x[/]",
    "[/]",
    "[link=http://example.org]x[/link]",
    "[/nonsense]\\[",
    "'; DROP TABLE verdicts; --",
    '"}],"x":{',
    "%s%n{0}{x!r}",
    "nan",
    "-inf",
    "../../etc/passwd",
    "a\u0301\u0302" * 30,
    "x" * 5000,
    "\u5bbd" * 400,
)
"""Texts that each broke some program once."""

CONTROL = frozenset(chr(c) for c in (*range(9), *range(11, 32), *range(127, 160))) | frozenset(
    "\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
"""Characters that move the cursor, recolour, reorder or hide what stands beside them; no line break and no tab."""


def effort(examples: int) -> settings:
    """So many examples, times ``KERNELEVAL_FUZZ``; no deadline, for the machine may be busy."""
    return settings(
        max_examples=examples * SCALE,
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        database=None,
        phases=(Phase.explicit, Phase.generate, *((Phase.shrink,) if SCALE > 1 else ())),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def texts(limit: int = 60) -> st.SearchStrategy[str]:
    """Any characters, lone surrogates included, alone and around what is known to hurt."""
    free = st.text(st.characters(exclude_categories=()), max_size=limit)
    joined = st.lists(st.one_of(free, st.sampled_from(NASTY)), max_size=4).map("".join)
    return st.one_of(free, st.sampled_from(NASTY), joined).map(_paired)


def _paired(text: str) -> str:
    """Two surrogates that make a character as that character: in JSON they are the same, lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def numbers() -> st.SearchStrategy[Any]:
    """Floats with NaN and infinities, integers of any size, booleans."""
    return st.one_of(
        st.floats(),
        st.integers(),
        st.booleans(),
        st.sampled_from([10**308, 10**400, -(10**400), 10**4000, 2**31, 2**63, -1, 1e308, 5e-324, math.inf, math.nan]),
    )


def json_values(leaves: int = 12) -> st.SearchStrategy[Any]:
    """Whatever ``json.loads`` may give, and NaN besides."""
    leaf = st.one_of(st.none(), numbers(), texts())
    return st.recursive(
        leaf,
        lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(texts(12), inner, max_size=6)),
        max_leaves=leaves,
    )
