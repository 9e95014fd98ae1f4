"""What a candidate's code shows without being run: its sources, and the binaries that were made of them.

``static`` warns and never fails: text can look like anything, and what a candidate does is judged by what it does.
``low_precision`` asks operators that quantise for narrow types, conversions or instructions in the sources: outputs do
not show in which units products were made. ``resources`` is for the author of the candidate and decides nothing:
Triton's binaries come from the worker, where the candidate could put others.
"""

from __future__ import annotations

import ast
import base64
import binascii
import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kerneleval.judge.binaries.disassembly import content
from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.static_analysis.native import read_native, words
from kerneleval.judge.static_analysis.rules import RULES, Hit, Rule
from kerneleval.languages.binaries.kernels import Kernel, cuda_kernels
from kerneleval.languages.common.python_source import Source, Unreadable
from kerneleval.records import Candidate, Case, Finding, KernelResources, Outcome, Passed, ResourcesEvidence
from kerneleval.worker.host import WorkerError

_LIMIT_CHARS = 512 << 10
"""Longer files are not read: it would take seconds, and no kernel is so long."""

_SHOWN_LINES = 5
_NATIVE = (".c", ".cc", ".cl", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp")


def of_sources(candidate: Candidate) -> list[Finding]:
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


_TYPES = re.compile(
    r"""
      u?int(?:4|8|16|32|64)(?:_t|x\d+)?     # int8, uint8_t, int4x2
    | [iu](?:8|16|32)(?:x\d+)?             # i8 as Triton's signatures have it
    | u?(?:char|short)\d?                  # char4
    | (?:float|fp|f)8\w*  | \w*e[45]m[23]\w*
    | \w*dp[24]a\w* | \w*int_mm\w* | \w*scaled_mm\w* | \w*qint8
    | \w*[su]8(?:[su]32)?\w*              # mma_s8s8s32, vdotq_s32, _mm256_maddubs_epi16
    | _mm\d*_\w*epi(?:8|16|32)\w*
    """,
    re.VERBOSE,
)
_ROUNDS_TO_WHOLE = re.compile(r"l?lrintf?|l?lroundf?|__(?:float|half)2u?int_\w+|static_cast<int>")
_METHODS = ("int", "char", "short", "byte", "long", "int_repr")


def narrow_words(candidate: Candidate) -> tuple[str, ...]:
    """The words of the sources, sorted, that name such arithmetic: types, conversions, instructions. Comments and
    docstrings do not count; what is handed to a compiler as text does.
    """
    found: set[str] = set()
    for path, text in candidate.files:
        names = _narrow_in_python(text) if PurePosixPath(path).suffix.lower() == ".py" else _narrow_in_native(text)
        found.update(names)
    return tuple(sorted(found))


def _narrow_in_native(text: str) -> Iterator[str]:
    for word in words(text):
        if _TYPES.fullmatch(word.removeprefix("std::")) or _ROUNDS_TO_WHOLE.fullmatch(word.removeprefix("std::")):
            yield word


def _narrow_in_python(text: str) -> Iterator[str]:
    try:
        source = Source(text)
    except Unreadable:
        return
    called = {id(call.func) for call in source.each(ast.Call)}
    for node in source.each(ast.Attribute):
        if _TYPES.fullmatch(node.attr) or (node.attr in _METHODS and id(node) in called):
            yield node.attr
    for node in source.each(ast.Name):
        if _TYPES.fullmatch(node.id):
            yield node.id
    for _, inner in source.native_texts():
        yield from _narrow_in_native(inner)
    for short in source.short_texts():
        if _TYPES.fullmatch(short.lstrip("*")):
            yield short


@register(needs_worker=False)
def static(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """What stands out when the sources are read."""
    if calls.loaded.trusted:  # a task's own reference, which may name this program
        return ()
    return of_sources(calls.loaded.candidate)


@register(needs_worker=False)
def low_precision(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """Whether the sources of an operator that quantises name narrow arithmetic."""
    if calls.task.tolerance.exact_form is None or calls.loaded.trusted:
        return
    if not any(isinstance(outcomes.get(case), Passed) for case in cases):
        return
    found = narrow_words(calls.loaded.candidate)
    if found:
        yield Finding(
            level="info",
            message=f"the sources compute with {', '.join(found[:8])}",
            evidence={"words": list(found)},
        )
        return
    yield Finding(
        level="fail",
        reason="not_quantised",
        message="the outputs are those of a quantisation, but no integer or eight-bit type, conversion or "
        "instruction stands in the sources: the arithmetic is that of wide floating numbers",
    )


_MOST_FILES, _MOST_BYTES = 4096, 64 << 20
"""Files that are looked at, and how much is read of binaries altogether."""

_MOST_SENT_BYTES = 2 << 20
"""Of binaries that a worker sends: in one message, which may have 4 MiB."""

_TIMEOUT_S = 30.0

_MOST_SHOWN = 16


@register
def resources(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """What the kernels take of a GPU."""
    if calls.device.name != "cuda" or calls.loaded.trusted:
        return
    worker = calls.loaded.runner.worker
    found = list(built(worker.directory))
    if not found and calls.loaded.candidate.language == "triton":
        try:
            answer = worker.request("binaries", {"most_bytes": _MOST_SENT_BYTES}, "binaries", timeout_s=_TIMEOUT_S)
        except WorkerError as error:  # a finding for information is no reason to reject anything
            yield Finding(level="info", message=f"its binaries could not be read: {error}"[:500])
            return
        found = list(sent(answer.get("files")))
    if found:
        yield resources_finding(found)


def built(folder: Path) -> Iterator[tuple[Kernel, int]]:
    """The kernels of all binaries in a worker's folder, and 0, the dynamic shared memory that is known of them."""
    left = _MOST_BYTES
    for path in _files(folder):
        if path.suffix in (".cubin", ".so"):
            data = content(path, left)
            left -= len(data)
            yield from ((kernel, 0) for kernel in cuda_kernels(data))


def sent(files: Any) -> Iterator[tuple[Kernel, int]]:
    """The kernels of the binaries that a worker sent, each with the dynamic shared memory that Triton launches it with,
    in bytes. Whatever is no list of binaries holds none.
    """
    for one in files if isinstance(files, list) else []:
        if not isinstance(one, Mapping) or not isinstance(one.get("data"), str):
            continue
        shared = one.get("shared")
        with contextlib.suppress(binascii.Error, ValueError):
            for kernel in cuda_kernels(base64.b64decode(one["data"], validate=True)):
                yield kernel, shared if type(shared) is int and 0 <= shared < 1 << 31 else 0


def resources_finding(found: Iterable[tuple[Kernel, int]]) -> Finding:
    """The finding: one row a kernel, with the least and the most where several were compiled under one name."""
    by_name: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for kernel, dynamic in found:
        by_name[kernel.name].append((kernel.registers, kernel.spilled, kernel.shared_bytes + dynamic))
    rows = tuple(
        KernelResources(
            kernel=name[:200],
            binaries=len(each),
            registers=(min(r for r, _, _ in each), max(r for r, _, _ in each)),
            local_bytes=(min(b for _, b, _ in each), max(b for _, b, _ in each)),
            shared_bytes=(min(b for _, _, b in each), max(b for _, _, b in each)),
        )
        for name, each in sorted(by_name.items())[:_MOST_SHOWN]
    )
    return Finding(level="info", message="; ".join(map(_line, rows)), evidence=ResourcesEvidence(kernels=rows))


def _line(row: KernelResources) -> str:
    local = row.local_bytes
    spilled = f", {_range(local)} bytes of local memory a thread (spilled registers, arrays)" if local[1] else ""
    several = f" ({row.binaries} binaries)" if row.binaries > 1 else ""
    return (
        f"{row.kernel}{several}: {_range(row.registers)} registers a thread{spilled}, "
        f"{_range(row.shared_bytes)} bytes of shared memory a block"
    )


def _range(pair: Sequence[int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}"


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder that another process may be changing, in a fixed order; links are not followed."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            seen += 1
            if seen > _MOST_FILES:
                return
            yield Path(place, name)
