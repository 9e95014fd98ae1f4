"""By which rule times were measured: what a new ``Protocol.version`` changed of them, and where two rules meet.

Times of different rules are neither pooled nor compared. Runs are refused as one, comparisons leave such cells out and
say so. See ``docs/timing.md``, "Two times" and "Gradients".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kerneleval.records import DIRECTIONS, Passed, Protocol, Result, UsageError

RETIMED: Mapping[int, tuple[str, ...]] = {2: ("backward",), 3: ("forward", "backward")}
"""Version -> directions whose times mean something else from it on."""

_WHY = {
    2: "before version 2 the baseline's hold a forward call also where the candidate's do not",
    3: "before version 3 they are call times on GPUs too",
}
"""What is different from a version on."""


def rule_of(direction: str, version: int) -> int:
    """The version from which times of that direction mean what they mean in this one. A version that is not known yet
    is a rule of its own.
    """
    if version > Protocol.version:
        return version
    return max((since for since, of in RETIMED.items() if since <= version and direction in of), default=1)


def _why(*rules: int) -> str:
    return _WHY.get(max(rules), "another version may time otherwise")


def timed_by(results: Iterable[Result]) -> dict[tuple[str, int], str]:
    """(direction, version) of every timed result -> a run that has it."""
    return {
        (r.case.direction, r.protocol_version): r.run
        for r in results
        if isinstance(r.outcome, Passed) and r.outcome.timing is not None
    }


def one_rule(found: Mapping[tuple[str, int], str]) -> None:
    """Raise UsageError where times of a direction, as :func:`timed_by` has them, are of two rules."""
    rules: dict[str, tuple[int, int, str]] = {}
    for (direction, version), run in found.items():
        rule = rule_of(direction, version)
        seen, other, first = rules.setdefault(direction, (rule, version, run))
        if rule != seen:
            raise UsageError(
                f"{direction} times of run {first} are by protocol version {other}, those of run {run} by version "
                f"{version}, and are not scored together: {_why(rule, seen)}; judge the older run again"
            )


def not_compared(before: Iterable[Result], after: Iterable[Result]) -> str:
    """One sentence where two sides have times of a direction by different rules; empty: they have not."""
    sides = [timed_by(side) for side in (before, after)]
    for direction in DIRECTIONS:
        versions = [[v for d, v in side if d == direction] for side in sides]
        rules = [{rule_of(direction, v) for v in of} for of in versions]
        if all(rules) and rules[0] != rules[1]:
            first, second = (max(of) for of in versions)
            return (
                f"{direction.capitalize()} speedups are not compared: the first are by protocol version {first}, the "
                f"second by {second} ({_why(*rules[0], *rules[1])})."
            )
    return ""


def old_rule(protocol: Mapping[str, Any]) -> str:
    """One sentence where a run of that protocol, as plain data, is timed by a rule that is not today's; else empty."""
    version = protocol["version"]
    for direction in protocol["directions"] or DIRECTIONS:
        if protocol["timed"] and rule_of(direction, version) != rule_of(direction, Protocol.version):
            return (
                f"{direction.capitalize()} times are by protocol version {version}, not {Protocol.version}: "
                f"{_why(rule_of(direction, Protocol.version))}. They are not comparable with newer ones."
            )
    return ""
