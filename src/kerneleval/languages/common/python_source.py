"""A Python source as the rules see it: names resolved through imports, strings, and the tree for patterns."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

_LONGEST_NAME = 12
"""Parts of a dotted name; nothing that is looked for has more."""

_BUILTINS = frozenset(vars(builtins))
_NATIVE_TEXT = re.compile(r"#\s*include\b|__global__|\bextern\s+\"C\"|torch::Tensor|at::Tensor")


class Unreadable(ValueError):  # noqa: N818 - an outcome, no error of this program
    """The text is no Python that this interpreter reads; the message says why."""


class Source:
    """One file, parsed. Nothing here recurses: a tree may be as deep as the parser lets it be. Raises Unreadable: it
    does not parse.
    """

    def __init__(self, text: str) -> None:
        self.tree = _parse(text)
        self.nodes: list[ast.AST] = list(ast.walk(self.tree))
        self._by_kind: dict[type, list[Any]] = {}
        for node in self.nodes:
            self._by_kind.setdefault(type(node), []).append(node)
        self._docstrings = {id(statement.value) for statement in self.each(ast.Expr)}
        self._imports: dict[str, str] = {}
        self._bound: set[str] = set()
        self._learn()
        self._used = self._names_used()
        self._texts = list(self._strings())

    def each(self, *kinds: type) -> list[Any]:
        """The nodes of some classes, in the order of the tree's levels."""
        return [node for kind in kinds for node in self._by_kind.get(kind, ())]

    def _learn(self) -> None:
        """What the names of the file stand for."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.split(".")[0]
                    self._imports[alias.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self._bound.add(node.name)
            elif isinstance(node, ast.arg):
                self._bound.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._bound.add(node.id)
        for node in self.nodes:  # cuda = torch.cuda
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name, meant = node.targets[0].id, self.dotted(node.value)
                if meant and name not in self._imports and not meant.startswith("builtins."):
                    self._imports[name] = meant

    def dotted(self, node: ast.AST | None) -> str:
        """The name that an expression stands for, as it would be imported; empty: it stands for none."""
        parts: list[str] = []
        while len(parts) <= _LONGEST_NAME:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Name):
                root = self._imports.get(node.id, "")
                if not root and node.id in _BUILTINS and node.id not in self._bound:
                    root = f"builtins.{node.id}"
                return ".".join([root, *reversed(parts)]) if root else ""
            elif isinstance(node, ast.Call) and (given := self._named(node)) is not None:
                node, name = given  # getattr(torch, "equal"), __import__("os")
                parts.append(name)
                if node is None:
                    return ".".join(reversed(parts))
            else:
                return ""
        return ""

    def _named(self, call: ast.Call) -> tuple[ast.AST | None, str] | None:
        function = call.func
        name = str(getattr(function, "id", "") or getattr(function, "attr", ""))
        texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if name == "getattr" and len(call.args) >= 2 and texts:
            return call.args[0], texts[0]
        if name in ("__import__", "import_module") and texts:
            return None, texts[0]
        return None

    # -- what rows ask ------------------------------------------------------------------------------------------------

    def uses(self, wanted: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Lines where one of the names is read, called or imported by ``from``; ``x.*`` is everything below ``x``."""
        if not wanted:
            return
        exact = {name for name in wanted if not name.endswith(".*")}
        below = tuple(name[:-1] for name in wanted if name.endswith(".*"))
        for line, name in self._used:
            if name in exact or (below and name.startswith(below)):
                yield line, name.removeprefix("builtins.")

    def _names_used(self) -> list[tuple[int, str]]:
        nodes = self.each(ast.Name, ast.Attribute, ast.Call)
        loaded = (node for node in nodes if isinstance(getattr(node, "ctx", ast.Load()), ast.Load))
        return [(node.lineno, name) for node in loaded if (name := self.dotted(node))]

    def attributes(self, wanted: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Lines where an attribute of one of these names is touched."""
        for node in self.each(ast.Attribute, ast.Call) if wanted else ():
            if isinstance(node, ast.Attribute) and node.attr in wanted:
                yield node.lineno, f".{node.attr}"
            elif isinstance(node, ast.Call) and (given := self._named(node)) is not None and given[1] in wanted:
                yield node.lineno, f".{given[1]}"

    def texts(self, wanted: Sequence[str], but: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
        """Lines of strings that hold one of these."""
        for line, text in self._texts if wanted else ():
            found = next((piece for piece in wanted if piece in text), "")
            if found and not any(piece in text for piece in but) and not _NATIVE_TEXT.search(text):
                yield line, repr(text[:60])

    def native_texts(self) -> Iterator[tuple[int, str]]:
        """Strings that are C++ or CUDA, with the line where each begins."""
        for line, text in self._texts:
            if _NATIVE_TEXT.search(text):
                yield line, text

    def short_texts(self) -> Iterator[str]:
        """Strings of up to 20 characters, as names of types are, that are no docstrings."""
        for _, text in self._texts:
            if len(text) <= 20:
                yield text

    def _strings(self) -> Iterator[tuple[int, str]]:
        for node in self.each(ast.Constant):
            if id(node) not in self._docstrings:
                if isinstance(node.value, str):
                    yield node.lineno, node.value
                elif isinstance(node.value, bytes):
                    yield node.lineno, node.value.decode("latin-1")


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "invalid escape sequence" is the candidate's affair
            return ast.parse(text)
    except SyntaxError as error:
        raise Unreadable(f"no Python: {error.msg} in line {error.lineno or 0}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"no Python: {str(error) or type(error).__name__}"[:200]) from None
