"""Signatures of native entry points, as C++, CUDA and HIP candidates must export them (``docs/candidates.md``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kerneleval.records import Argument, Scalar, Task, TensorSpec
from kerneleval.tasks.define import Table

__all__ = ["NATIVE", "signatures"]

NATIVE = ("cuda", "hip", "cpp")
"""Languages whose candidates export functions by the native ABI."""

_TYPES = {
    "float64": "double",
    "float32": "float",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
    "complex64": "float",
    "complex128": "double",
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
}
"""C++ types of elements. Complex ones are pairs of numbers, half ones and eight-bit floats their bits."""

_HALVES = {
    "cuda": {"float16": "__half", "bfloat16": "__nv_bfloat16"},
    "hip": {"float16": "__half", "bfloat16": "__hip_bfloat16"},
}

_KEYWORDS = (
    "stream alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not "
    "operator or private protected public register requires return short signed sizeof static struct switch template "
    "this throw true try typedef typeid typename union unsigned using virtual void volatile while xor"
)
"""Names that no parameter may have."""


def signatures(
    task: Task, language: str, arguments: Sequence[Argument], table: Table, dims: Mapping[str, int]
) -> list[str]:
    """One declaration for each dtype and direction, forward first. Where the first floating tensor has a dtype of its
    own, several share a name: the first one counts.

    Args:
        task: the task.
        language: one of :data:`NATIVE`.
        arguments: the task's, at any dims, in its first dtype.
        table: what the task was made from; its outputs are named ``out``, or ``out0``, ``out1`` ...
        dims: dims at which arguments can be made.
    """
    found = []
    outputs = ["out"] if len(table.outputs) <= 1 else [out.name for out in table.outputs]
    for direction in task.directions:
        if direction == "backward" and not any(isinstance(a, TensorSpec) and a.differentiable for a in arguments):
            continue
        for dtype in task.dtypes:
            if direction == "backward" and dtype not in (task.backward_dtypes or task.dtypes):
                continue
            given = task.arguments(dims, dtype)
            kinds = [out.dtype or dtype for out in table.outputs] or [dtype]
            found.append(_declaration(task, language, given, list(zip(outputs, kinds, strict=True)), dtype, direction))
    named = {line.partition("(")[0]: line for line in reversed(found)}
    return list(reversed(named.values()))


def _declaration(
    task: Task,
    language: str,
    given: Sequence[Argument],
    outputs: Sequence[tuple[str, str]],
    dtype: str,
    direction: str,
) -> str:
    types = _TYPES | _HALVES.get(language, {})
    parts: list[tuple[str, str]] = []
    tensors = [(a.name, a.dtype) for a in given if isinstance(a, TensorSpec)]
    if direction == "backward":
        # an output of whole numbers has no gradient
        upstream = [(f"grad_{name}", kind) for name, kind in outputs if kind.startswith(("float", "bfloat", "complex"))]
        tensors = [*upstream, *tensors]
        parts += [(f"const {types[kind]} *", name) for name, kind in upstream]
        outputs = [(f"grad_{a.name}", a.dtype) for a in given if isinstance(a, TensorSpec) and a.differentiable]
    for argument in given:
        kind = _scalar(argument.value) if isinstance(argument, Scalar) else f"const {types[argument.dtype]} *"
        parts.append((kind.removeprefix("const ") if argument.name in task.in_place else kind, argument.name))
    parts += [(f"{types[kind]} *", name) for name, kind in outputs]
    parts += [("int64_t ", dim.name) for dim in task.dims]
    name = task.name + ("_backward" if direction == "backward" else "") + f"_{_suffix(tensors, dtype)}"
    return f'extern "C" int {name}({", ".join([*_apart(parts), "void *stream"])});'


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return "double "
    if isinstance(value, str):
        return "const char *"
    if isinstance(value, (list, tuple)):
        return "const int64_t *"
    return "const void *" if value is None else "int64_t "


def _apart(parts: Sequence[tuple[str, str]]) -> list[str]:
    """Parameters with names that are all different, and no words of the language."""
    taken, named = set(_KEYWORDS.split()), []
    for kind, wanted in parts:
        name = wanted
        while name in taken:
            name += "_"
        taken.add(name)
        named.append(kind + name)
    return named


def _suffix(tensors: Sequence[tuple[str, str]], dtype: str) -> str:
    """The dtype of the first floating tensor, else of the first tensor."""
    floating = [kind for _, kind in tensors if kind.startswith(("float", "bfloat"))]
    return (floating or [kind for _, kind in tensors] or [dtype])[0]
