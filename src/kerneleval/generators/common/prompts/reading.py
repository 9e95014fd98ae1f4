"""What a piece of text is as code in a language: whether it parses, defines an entry point, and is of that language."""

from __future__ import annotations

import ast
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

NOTHING, CODE, PARTS, ENTRY, OWN = range(5)
"""Ranks: no code of the language; code that does not parse; that parses and defines something, but nothing that could
be called from outside; that does; and that uses what the language is named after."""

_MOST_PARSED = 1 << 19
"""Characters of the longest Python text that is parsed, which takes many times its size in memory; a longer one is
judged by its lines."""

_PYTHON = ("triton", "torch", "numba")
_QUIET = threading.Lock()
"""Filters of warnings belong to the whole process."""

_LOOKS_PYTHON = re.compile(r"^[ \t]*(?:def \w+ ?\(|class \w+|import \w|from [\w.]+ import\b|@[\w.]+)", re.M)
_DEFINES = re.compile(r"^(?:def|class) \w+", re.M)
_IMPORTS = {name: re.compile(rf"^[ \t]*(?:import|from) {name}\b", re.M) for name in _PYTHON}

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*+|/\*(?:.*?\*/|.*+))"""
    r"""|(?P<raw>\bR"(?P<mark>[^()\\\s"]{0,16})\((?:.*?\)(?P=mark)"|.*+))"""
    r"""|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|(?P<bracket>[{}()])""",
    re.S,
)
_LOOKS_NATIVE = re.compile(
    r"^[ \t]*#[ \t]*(?:include|define|pragma)\b|\bextern[ \t]+\"C\"|__global__|^[^\n]*[;{][ \t]*$", re.M
)
_EXPORTS = re.compile(r"\bextern\s+\"C\"")
_KERNEL = re.compile(r"\b__global__\b|<<<")
_FUNCTION = re.compile(r"\)\s*(?:const\s*)?\{")
_SHADERS = ("opencl", "metal")
"""Languages of kernels without host code; lines in a source's header say how they are launched."""
_SHADER = re.compile(r"\b(?:__)?kernel\b|\[\[\s*kernel\s*\]\]")
_LAUNCH = re.compile(r"^[ \t]*(?://|#)[ \t]*kerneleval-launch[ \t]*:", re.M)
_OWN_WORDS = {
    "opencl": re.compile(r"\bget_(?:global|local|group)_(?:id|size)\b|\b(?:__)?global\s+(?:const\s+)?\w+\s*\*"),
    "metal": re.compile(
        r"\bmetal_stdlib\b|\[\[\s{0,8}(?:thread|simdgroup|grid)\w{1,60}\s{0,8}\]\]|\bdevice\s+(?:const\s+)?\w+\s*\*"
    ),
}
"""What distinguishes their sources."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A text as code."""

    rank: int
    source: str
    """The text as a file: its common indentation taken off, ending in one line end."""
    foreign: bool = False
    """Whether it is code of another language."""


def read(text: str, language: str) -> Reading:
    """How far a text is a candidate in a language. Takes time in proportion to its length; raises nothing."""
    source = text.strip("\n").rstrip() + "\n"
    if not source.strip():
        return Reading(rank=NOTHING, source="")
    return _python(source, language) if language in _PYTHON else _native(source, language)


