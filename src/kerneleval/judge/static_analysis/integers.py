"""Whether sources hold arithmetic on whole numbers or on numbers of eight bits, as operators that quantise need it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from kerneleval.judge.static_analysis.native import words
from kerneleval.languages.common.python_source import Source, Unreadable
from kerneleval.records import Candidate

__all__ = ["narrow_words"]

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
        names = _python(text) if PurePosixPath(path).suffix.lower() == ".py" else _native(text)
        found.update(names)
    return tuple(sorted(found))


def _native(text: str) -> Iterator[str]:
    for word in words(text):
        if _TYPES.fullmatch(word.removeprefix("std::")) or _ROUNDS_TO_WHOLE.fullmatch(word.removeprefix("std::")):
            yield word


def _python(text: str) -> Iterator[str]:
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
        yield from _native(inner)
    for short in source.short_texts():
        if _TYPES.fullmatch(short.lstrip("*")):
            yield short
