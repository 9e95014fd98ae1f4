"""Lines in a candidate's header that speak to KernelEval: ``# kerneleval-KEY: VALUE`` or ``// kerneleval-KEY: VALUE``.

They stand among the first 60 lines, each in a comment of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kerneleval.records import UsageError

__all__ = ["KEYS", "HeaderLine", "read_header"]

KEYS: dict[str, str] = {
    "origin": "where the candidate came from, as JSON",
    "flags": "compiler flags (.cpp, .cu, .hip, .cl)",
    "launch": "launch geometry of a kernel (.cl, .metal; .cu and .hip without a host launcher)",
    "scratch": "further buffers of an entry point (.cl)",
}
"""Known keys and what they are for."""

_LINES = 60
_PATTERN = re.compile(r"\s*(?://|#)\s*kerneleval-([A-Za-z0-9_-]+)\s*:(.*)")
_COMMENT = re.compile(r"\s*(?://|#)(.*)")


@dataclass(frozen=True, kw_only=True)
class HeaderLine:
    """One header line."""

    key: str
    """A key of :data:`KEYS`."""
    value: str
    """The rest of the line, stripped."""
    line: int
    """1-based line number."""
    following: str
    """The text of the comment lines right below, without their markers, for values that go on."""


def read_header(text: str, key: str) -> tuple[HeaderLine, ...]:
    """The header lines with that key, in order.

    Raises:
        UsageError: a line has an unknown key, so that a misspelt one is not passed over.
    """
    lines = text.split("\n", _LINES)[:_LINES]
    found = []
    for number, line in enumerate(lines, 1):
        match = _PATTERN.match(line)
        if not match:
            continue
        name, value = match.group(1), match.group(2).strip()
        if name not in KEYS:
            known = ", ".join(f"kerneleval-{k}" for k in KEYS)
            raise UsageError(f"line {number}: unknown header 'kerneleval-{name}'; known are {known}")
        if name == key:
            found.append(HeaderLine(key=name, value=value, line=number, following=_following(lines[number:])))
    return tuple(found)


def _following(lines: list[str]) -> str:
    block = []
    for line in lines:
        match = _COMMENT.match(line)
        if not match or _PATTERN.match(line):
            break
        block.append(match.group(1))
    return "\n".join(block)