def _python(source: str, language: str) -> Reading:
    if len(source) > _MOST_PARSED:
        rank = CODE
        if _DEFINES.search(source):
            rank = OWN if _IMPORTS[language].search(source) else ENTRY
        return Reading(rank=rank if _LOOKS_PYTHON.search(source) else NOTHING, source=source)
    tree = _parsed(source)
    if tree is None and source[:1] in " \t":
        source = textwrap.dedent(source)
        tree = _parsed(source)
    if tree is None and "\xa0" in source:
        source = source.replace("\xa0", " ")  # as copied from web pages
        tree = _parsed(source)
    if tree is None:
        foreign = bool(_EXPORTS.search(source) or _KERNEL.search(source) or "#include" in source)
        looks = bool(_LOOKS_PYTHON.search(source)) and not foreign
        return Reading(rank=CODE if looks else NOTHING, source=source, foreign=foreign)
    statements = list(_top_level(tree))
    defined = [s for s in statements if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    if not defined:
        return Reading(rank=NOTHING, source=source)
    if not any(_is_entry(s) for s in statements):
        return Reading(rank=PARTS, source=source)
    return Reading(rank=OWN if language in _imports(tree) else ENTRY, source=source)


def _parsed(source: str) -> ast.Module | None:
    try:
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def _top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements of the module, those under conditions too."""
    waiting: list[ast.stmt] = list(tree.body)
    for statement in waiting:
        yield statement
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            waiting += statement.body
            waiting += getattr(statement, "orelse", [])
            for handler in getattr(statement, "handlers", []):
                waiting += handler.body


def _is_entry(statement: ast.stmt) -> bool:
    """Whether it defines what may be called from outside: no Triton kernel, no class that is no module."""
    if isinstance(statement, ast.ClassDef):
        return statement.name in ("ModelNew", "Model")
    if isinstance(statement, ast.FunctionDef):
        return not any(_decorator(d) in ("triton.jit", "triton.autotune", "jit") for d in statement.decorator_list)
    if isinstance(statement, ast.Assign):  # softmax = Softmax.apply, softmax = torch.compile(plain)
        apply = isinstance(statement.value, ast.Attribute) and statement.value.attr == "apply"
        return apply or isinstance(statement.value, ast.Lambda) or _decorator(statement.value) == "torch.compile"
    return False


def _decorator(node: ast.expr) -> str:
    """``triton.jit`` of a decorator, with or without arguments."""
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _native(source: str, language: str) -> Reading:
    bare, balanced = _without_comments(source)
    if _LOOKS_PYTHON.search(source) and "#include" not in bare.partition("def ")[0] and _parses_as_python(source):
        return Reading(rank=NOTHING, source=source, foreign=True)
    if not _LOOKS_NATIVE.search(source):
        return Reading(rank=NOTHING, source=source)
    kernel, exported = bool(_KERNEL.search(bare)), bool(_EXPORTS.search(bare))
    shaders = [name for name in _SHADERS if _SHADER.search(bare) and _OWN_WORDS[name].search(bare)]
    if language in _SHADERS:
        return _shader(source, bare, balanced, language, foreign=bool(kernel or exported or shaders))
    if (language == "cpp" and kernel) or (shaders and not kernel and not exported):
        return Reading(rank=NOTHING, source=source, foreign=True)
    if not balanced:
        return Reading(rank=CODE, source=source)
    if not exported:
        return Reading(rank=PARTS if kernel or _FUNCTION.search(bare) else NOTHING, source=source)
    foreign = language == "hip" and "cuda_runtime" in bare
    own = language == "cpp" or (kernel and not foreign)
    return Reading(rank=OWN if own else ENTRY, source=source)


def _shader(source: str, bare: str, balanced: bool, language: str, foreign: bool) -> Reading:
    """Of kernels without host code. ``foreign``: the source has words of a language, be it this one."""
    own = bool(_SHADER.search(bare) and _OWN_WORDS[language].search(bare))
    if foreign and not own:
        return Reading(rank=NOTHING, source=source, foreign=True)
    if not balanced:
        return Reading(rank=CODE, source=source)
    if not _SHADER.search(bare):
        return Reading(rank=PARTS if _FUNCTION.search(bare) else NOTHING, source=source)
    return Reading(rank=OWN if own and _LAUNCH.search(source) else ENTRY, source=source)


def _parses_as_python(source: str) -> bool:
    return len(source) > _MOST_PARSED or _parsed(source) is not None


def _without_comments(source: str) -> tuple[str, bool]:
    """The source with its comments left out, and whether braces and parentheses outside of strings are balanced."""
    kept, at, depth, lowest = [], 0, 0, 0
    for token in _TOKEN.finditer(source):
        if token["comment"]:
            kept.append(source[at : token.start()])
            at = token.end()
        elif token["bracket"]:
            depth += 1 if token["bracket"] in "{(" else -1
            lowest = min(lowest, depth)
    kept.append(source[at:])
    return " ".join(kept), depth == 0 and lowest == 0
