"""The source of a task's reference as one piece of Python: the function, the helpers that it calls, its settings."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

from kerneleval.records import Task

_OWN = "kerneleval"
"""Begins the names of the modules whose functions are written out: this package's, and those of a user's task files."""


def reference_source(task: Task) -> str:
    """What defines the task's right answer, for people and models to read; it parses as Python. Empty where there is
    none, as of a function that was made by a program.

    A problem file is given whole. A function comes with the helpers and constants that it uses, after their imports;
    its last line assigns ``reference``. Where a user's task file cannot be read any more, the text of it that was kept.
    """
    if task.module:
        from kerneleval.tasks.formats.problem_file import FILE_BEGINS  # it needs PyTorch; `doctor` does without

        return task.baseline_source.rpartition(FILE_BEGINS)[2]
    writer = _Writer()
    try:
        steps = _chain(task.reference)
        return writer.chain(steps, task) if steps else writer.assigned(task.reference)
    except (OSError, TypeError, SyntaxError):  # no source, or one that is no statement of its own
        return task.baseline_source


def _chain(reference: Callable[..., Any]) -> Mapping[str, Any] | None:
    """What a reference of ``tasks/chains`` closes over: a base and the steps behind it; None: it is another one."""
    if not isinstance(reference, types.FunctionType) or reference.__module__ != "kerneleval.tasks.chains.chain":
        return None
    bound = inspect.getclosurevars(reference).nonlocals
    return bound if {"base", "behind", "counts"} <= set(bound) else None


@functools.cache
def _of_torch() -> dict[int, str]:
    """What PyTorch's functions are called, by their identity; the first name counts."""
    import torch

    homes: dict[str, Any] = {
        "torch": torch,
        "F": torch.nn.functional,
        "torch.special": torch.special,
        "torch.linalg": torch.linalg,
    }
    homes |= {"torch.fft": torch.fft, "torch.Tensor": torch.Tensor}
    found: dict[int, str] = {}
    for home, module in homes.items():
        for name, value in vars(module).items():
            if callable(value) and not name.startswith("_"):
                found.setdefault(id(value), f"{home}.{name}")
    return found


