"""Signatures of native entry points, as C++, CUDA, HIP, OpenCL C and Metal candidates must have them
(``docs/candidates.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerneleval.records import Argument, Scalar, Table, Task, TensorSpec, UsageError

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

_SHADER_TYPES = _TYPES | {
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "char",
    "uint8": "uchar",
    "float8_e4m3fn": "uchar",
    "float8_e5m2": "uchar",
    "float16": "half",
}
"""What OpenCL C and Metal call them alike."""

_KEYWORDS = (
    "stream alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not "
    "operator or private protected public register requires return short signed sizeof static struct switch template "
    "this throw true try typedef typeid typename union unsigned using virtual void volatile while xor"
)
"""Names that no parameter may have."""

_SHADER_KEYWORDS = f"{_KEYWORDS} kernel half uchar ushort uint ulong size_t constant"


@dataclass(frozen=True, kw_only=True)
class _Form:
    """How a language writes an entry point down."""

    called: str
    types: Mapping[str, str]
    """Types of elements by dtype; a dtype that is not here the language does not have."""
    plain: Mapping[str, str]
    """Types of parameters by the kind of what is given besides tensors; a kind that is not here cannot be given."""
    head: str = 'extern "C" int'
    space: str = ""
    """Address space of tensors, with a blank behind it."""
    size: str = "int64_t "
    last: tuple[str, ...] = ("void *stream",)
    """Parameters behind the sizes."""
    keywords: str = _KEYWORDS


_PLAIN = {
    "number": "double ",
    "integer": "int64_t ",
    "list": "const int64_t *",
    "string": "const char *",
    "None": "const void *",
}
_HALVES = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
FORMS = {
    "cuda": _Form(called="CUDA", types=_TYPES | _HALVES, plain=_PLAIN),
    "hip": _Form(called="HIP", types=_TYPES | _HALVES | {"bfloat16": "__hip_bfloat16"}, plain=_PLAIN),
    "cpp": _Form(called="C++", types=_TYPES, plain=_PLAIN),
    "opencl": _Form(
        called="OpenCL C",
        types=_SHADER_TYPES | {"bool": "uchar", "bfloat16": "ushort"},
        plain={"number": "double ", "integer": "long ", "list": "global const long *", "None": "global const void *"},
        head="kernel void",
        space="global ",
        size="long ",
        last=(),
        keywords=f"{_SHADER_KEYWORDS} global local restrict event_t image2d_t sampler_t",
    ),
    "metal": _Form(
        called="Metal",
        types={k: v for k, v in _SHADER_TYPES.items() if v != "double"} | {"bfloat16": "bfloat"},
        plain={"number": "constant float &", "integer": "constant long &"},
        head="kernel void",
        space="device ",
        size="constant long &",
        last=(),
        keywords=f"{_SHADER_KEYWORDS} bfloat device thread threadgroup vertex fragment metal sampler texture",
    ),
}

PYTHON = ("triton", "torch", "numba")
"""Languages whose candidates are Python files."""

NATIVE = tuple(FORMS)
"""Languages whose candidates are called without PyTorch in between."""


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

    Raises:
        UsageError: the language cannot take one of the arguments, or has none of the task's dtypes; says which.
    """
    form, found = FORMS[language], []
    for argument in arguments:
        if isinstance(argument, Scalar) and _kind(argument.value) not in form.plain:
            raise UsageError(
                f"task {task.name} has an argument that no {form.called} kernel can take, {argument.name} "
                f"({_kind(argument.value)}): ask for another language than {language}"
            )
    outputs = ["out"] if len(table.outputs) <= 1 else [out.name for out in table.outputs]
    for direction in task.directions:
        if direction == "backward" and not any(isinstance(a, TensorSpec) and a.differentiable for a in arguments):
            continue
        for dtype in task.dtypes:
            if direction == "backward" and dtype not in (task.backward_dtypes or task.dtypes):
                continue
            given = task.arguments(dims, dtype)
            kinds = [out.dtype or dtype for out in table.outputs] or [dtype]
            if not form.types.keys() >= {*kinds, *(a.dtype for a in given if isinstance(a, TensorSpec))}:
                continue
            found.append(_declaration(task, form, given, list(zip(outputs, kinds, strict=True)), dtype, direction))
    if not found:
        raise UsageError(
            f"task {task.name} has no case without a dtype that {form.called} lacks: ask for another language than "
            f"{language}"
        )
    named = {line.partition("(")[0]: line for line in reversed(found)}
    return list(reversed(named.values()))


def _declaration(
    task: Task, form: _Form, given: Sequence[Argument], outputs: Sequence[tuple[str, str]], dtype: str, direction: str
) -> str:
    parts: list[tuple[str, str]] = []
    tensors = [(a.name, a.dtype) for a in given if isinstance(a, TensorSpec)]
    if direction == "backward":
        # an output of whole numbers has no gradient
        upstream = [(f"grad_{name}", kind) for name, kind in outputs if kind.startswith(("float", "bfloat", "complex"))]
        tensors = [*upstream, *tensors]
        parts += [(_pointer(form, kind), name) for name, kind in upstream]
        outputs = [(f"grad_{a.name}", a.dtype) for a in given if isinstance(a, TensorSpec) and a.differentiable]
    for argument in given:
        if isinstance(argument, Scalar):
            parts.append((form.plain[_kind(argument.value)], argument.name))
        else:
            parts.append((_pointer(form, argument.dtype, argument.name in task.in_place), argument.name))
    parts += [(_pointer(form, kind, True), name) for name, kind in outputs]
    parts += [(form.size, dim.name) for dim in task.dims]
    name = task.name + ("_backward" if direction == "backward" else "") + f"_{_suffix(tensors, dtype)}"
    return f"{form.head} {name}({', '.join([*_apart(parts, form.keywords), *form.last])});"


def _kind(value: Any) -> str:
    """What an argument is that is no tensor."""
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)):
        return "list"
    return "None" if value is None else "integer"


def _pointer(form: _Form, dtype: str, written: bool = False) -> str:
    return f"{form.space}{'' if written else 'const '}{form.types[dtype]} *"


def _apart(parts: Sequence[tuple[str, str]], keywords: str) -> list[str]:
    """Parameters with names that are all different, and no words of the language."""
    taken, named = set(keywords.split()), []
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
