"""Formulas over dims as text (``"2 * M * N * K"``): checked and compiled once, evaluated at given dims.

A formula is one Python expression of numbers, names of dims, arithmetic, comparisons, ``and``, ``or``, ``not``,
``a if b else c`` and the functions in :data:`FUNCTIONS`. Nothing else is evaluated, so a formula reads no attribute,
opens no file and calls no other code. Tables of formulas are in ``records/tables.py``.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Mapping
from types import CodeType
from typing import Any

from kerneleval.records.errors import UsageError

__all__ = ["FUNCTIONS", "Sizes", "formula_names", "product_text"]

FUNCTIONS: dict[str, Any] = {
    "ceil": math.ceil,
    "log": math.log,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}
"""What a formula may call; ``log`` is the natural logarithm, ``round`` goes to the nearest whole number."""

_GLOBALS: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}

_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
    *(ast.Call, ast.Name, ast.Constant),
)


class Sizes(dict[str, Any]):
    """Values of names: a task's dims, and the names derived from them, each computed once, when it is asked for."""

    __slots__ = ("_derive", "_place")

    def __init__(self, dims: Mapping[str, int], derive: Mapping[str, str | int], place: str) -> None:
        super().__init__(dims)
        self._derive, self._place = derive, place

    def __missing__(self, name: str) -> Any:
        formula = self._derive[name]  # a KeyError sends the evaluation on to the functions
        value = self[name] = self.value(formula, name)
        return value

    def value(self, formula: str | float, what: str) -> Any:
        """A formula's value at these dims; a number is its own value.

        Args:
            formula: the text.
            what: what it gives, for the message: ``flops``.

        Raises:
            UsageError: it cannot be computed here, as a division by zero cannot.
        """
        if not isinstance(formula, str):
            return formula
        try:
            return eval(_compiled(formula)[0], _GLOBALS, self)
        except (ArithmeticError, ValueError) as error:
            at = ", ".join(f"{name}={value}" for name, value in self.items() if name not in self._derive)
            raise UsageError(f"{self._place}, {what} = {formula!r} at {at}: {error}") from error


def formula_names(formula: str | float, place: str) -> frozenset[str]:
    """The names of dims in a formula.

    Args:
        formula: the text, or a number, which has none.
        place: what the formula is of, for the message: ``task conv2d, flops``.

    Raises:
        UsageError: it is no text, no expression, or uses what a formula may not; with the place and the formula.
    """
    if isinstance(formula, (int, float)):
        return frozenset()
    if not isinstance(formula, str):
        raise UsageError(f"{place} must be a text over the dims such as '2 * M * N', not a {type(formula).__name__}")
    try:
        return _compiled(formula)[1]
    except SyntaxError as error:
        raise UsageError(f"{place} = {formula!r}: {error.msg} at column {error.offset or 1}") from error


def product_text(names: str) -> str:
    """The product of names that blanks separate, as a formula: ``"B H W"`` gives ``"B * H * W"``; of none: ``"1"``."""
    return " * ".join(names.split()) or "1"


@functools.cache
def _compiled(formula: str) -> tuple[CodeType, frozenset[str]]:
    """Code and names. Raises SyntaxError."""
    tree = ast.parse(formula, mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = set()
    for node in ast.walk(tree):
        wrong = ""
        if isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
            wrong = "" if known and not node.keywords else f"no function of formulas: {ast.unparse(node)}"
        elif isinstance(node, ast.Name):
            if id(node) not in called:
                names.add(node.id)
        elif not isinstance(node, _ALLOWED):
            wrong = f"{type(node).__name__} is not allowed in a formula"
        elif isinstance(node, ast.Constant) and not isinstance(node.value, (int, float)):
            wrong = f"{node.value!r} is no number"
        if wrong:
            raise SyntaxError(wrong, ("", getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, formula))
    return compile(tree, f"<formula {formula}>", "eval"), frozenset(names)
