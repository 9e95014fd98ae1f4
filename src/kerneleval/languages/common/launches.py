"""How kernels are launched that bring no host code: ``kerneleval-launch`` and ``kerneleval-scratch`` headers.

Of CUDA, HIP and Metal: ``// kerneleval-launch: NAME grid=(cdiv(M*N,256),1,1) block=(256,1,1) shared=0``. Of OpenCL:
``// kerneleval-launch: KERNEL global=(X,Y,Z) local=(X,Y,Z) entry=NAME``, where lines of one entry point are its steps,
in their order, and ``// kerneleval-scratch: NAME BYTES`` gives all of them one more buffer. Expressions are integers
over the task's dims with ``+ - * // %``, ``cdiv(a, b)``, ``min`` and ``max``; nothing else is evaluated.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kerneleval.languages.common.source import HeaderLine, read_header
from kerneleval.records import UsageError

_LENGTH_LIMIT = 400
_VALUE_LIMIT = 2**63
_FORM = "NAME grid=(X,Y,Z) block=(X,Y,Z) shared=BYTES"


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Geometry of one kernel, as expressions over dims."""

    kernel: str
    """Name of the ``extern "C" __global__`` function."""
    grid: tuple[str, str, str]
    """Blocks along x, y, z."""
    block: tuple[str, str, str]
    """Threads of a block along x, y, z."""
    shared: str = "0"
    """Dynamic shared memory of a block, in bytes."""

    def at(self, dims: Mapping[str, int]) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        """(grid, block, shared bytes) at those dims; raises UsageError for an unknown dim or a negative result."""
        values = [evaluate(e, dims) for e in (*self.grid, *self.block, self.shared)]
        if min(values) < 0:
            raise UsageError(f"launch geometry of {self.kernel} at {dict(dims)} has a negative size: {values}")
        return (values[0], values[1], values[2]), (values[3], values[4], values[5]), values[6]


def read_launches(text: str) -> dict[str, Geometry]:
    """The launch lines in a source's header, by kernel; empty: the source has a host launcher. Raises UsageError: a
    line is not of the form above; names its number.
    """
    found: dict[str, Geometry] = {}
    for line in read_header(text, "launch"):
        geometry = _parsed(line, _geometry)
        if geometry.kernel in found:
            raise UsageError(f"line {line.line}: kerneleval-launch: kernel {geometry.kernel} has two launch lines")
        found[geometry.kernel] = geometry
    return found


def _geometry(text: str) -> Geometry:
    name, _, rest = text.partition(" ")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"{name!r} is no kernel name; the form is {_FORM}")
    values = _settings(rest, ("grid", "block"), ("shared",), _FORM)
    shared = values.get("shared", "0")
    _tree(shared)
    grid, block = _triple("grid", values["grid"]), _triple("block", values["block"])
    return Geometry(kernel=name, grid=grid, block=block, shared=shared)


def _settings(text: str, needed: Sequence[str], further: Sequence[str], form: str) -> dict[str, str]:
    """The values in ``key=value key=value``, which may hold spaces."""
    parts = re.split(rf"\s*\b({'|'.join((*needed, *further))})\s*=\s*", text.strip())
    if parts[0]:
        raise UsageError(f"{parts[0]!r} is unexpected; the form is {form}")
    values: dict[str, str] = {}
    for key, value in zip(parts[1::2], parts[2::2], strict=True):
        if key in values:
            raise UsageError(f"{key} is given twice")
        values[key] = value.strip()
    for key in needed:
        if key not in values:
            raise UsageError(f"{key} is missing; the form is {form}")
    return values


def _triple(key: str, text: str) -> tuple[str, str, str]:
    tree = _syntax(text)
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"{key}={text} must have one to three sizes")
    for part in parts:
        _check(part, text)
    sizes = [ast.unparse(p) for p in parts] + ["1", "1"]
    return sizes[0], sizes[1], sizes[2]


def evaluate(text: str, dims: Mapping[str, int]) -> int:
    """The value of one integer expression over dims. Raises UsageError: not such an expression, an unknown name, a
    division by zero, or a value beyond 63 bits.
    """
    try:
        return _value(_tree(text), dims)
    except ZeroDivisionError:
        raise UsageError(f"{text!r} divides by zero at {dict(dims)}") from None


def _syntax(text: str) -> ast.expr:
    if len(text) > _LENGTH_LIMIT:
        raise UsageError(f"an expression may have {_LENGTH_LIMIT} characters, this one has {len(text)}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text!r} is no integer expression") from None


def _tree(text: str) -> ast.expr:
    tree = _syntax(text)
    _check(tree, text)
    return tree


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = {"cdiv": (2, 2), "min": (1, 8), "max": (1, 8)}


