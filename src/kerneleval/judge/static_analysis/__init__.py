"""Reading a candidate's sources without running them: what they reach for, rebind, hide or fall back to.

It warns and never fails: text can look like anything, and what a candidate does is judged by what it does. One row of
:data:`kerneleval.judge.static_analysis.rules.RULES` is one thing to look for.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from kerneleval.judge.static_analysis.native import read_native
from kerneleval.judge.static_analysis.rules import RULES, Hit, Rule
from kerneleval.languages.common.python_source import Source, Unreadable
from kerneleval.records import Candidate, Finding

__all__ = ["findings"]

_LIMIT_CHARS = 512 << 10
"""Longer files are not read: it would take seconds, and no kernel is so long."""

_SHOWN_LINES = 5
_NATIVE = (".c", ".cc", ".cl", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp")


def findings(candidate: Candidate) -> list[Finding]:
    """What stands out in the candidate's sources: one finding for each rule and file, in the order of the rules."""
    found: list[Finding] = []
    for path, text in candidate.files:
        suffix = PurePosixPath(path).suffix.lower()
        if suffix not in (".py", *_NATIVE):
            continue
        if len(text) > _LIMIT_CHARS:
            found.append(_unread(path, f"longer than {_LIMIT_CHARS >> 10} Ki characters"))
            continue
        try:
            hits = _python(text) if suffix == ".py" else read_native(text, RULES)
        except Unreadable as error:
            found.append(_unread(path, str(error)))
            continue
        found += _merged(path, hits)
    return found


def _python(text: str) -> list[Hit]:
    source = Source(text)
    hits = [Hit(rule, line, what) for rule in RULES for line, what in _lines(source, rule)]
    for line, inner in source.native_texts():  # what load_inline and NVRTC get
        hits += [Hit(hit.rule, line + hit.line - 1, hit.what) for hit in read_native(inner, RULES)]
    return hits


def _lines(source: Source, rule: Rule) -> Iterable[tuple[int, str]]:
    yield from source.uses(rule.uses)
    yield from source.attributes(rule.attributes)
    yield from source.texts(rule.texts, rule.but)
    if rule.found is not None:
        yield from rule.found(source)


def _merged(path: str, hits: list[Hit]) -> list[Finding]:
    """One finding for each rule: where it was met first, and on which other lines."""
    found: list[Finding] = []
    for rule in RULES:
        own = sorted({(hit.line, hit.what) for hit in hits if hit.rule is rule})
        if not own:
            continue
        line, what = own[0]
        others = sorted({other for other, _ in own} - {line})
        message = f"{path}:{line}: {what}: {rule.says}"
        if others:
            shown = ", ".join(str(other) for other in others[:_SHOWN_LINES])
            message += f" (also line{'s' * (len(others) > 1)} {shown}{', ...' * (len(others) > _SHOWN_LINES)})"
        found.append(Finding(level=rule.level, message=message, evidence=_place(rule.name, path, line)))
    return found


def _unread(path: str, why: str) -> Finding:
    return Finding(level="warn", message=f"{path}: not read: {why}", evidence=_place("unread", path, 0))


def _place(rule: str, path: str, line: int) -> dict[str, str | int]:
    return {"rule": rule, "file": path, "line": line}
