"""C++, CUDA and OpenCL C sources as the rules see them: tokens, without comments, strings apart."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence

from kerneleval.judge.static_analysis.rules import Hit, Rule

_Token = tuple[str, str, int]
"""Kind, text, line."""

_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:[^\n\\]|\\.)* | /\*.*?(?:\*/|\Z) )
    | (?P<raw> R"(?P<mark>[^()\\\s]{0,16})\(.*?(?:\)(?P=mark)"|\Z) )
    | (?P<text> "(?:[^"\\\n]|\\.)*"? )
    | (?P<char> '(?:[^'\\\n]|\\.)*'? )
    | (?P<number> \.?\d[\w.']* )
    | (?P<name> [A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)* )
    | (?P<sign> ->|\S )
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"\s+")
_BEFORE_CALL = frozenset(("case", "co_await", "co_return", "co_yield", "delete", "do", "else", "return", "throw"))
"""Words after which a name with a bracket is a call; after any other word it is a declaration."""

_CONTAINERS = frozenset(("map", "unordered_map", "std::map", "std::unordered_map"))


def read_native(text: str, rules: Sequence[Rule]) -> list[Hit]:
    """The rules that a source meets."""
    called = {name[:-1]: rule for rule in rules for name in rule.names if name.endswith("(")}
    named = {name: rule for rule in rules for name in rule.names if not name.endswith("(")}
    by_pointer = next((rule for rule in rules if rule.name == "pointer_cache"), None)
    hits = []
    tokens = list(_tokens(text))
    own = _defined(tokens)
    for place, (kind, token, line) in enumerate(tokens):
        if kind == "text":
            for rule in rules:
                if any(t in token for t in rule.texts) and not any(b in token for b in rule.but):
                    hits.append(Hit(rule, line, token[:60]))
        elif kind == "name":
            bare = token.removeprefix("std::")
            met: Rule | None = named.get(token)
            if met is None and token not in own and _is_call(tokens, place):
                met = called.get(token) or called.get(bare)
            if met is None and token in _CONTAINERS and _keyed_by_pointer(tokens, place):
                met = by_pointer
            if met is not None:
                hits.append(Hit(met, line, token))
    return hits


def words(text: str) -> Iterator[str]:
    """The names in a source, each as often as it stands there; ``signed char`` and the like by its last word."""
    for kind, token, _ in _tokens(text):
        if kind == "name":
            yield token


def _tokens(text: str) -> Iterator[_Token]:
    """Everything but comments."""
    ends = [match.start() for match in re.finditer("\n", text)]
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if match["raw"] is not None:
            kind = "text"
        if kind == "comment":
            continue
        token = _SPACE.sub("", match[0]) if kind == "name" else match[0].strip('"') if kind == "text" else match[0]
        yield kind, token, bisect.bisect_left(ends, match.start()) + 1


def _is_call(tokens: Sequence[_Token], place: int) -> bool:
    """Whether a bracket follows, and it is neither another object's method nor a declaration."""
    if _text(tokens, place + 1) != "(":
        return False
    before = place - 1
    if _text(tokens, before) in ("*", "&"):  # behind a type: a declaration, else an operator
        before -= 1
    if before >= 0 and tokens[before][0] == "name":
        return tokens[before][1] in _BEFORE_CALL
    return _text(tokens, before) not in (".", "->")


def _defined(tokens: Sequence[_Token]) -> set[str]:
    """Names of the functions that are defined here: a bracket and a body follow."""
    found, opened = set(), list[int]()
    for place, (kind, token, _) in enumerate(tokens):
        if kind != "sign" or token not in ("(", ")"):
            continue
        if token == "(":
            opened.append(place)
        elif opened and (name := opened.pop() - 1) > 0 and tokens[name][0] == "name":
            body = place + 1 + (_text(tokens, place + 1) in ("const", "noexcept"))
            if _text(tokens, body) == "{" and tokens[name - 1][0] in ("name", "sign"):
                found.add(tokens[name][1])
    return found


def _text(tokens: Sequence[_Token], place: int) -> str:
    return tokens[place][1] if 0 <= place < len(tokens) and tokens[place][0] != "text" else ""


def _keyed_by_pointer(tokens: Sequence[_Token], place: int) -> bool:
    for _, token, _ in tokens[place + 1 : place + 8]:
        if token in (",", ">", "(", ";"):
            return False
        if token == "*":
            return True
    return False