class _Writer:
    """Collects imports and definitions, those that are needed first coming first."""

    def __init__(self) -> None:
        self._imports: dict[str, None] = {}
        self._pieces: dict[str, str] = {}
        self._writing: set[str] = set()

    def assigned(self, reference: Callable[..., Any]) -> str:
        """The text that ends in ``reference = ...``."""
        found = self.expression(reference)
        if not found:
            raise TypeError("no source")
        return self._text("" if found == "reference" else f"reference = {found}")

    def chain(self, steps: Mapping[str, Any], task: Task) -> str:
        """A chain as the calls that it makes, one a line."""
        names = [a.name for a in task.arguments(task.least_dims, task.dtypes[0])]
        taken = len(steps["base"].args)
        again = any(step.again for step in steps["behind"])
        lines = [f"x = {'origin = ' if again else ''}{self._call(steps['base'].run, names[:taken])}"]
        for step, count in zip(steps["behind"], steps["counts"], strict=True):
            own = names[taken : taken + count]
            lines.append(f"x = {self._call(step.run, ['x', *(['origin'] if step.again else []), *own])}")
            taken += count
        body = "".join(f"    {line}\n" for line in (*lines, "return x"))
        return self._text(f"def reference({', '.join(names)}):\n{body}")

    def _call(self, function: Any, given: list[str]) -> str:
        """The call of a function with these arguments; those that are bound to it already stand in the call."""
        bound = function if isinstance(function, functools.partial) else functools.partial(function)
        found = self.expression(bound.func)
        fixed = [self.expression(value) for value in bound.args]
        named = {name: self.expression(value) for name, value in bound.keywords.items()}
        if not all((found, *fixed, *named.values())):
            raise TypeError("no source")
        called = f"({found})" if found.startswith("lambda") else found
        return f"{called}({', '.join([*fixed, *given, *(f'{name}={value}' for name, value in named.items())])})"

    def _text(self, last: str) -> str:
        imports = "".join(f"{line}\n" for line in sorted(self._imports))
        parts = [imports, *self._pieces.values(), last]
        return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"

    def expression(self, value: Any) -> str:
        """An expression that gives the value, with what it needs written before; empty: there is none."""
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, (bool, int, float, str)):
            return repr(value)
        if isinstance(value, (tuple, list)):
            items = [self.expression(item) for item in value]
            inner = ", ".join(items)
            if not all(items):
                return ""
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(items) == 1)})"
        if isinstance(value, dict):
            pairs = [(self.expression(key), self.expression(item)) for key, item in value.items()]
            return "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}" if all(k and v for k, v in pairs) else ""
        if isinstance(value, functools.partial):
            return self._partial(value)
        if isinstance(value, types.FunctionType) and value.__module__.startswith(_OWN):
            return self._function(value)
        return self._named(value)

    def _partial(self, value: functools.partial[Any]) -> str:
        self._imports["import functools"] = None
        given = [self.expression(item) for item in (value.func, *value.args)]
        given += [f"{name}={self.expression(item)}" for name, item in value.keywords.items()]
        return f"functools.partial({', '.join(given)})" if all(given) else ""

    def _named(self, value: Any) -> str:
        """The name under which PyTorch or the standard library has it."""
        import torch

        if isinstance(value, torch.dtype):
            self._imports["import torch"] = None
            return str(value)
        if type(value).__name__ == "OpOverloadPacket":
            self._imports["import torch"] = None
            return f"torch.ops.{value}"
        found = _of_torch().get(id(value), "")
        if found:
            self._imports["import torch"] = None
        if found.startswith("F."):
            self._imports["import torch.nn.functional as F"] = None
        return found

    def _function(self, function: types.FunctionType) -> str:
        """Writes the function and what it uses; gives its name, or the text of a lambda."""
        if function.__name__ == "<lambda>":
            return self._lambda(function)
        text, definition = _parsed(function)
        name = definition.name
        known = self._pieces.get(name)
        if name in self._writing:
            return name  # it calls itself
        self._writing.add(name)
        for default in (*definition.args.defaults, *definition.args.kw_defaults):
            for node in ast.walk(default) if default is not None else ():
                if isinstance(node, ast.Name) and node.id in function.__globals__:
                    self._global(node.id, function.__globals__[node.id])
        bound = self._uses(function, definition)
        self._writing.discard(name)
        piece = "".join(f"{line}\n" for line in bound) + text
        if known is not None and known != piece:  # another one of that name: both would be one
            other = next(f"{name}_{i}" for i in range(2, 100) if self._pieces.get(f"{name}_{i}", piece) == piece)
            self._pieces[other] = piece.replace(f"def {name}(", f"def {other}(", 1)
            return other
        self._pieces[name] = piece
        return name

    def _lambda(self, function: types.FunctionType) -> str:
        node = _parsed_lambda(function)
        for line in self._uses(function, node):
            self._pieces.setdefault(line, line)
        return ast.unparse(node)

    def _uses(self, function: types.FunctionType, node: ast.AST) -> list[str]:
        """Writes the globals that a function names; gives the assignments of what it closes over."""
        for name in _globals(node):
            if name in function.__globals__:
                self._global(name, function.__globals__[name])
        found = {name: self.expression(value) for name, value in inspect.getclosurevars(function).nonlocals.items()}
        return [f"{name} = {text}" for name, text in found.items() if text and text != name]

    def _global(self, name: str, value: Any) -> None:
        if type(value).__name__ == "_OpNamespace":  # torch.ops.aten, a module that cannot be imported
            self._imports["import torch"] = None
            self._pieces.setdefault(name, f"{name} = torch.ops.{value.name}")
            return
        if isinstance(value, types.ModuleType):
            own = value.__name__
            self._imports[f"import {own}" if own == name else f"import {own} as {name}"] = None
            return
        found = self.expression(value)
        if found and found != name:
            self._pieces.setdefault(name, f"{name} = {found}")


@functools.lru_cache(maxsize=4096)
def _parsed(function: types.FunctionType) -> tuple[str, ast.FunctionDef]:
    """A function's text without types, and what it parses to: many tasks share their helpers."""
    text = _bare(textwrap.dedent(inspect.getsource(function)))
    definition = ast.parse(text).body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise TypeError("no definition")
    return text, definition


@functools.lru_cache(maxsize=4096)
def _parsed_lambda(function: types.FunctionType) -> ast.Lambda:
    lines, first = inspect.findsource(function)
    tree = ast.parse("".join(lines))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == first + 1]
    if len(found) != 1:
        raise TypeError("not one lambda there")
    return found[0]


@functools.lru_cache(maxsize=4096)
def _globals(function: ast.AST) -> tuple[str, ...]:
    """Names that a function reads and neither takes nor assigns, in their order."""
    nodes = list(ast.walk(function))
    types_only = {id(part) for node in nodes if isinstance(node, ast.AnnAssign) for part in ast.walk(node.annotation)}
    nodes = [node for node in nodes if id(node) not in types_only]
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    read = sorted((node for node in names if node.id not in own), key=lambda node: (node.lineno, node.col_offset))
    return tuple(dict.fromkeys(node.id for node in read))


def _bare(text: str) -> str:
    """A definition without the types in its signatures, which say nothing that is not said elsewhere."""
    lines = text.encode().split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    whole = b"\n".join(lines)
    cuts = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.arg) and node.annotation is not None:
            begin = starts[node.lineno - 1] + node.col_offset + len(node.arg.encode())
            cuts.append((begin, _end(node.annotation, starts)))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            begin = starts[node.returns.lineno - 1] + node.returns.col_offset
            cuts.append((whole.rindex(b"->", 0, begin) - 1, _end(node.returns, starts)))
    for begin, end in sorted(cuts, reverse=True):
        whole = whole[:begin] + whole[end:]
    return whole.decode()


def _end(node: ast.expr, starts: list[int]) -> int:
    return starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
