"""The formulas of a task's table as text: what a person would read in its source, with constants for their names."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

__all__ = ["formula_text"]

_KNOWN = frozenset(dir(builtins)) | {"math"}
"""Names that a formula may show beside dims."""


def formula_text(formula: Callable[..., Any] | None) -> str:
    """A function of the dims as an expression over their names (``L >= 4 and B * H > 0``).

    Constants of its module and of the functions around it stand with their values. Where it is no single expression,
    or one that calls functions of its own, the first sentence of its docstring; empty where there is none either.
    """
    if not isinstance(formula, FunctionType):
        return ""
    return _expression(formula) or " ".join((inspect.getdoc(formula) or "").split("\n\n")[0].split())


def _expression(formula: FunctionType) -> str:
    found = _body(formula.__code__)
    parameters = list(inspect.signature(formula).parameters)
    if found is None or len(parameters) != 1:
        return ""
    readable = _Readable(parameters[0], inspect.getclosurevars(formula))
    body = ast.unparse(readable.visit(found))
    return "" if readable.unknown else body


def _body(code: CodeType) -> ast.expr | None:
    """The one expression that a lambda is, or that a function returns."""
    for node in _functions(code.co_filename).get(code.co_firstlineno, ()):
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and _holds(node.body, code):
            return ast.parse(ast.unparse(node.body), mode="eval").body  # a copy: it is changed
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            statements = node.body[1:] if ast.get_docstring(node) else node.body
            if len(statements) == 1 and isinstance(statements[0], ast.Return) and statements[0].value is not None:
                return ast.parse(ast.unparse(statements[0].value), mode="eval").body
    return None


@functools.cache
def _functions(file: str) -> Mapping[int, list[ast.Lambda | ast.FunctionDef]]:
    """Line -> the functions that begin there."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):  # made by a program, as formulas of problem files are
        return {}
    found: dict[int, list[ast.Lambda | ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            found.setdefault(node.lineno, []).append(node)
    return found


def _holds(node: ast.expr, code: CodeType) -> bool:
    """Whether all of the code stands within the expression: of two lambdas in a line, only one's does."""
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    first, last = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return all(first <= place <= last for place in places)


class _Readable(ast.NodeTransformer):
    """``d.M`` as ``M``, constants as their values."""

    def __init__(self, dims: str, names: inspect.ClosureVars) -> None:
        self._dims = dims
        self._values: Mapping[str, Any] = {**names.globals, **names.nonlocals}
        self.unknown = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Dims."""
        if isinstance(node.value, ast.Name) and node.value.id == self._dims:
            self.unknown |= node.attr == "own"  # not a dim, but all of them
            return ast.Name(id=node.attr)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Everything else."""
        value = self._values.get(node.id)
        if isinstance(value, (int, float)):
            return ast.Constant(value=value)
        if node.id not in _KNOWN:
            self.unknown = True
        return node