def _check(node: ast.expr, text: str) -> None:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < _VALUE_LIMIT:
        return
    if isinstance(node, ast.Name):
        return
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        parts = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        parts = [node.operand]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        low, high = _FUNCTIONS.get(node.func.id, (1, 0))
        parts = node.args if low <= len(node.args) <= high else []
    if not parts:
        raise UsageError(f"{text!r}: only integers, dims, + - * // %, cdiv(a, b), min and max are allowed")
    for part in parts:
        _check(part, text)


def _value(node: ast.expr, dims: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in dims:
            raise UsageError(f"launch geometry names {node.id!r}; the task's dims are {', '.join(dims)}")
        return dims[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, dims)
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        args = [_value(arg, dims) for arg in node.args]
        if node.func.id == "cdiv":
            return -(-args[0] // args[1])
        return min(args) if node.func.id == "min" else max(args)
    assert isinstance(node, ast.BinOp)
    left, right = _value(node.left, dims), _value(node.right, dims)
    result: int = _OPERATORS[type(node.op)](left, right)
    if abs(result) >= _VALUE_LIMIT:
        raise UsageError("launch geometry exceeds 63 bits")
    return result


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEP_FORM = "KERNEL global=(X,Y,Z) local=(X,Y,Z) entry=NAME"
_SCRATCH_FORM = "ENTRY BYTES"

T = TypeVar("T")
Sizes = tuple[int, int, int]
"""Along x, y, z."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One launch of a kernel, its sizes as expressions over dims."""

    kernel: str
    """Name of the ``kernel`` function."""
    global_size: tuple[str, str, str]
    """Work-items along x, y, z."""
    local_size: tuple[str, str, str]
    """Work-items of a group along x, y, z."""

    def at(self, dims: Mapping[str, int]) -> tuple[Sizes, Sizes]:
        """(global, local) size at those dims; a global size with a 0 in it is not to be launched. Raises UsageError: an
        unknown dim, a negative size, no work-item in a group, or a global size that is no multiple of the local one.
        """
        values = [evaluate(size, dims) for size in (*self.global_size, *self.local_size)]
        whole, group = (values[0], values[1], values[2]), (values[3], values[4], values[5])
        if min(whole) < 0 or min(group) < 1:
            raise UsageError(f"{self.kernel} at {dict(dims)}: global={whole} local={group} are no sizes")
        if any(w % g for w, g in zip(whole, group, strict=True)):
            raise UsageError(f"{self.kernel} at {dict(dims)}: global={whole} is no multiple of local={group}")
        return whole, group


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one call of an entry point does."""

    steps: tuple[Step, ...]
    scratch: tuple[str, ...] = ()
    """Bytes of each further buffer, as expressions over dims."""

    def scratch_at(self, dims: Mapping[str, int]) -> list[int]:
        """Bytes of each further buffer at those dims; raises UsageError for an unknown dim or a negative size."""
        sizes = [evaluate(size, dims) for size in self.scratch]
        if sizes and min(sizes) < 0:
            raise UsageError(f"kerneleval-scratch at {dict(dims)} is negative: {sizes}")
        return sizes


def read_plans(text: str) -> dict[str, Plan]:
    """The launch and scratch lines in a source's header, by entry point. Raises UsageError: a line is not of the form
    above, or there is no launch line; names the line's number.
    """
    steps: dict[str, list[Step]] = {}
    scratch: dict[str, list[str]] = {}
    for line in read_header(text, "launch"):
        entry, step = _parsed(line, _launch)
        steps.setdefault(entry, []).append(step)
    for line in read_header(text, "scratch"):
        entry, size = _parsed(line, _scratch)
        if entry not in steps:
            raise UsageError(f"line {line.line}: kerneleval-scratch: no launch line has the entry point {entry}")
        scratch.setdefault(entry, []).append(size)
    if not steps:
        raise UsageError(f"no kerneleval-launch line is among the first 60; its form is {_STEP_FORM}")
    return {entry: Plan(steps=tuple(its), scratch=tuple(scratch.get(entry, ()))) for entry, its in steps.items()}


def _parsed(line: HeaderLine, parse: Callable[[str], T]) -> T:
    try:
        return parse(line.value)
    except UsageError as error:
        raise UsageError(f"line {line.line}: kerneleval-{line.key}: {error}") from error


def _launch(text: str) -> tuple[str, Step]:
    kernel, _, rest = text.partition(" ")
    _check_name(kernel, "kernel", _STEP_FORM)
    values = _settings(rest, ("global", "local"), ("entry",), _STEP_FORM)
    entry = values.get("entry", kernel)
    _check_name(entry, "entry point", _STEP_FORM)
    whole, group = _triple("global", values["global"]), _triple("local", values["local"])
    return entry, Step(kernel=kernel, global_size=whole, local_size=group)


def _scratch(text: str) -> tuple[str, str]:
    entry, _, size = text.partition(" ")
    _check_name(entry, "entry point", _SCRATCH_FORM)
    if not size.strip():
        raise UsageError(f"the size is missing; the form is {_SCRATCH_FORM}")
    _tree(size)
    return entry, size.strip()


def _check_name(name: str, what: str, form: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a {what}; the form is {form}")
