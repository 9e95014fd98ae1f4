"""From a file on disk to a :class:`~kerneleval.records.Candidate`, with its origin and the lines of its header.

Lines of a header speak to KernelEval: ``# kerneleval-KEY: VALUE`` or ``// kerneleval-KEY: VALUE``. They stand among the
first 60 lines, each in a comment of its own.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kerneleval.languages.common.base import all_languages, detect, find
from kerneleval.records import Candidate, Origin, UsageError, from_plain

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
    """The header lines with that key, in order. Raises UsageError: a line has an unknown key, so misspelt ones show."""
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


SIZE_LIMIT_BYTES = 4 * 1024 * 1024
"""Largest source file that is read."""

_ORIGIN_LIMIT_BYTES = 64 * 1024

_MOST_LINES = 20_000
"""Lines of two texts together that are compared in order: the time grows with their product."""


def read_candidate(
    path: str | os.PathLike[str], task_name: str = "", entry: str = "", language: str = "", backward_entry: str = ""
) -> Candidate:
    """Reads a candidate from a file, or from a directory that holds one file ``<task_name>.<suffix>`` of a known
    suffix. An empty ``language`` is found from suffix and text; empty entry points are found by convention when it is
    loaded.

    The file's own name does not enter the candidate (it becomes ``candidate.py``, ``candidate.cpp`` ...), so that equal
    files under different names are one candidate. Its origin comes from the side file ``<stem>.origin.json`` if there
    is one, else from a ``kerneleval-origin`` header, else it is ``Origin()``. Raises UsageError: the file is missing,
    too large (4 MiB), empty, not UTF-8, of no known language, or its origin is not what it should be; the message names
    the file.
    """
    file = Path(path)
    if file.is_dir():
        file = _in_directory(file, task_name)
    text = _read_text(file, SIZE_LIMIT_BYTES)
    if not text.strip():
        raise UsageError(f"{file}: the file is empty")
    name = find(language).name if language else detect(str(file), text)
    suffix = file.suffix.lower() if file.suffix.lower() in find(name).suffixes else find(name).suffixes[0]
    return Candidate(
        files=((f"candidate{suffix}", text),),
        language=name,
        entry=entry,
        backward_entry=backward_entry,
        origin=_origin(file, text),
    )


def candidate_of(text: str, language: str = "") -> Candidate:
    """A candidate of a text that is in no file, the same as that of a file with it. Without a language it has that of
    a ``.py`` file. Raises UsageError: it is empty or too large (4 MiB), the language is unknown, or its origin is not
    what it should be.
    """
    if not text.strip():
        raise UsageError("the source text is empty")
    if len(text.encode(errors="replace")) > SIZE_LIMIT_BYTES:
        raise UsageError(f"the source text is larger than {SIZE_LIMIT_BYTES} bytes, the limit")
    name = find(language).name if language else detect("candidate.py", text)
    lines = read_header(text, "origin")
    origin = _parse("kerneleval-origin", f"{lines[0].value}\n{lines[0].following}", False) if lines else Origin()
    return Candidate(files=((f"candidate{find(name).suffixes[0]}", text),), language=name, origin=origin)


def _in_directory(directory: Path, task_name: str) -> Path:
    if not task_name:
        raise UsageError(f"{directory} is a directory: give a file, or name the task so that its file can be chosen")
    suffixes = sorted({s for lang in all_languages().values() for s in lang.suffixes})
    found = [directory / (task_name + s) for s in suffixes if (directory / (task_name + s)).is_file()]
    if len(found) == 1:
        return found[0]
    looked = ", ".join(task_name + s for s in suffixes)
    if not found:
        raise UsageError(f"{directory}: no file for task {task_name!r}; looked for {looked}")
    raise UsageError(f"{directory}: more than one file for task {task_name!r}: {', '.join(f.name for f in found)}")


def _read_text(file: Path, limit_bytes: int) -> str:
    try:
        if not file.is_file():  # a FIFO or device could block or never end
            raise UsageError(f"{file}: no such file" if not file.exists() else f"{file}: not a regular file")
        with file.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}") from error
    if len(data) > limit_bytes:
        raise UsageError(f"{file}: larger than {limit_bytes} bytes, the limit")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def _origin(file: Path, text: str) -> Origin:
    """The stated origin; where a file beside it has the first version, with the number of lines changed since."""
    origin = _stated(file, text)
    written = file.with_name(file.stem + ".written.txt")
    if not written.exists():
        return origin
    return replace(origin, human_edits=edited_lines(_read_text(written, SIZE_LIMIT_BYTES), text))


def edited_lines(before: str, after: str) -> int:
    """Lines added, removed or replaced (the larger side of each replacement) from one text to another; empty lines and
    white space at their ends do not count.
    """
    first, second = ([line.rstrip() for line in text.splitlines() if line.strip()] for text in (before, after))
    if len(first) + len(second) > _MOST_LINES:  # lines that moved are not distinguished from lines that stayed
        gone, came = Counter(first) - Counter(second), Counter(second) - Counter(first)
        return max(gone.total(), came.total())
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return sum(
        max(end - begin, last - start) for kind, begin, end, start, last in matcher.get_opcodes() if kind != "equal"
    )


def _stated(file: Path, text: str) -> Origin:
    try:
        lines = read_header(text, "origin")
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    side = file.with_name(file.stem + ".origin.json")
    if side.exists():
        return _parse(str(side), _read_text(side, _ORIGIN_LIMIT_BYTES), whole=True)
    if not lines:
        return Origin()
    if len(lines) > 1:
        raise UsageError(f"{file}: lines {lines[0].line} and {lines[1].line} both give kerneleval-origin")
    return _parse(f"{file}: line {lines[0].line}: kerneleval-origin", f"{lines[0].value}\n{lines[0].following}", False)


def _parse(where: str, text: str, whole: bool) -> Origin:
    plain: Any
    try:
        # In a header, other comments may follow the object.
        plain = json.loads(text) if whole else json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON: {error}") from error
    try:
        return from_plain(Origin, plain)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
