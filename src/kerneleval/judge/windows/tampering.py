"""What a worker tells of a candidate that reached for what it should leave alone. A claim, like all that it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Claim", "claims"]

_LIMIT = 32


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One thing that the candidate did."""

    what: str
    """Verb and object, for people."""
    level: Literal["warn", "fail"]
    """``warn`` for what an honest candidate might do."""
    when: Literal["load", "call"]
    """Whether it was there when the candidate had been loaded, before any call."""


def claims(answer: Mapping[str, Any]) -> list[Claim]:
    """The claims in a worker's answer; what has another form than a claim is left out."""
    told = answer.get("tampering")
    found = []
    for one in told[:_LIMIT] if isinstance(told, list) else ():
        if isinstance(one, dict) and isinstance(one.get("what"), str):
            found.append(
                Claim(
                    what=one["what"][:200],
                    level="warn" if one.get("level") == "warn" else "fail",
                    when="load" if one.get("when") == "load" else "call",
                )
            )
    return found
