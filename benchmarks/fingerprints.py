"""What a result depends on, as one short hash: a task's declaration, functions and all, and the code that judges it."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import kerneleval
from kerneleval.records import Task, digest

__all__ = ["of_code", "of_task"]

_OWN = "kerneleval.tasks.operators"
"""Functions of these modules are part of a declaration; all others are by their names."""

_JUDGING = ("devices", "judge", "records", "tasks")
_APART = {"operators", "formats", "models", "real_shapes.py", "search.py", "case_keys.py"}
"""What :func:`of_code` leaves out: operators are told task by task, the others make no case that is tested."""


def of_task(task: Task) -> str:
    """Hash (16 hex digits) of a task's declaration: every field, with the code of its functions and what they name."""
    return digest(*_parts(task, set()))[:16]


def of_code(*more: str) -> str:
    """Hash (16 hex digits) of the code that plans, draws, runs and judges cases, and of the interpreter and PyTorch."""
    import torch

    root = Path(kerneleval.__file__).parent
    files = [
        path
        for folder in _JUDGING
        for path in sorted((root / folder).rglob("*.py"))
        if not set(path.relative_to(root / folder).parts) & _APART
    ]
    texts = [f"{path.relative_to(root)}\n{path.read_text(encoding='utf-8')}" for path in files]
    return digest(sys.version, torch.__version__, *texts, *more)[:16]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:  # noqa: C901 - one case for each kind of value
    """What a value consists of, in order."""
    if isinstance(value, FunctionType):
        if id(value) in seen:
            return
        seen.add(id(value))
        yield from _function(value, seen)
    elif isinstance(value, MethodType):
        yield value.__func__.__qualname__
        yield from _parts(value.__self__, seen)
    elif isinstance(value, functools.partial):
        yield "partial"
        yield from _parts((value.func, value.args, value.keywords), seen)
    elif isinstance(value, (BuiltinFunctionType, type)):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif dataclasses.is_dataclass(value):
        yield type(value).__name__
        for field in dataclasses.fields(value):
            yield field.name
            yield from _parts(getattr(value, field.name), seen)
    elif isinstance(value, Mapping):
        yield "{"
        for name, item in value.items():
            yield from _parts(name, seen)
            yield from _parts(item, seen)
    elif isinstance(value, (tuple, list)):
        yield "("
        for item in value:
            yield from _parts(item, seen)
        yield ")"
    elif isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        yield repr(value)
    else:
        shown = repr(value)
        yield type(value).__qualname__ if " at 0x" in shown else shown


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield f"{function.__module__}.{function.__qualname__}"
    if not (function.__module__ or "").startswith("kerneleval.tasks"):
        return
    yield from _code(function.__code__)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen)
    for cell in function.__closure__ or ():
        yield from _parts(cell.cell_contents, seen)
    if (function.__module__ or "").startswith(_OWN):
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                yield name
                yield from _parts(function.__globals__[name], seen)


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):  # the order of a set's elements is another one in every process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _names(code: CodeType) -> set[str]:
    """Names that the code, and functions within it, may take from their module."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*(_names(constant) for constant in inner))
