"""What a prompt says of a task and of a machine: plain text, made of public facts alone.

Sizes are given as ranges. The cells at which a candidate is judged, seeds, and what is drawn in secret stand nowhere
here: the shapes at which costs are given are drawn by a seed of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerneleval.generators.common.prompts.source import reference_source
from kerneleval.records import (
    Arg,
    Argument,
    Dim,
    Limits,
    Machine,
    Plain,
    Request,
    Scalar,
    Table,
    Task,
    TensorSpec,
    UsageError,
)
from kerneleval.tasks.far_offsets import rows_alone
from kerneleval.tasks.sampling import RANGES, draw, exists

_EXAMPLE_SEED = -1
"""Suite seed of the shapes at which costs are given. A plan draws others: its hypercubes have more rows than one."""

_SMALL_BYTES, _SMALL_FLOPS = 64 << 20, 1 << 36
_LARGE_BYTES, _LARGE_FLOPS = 1 << 30, 1 << 42
"""Limits of these shapes: on processors, and elsewhere."""

_PROCESSORS = ("cpu", "opencl")
"""Devices that are the host's processor."""

_UNITS = {"cpu": "cores", "opencl": "compute units", "metal": "cores"}
"""What a machine's units are called; elsewhere multiprocessors."""

_CATEGORIES = {
    **dict.fromkeys(("tiny", "small", "medium", "large"), "every size"),
    "power_of_two": "every size a power of two",
    "non_power_of_two": "no size a power of two",
    "rectangular": "one size at least 8 times another",
    "square": "sizes equal",
}
"""What :data:`kerneleval.tasks.sampling.RANGES` gives the ranges of."""

_LAYOUTS = {
    "contiguous": "row-major",
    "transposed": "dims in another order in memory, with or without gaps",
    "sliced": "part of a larger tensor: outer strides do not follow from sizes, rows may be misaligned",
    "offset": "row-major, but aligned to the element alone, not to 16 bytes",
    "expanded": "stride 0 along some dim",
}

_NO_INTEGERS = ", in some rows a quarter or 256 times as large, next to 0, or NaN"
"""What floating arguments with ``Arg.wide`` are beside integers."""

_DISTRIBUTIONS = {
    "standard": "",
    "outlier": "a few elements 50 times as large as the others",
    "large_scale": "all elements large",
    "small_scale": "all elements small",
    "constant": "all elements equal",
    "zeros": "all zero",
    "nonfinite": "some NaN, and infinities where defined: they must come out where the reference has them",
    "negative": "values below zero",
    "tiny_scale": "all elements tiny",
    "alike": "rows that are nearly the same",
    "padded": "some zeros, and rows of zeros",
    "edges": "numbers at which a comparison or a rounding changes, and those next to them",
    "sorted": "rows that are sorted, rising, falling or from some place on",
    "skewed": "integers and masks at the ends of their range, whole rows of them",
    "redrawn": "other integers, flags and masks, where the file always gives the same",
    "trained": "weights of other signs and sizes than at initialisation",
    "common": "values far from zero that differ little",
    "ordered": "long rows that are sorted, clustered, of low contrast or full of ties",
    "far_mean": "long rows whose mean is 100 or 1000 times their standard deviation",
    "binned": "rows in one bin, in few bins, at edges of bins, at the first or the last edge",
    "full": "rows of more than 65,536 elements of which all are counted, or all in one bin",
    "long_memory": "long rows whose decays are near 1",
}

_VALUES = {
    "normal": "N(0, 1)",
    "positive": "above 0",
    "nonnegative": "0 or above",
    "uniform": "in [0, 1)",
    "symmetric": "in (-1, 1)",
    "above_one": "above 1",
    "special": "NaN and infinities among them",
    "bits": "any value of the type",
    "bool": "True or False",
    "ones_normal": "about 1",
    "variance": "in [0.5, 1.5)",
    "rates": "above 0, in some rows up to 2000 (1024 in float16, 128 in bfloat16)",
    "off_eye": "such that I + a is a regular matrix, of which rows may have to change places",
    "leaning": "such that I + a is a regular matrix, of which rows may have to change places, or near I and two of its "
    "columns nearly a third",
    "faint": "in (-1, 1), or half of the columns of a matrix 10000 times smaller",
    "skew": "small, or skew-symmetric with a norm of up to 16",
    "resized": "such that I + a is a matrix near I, or up to six times larger or smaller",
    "turned": "such that diag(1, 2, ...) + a is nearly diagonal, or such a matrix reflected",
    "linked": "small, or, in some matrices, 0.9 or -0.9 next to the diagonal and smaller elsewhere",
    "half_linked": "small, or, in some matrices, 0.45 or -0.45 next to the diagonal and smaller elsewhere",
}

_MATRICES = ("off_eye", "leaning", "skew", "resized", "turned", "linked", "half_linked")
"""Values that are said of whole matrices, as they are after scaling."""

_STEPS = 16
"""Sizes of a dim that are tried to find its least."""

_MOST_SOURCE = 40_000
"""Most characters of a reference; longer problem files are cut, with a note."""


def clean(text: str) -> str:
    """Foreign text without what no prompt should carry: control characters, lone surrogates, other line ends."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]", "", text)


def fenced(text: str, tag: str = "") -> str:
    """The text in a fence that is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{tag}\n{text.strip(chr(10))}\n{fence}"


Shapes = Sequence[tuple[str, Mapping[str, int]]]
"""(category, dims) of each."""


def task_facts(task: Task, language: str, samples: Shapes) -> dict[str, Any]:
    """Everything about the task that templates may use, as plain data; ``docs/prompts.md`` lists the names. Costs are
    given at the samples. Raises UsageError where the language can take none of the task's cases.
    """
    table = task.table
    dims = samples[0][1] if samples else task.least_dims
    arguments = () if task.module else task.arguments(dims, task.dtypes[0])
    differentiable = [a.name for a in arguments if isinstance(a, TensorSpec) and a.differentiable]
    backward = "backward" in task.directions and bool(differentiable)
    source = clean(reference_source(task))
    if (over := len(source) - _MOST_SOURCE) > 0:
        source = f"{source[:_MOST_SOURCE]}\n# ... {over} more characters are left out here\n"
    described = [_specified(a) for a in arguments]
    if table.args and arguments:
        described = [_declared(*pair) for pair in zip(table.args, arguments, strict=True)]
    facts = {
        "name": task.name,
        "entry": re.sub(r"\W", "_", task.name),
        "summary": clean(task.summary),
        "category": task.category,
        "group": task.group,
        "level": task.level,
        "module": task.module,
        "source": source,
        "dims": [_dim(dim) for dim in task.dims],
        "size_names": [dim.name for dim in task.dims],
        "derived": [f"{name} = {formula}" for name, formula in table.derive.items() if formula != 1],
        "constraint": _constraint(task, table, samples[-1][1] if samples else dims),
        "arguments": described,
        "argument_names": [a.name for a in arguments],
        "outputs": [f"tensor [{_shape(out.shape)}], {out.dtype or 'dtype of the case'}" for out in table.outputs],
        "any_rank": table.folded_text,
        "far": _far(task),
        "dtypes": list(task.dtypes),
        "backward": backward,
        "no_backward": clean(task.no_backward),
        "backward_dtypes": list(task.backward_dtypes or task.dtypes) if backward else [],
        "differentiable": differentiable,
        "gradients": [f"grad_{name}" for name in _output_names(table, floating=task.dtypes[0])],
        "layouts": [f"{name}: {_LAYOUTS[name]}" for name in task.layouts],
        "data": [text for name in task.distributions if (text := _DISTRIBUTIONS[name])],
        "categories": _categories(task),
        "own_sizes": bool(task.case_dims),
        "empty": task.empty,
        "in_place": list(task.in_place),
        "random": task.tolerance.kind == "random",
        "quantised": task.tolerance.exact_form is not None,
        "plain_floats": any(isinstance(a, Scalar) and isinstance(a.value, float) for a in arguments),
        "tolerance": _tolerance(task, table),
        "costs": [_cost(task, name, dims) for name, dims in samples],
        "signatures": [],
    }
    if language in NATIVE and not task.module:
        facts["signatures"] = signatures(task, language, arguments, table, dims)
    return facts


def device_facts(request: Request, samples: Shapes) -> dict[str, Any]:
    """The device: ``kind``, ``arch``, and ``lines`` that say what is known of it, by the request's ``machine`` and
    ``limits``; the host's name and paths are not. And ``roofline``, of the samples.
    """
    machine, limits = request.machine, request.limits
    lines = _machine(machine) if machine is not None else [f"a {request.device} device; nothing more is known of it"]
    if limits is not None:
        lines.append(f"measured memory bandwidth: {_si(limits.bandwidth_bytes_per_s)}B/s")
        rates = ", ".join(f"{_si(rate)}FLOP/s in {dtype}" for dtype, rate in limits.flop_per_s)
        if rates:
            lines.append(f"measured peak of matrix products: {rates}")
    return {
        "kind": request.device,
        "arch": machine.arch if machine is not None else "",
        "lines": [clean(line) for line in lines],
        "roofline": _roofline(request.task, limits, samples) if limits is not None else [],
    }


def _dim(dim: Dim) -> str:
    text = f"{dim.name} = {dim.low}" if dim.low == dim.high else f"{dim.name}: {dim.low} to {dim.high}"
    if dim.multiple_of > 1:
        text += f", multiples of {dim.multiple_of}"
    if dim.long:
        text += f", or up to {dim.long} beside few others"
    return text if dim.scaled or dim.low == dim.high else f"{text}, the same range in every category"


def _far(task: Task) -> str:
    """In which cases offsets exceed 31 bits; empty: in none."""
    if task.case_dims or task.module:
        return ""
    apart = "the first argument's items far apart in memory"
    return f"{apart}, and more than 2^31 elements, M then beyond its range" if rows_alone(task) else apart


def _constraint(task: Task, table: Table, dims: Mapping[str, int]) -> str:
    """Which sizes are allowed together: as a formula, else how small each may be beside ordinary ones."""
    if task.constraint is None:
        return ""
    described = clean(table.where)
    if described:
        return described
    least = []
    for dim in task.dims:
        steps = [dim.low + step * dim.multiple_of for step in range(_STEPS)]
        first = next((size for size in steps if task.constraint({**dims, dim.name: size})), dim.low)
        if first > dim.low:
            least.append(f"{dim.name} >= {first}")
    return " and ".join(least) or "some sizes are not allowed together"


def _declared(named: Arg | Plain, at: Argument) -> str:
    """An argument with its shape in names of dims."""
    if isinstance(named, Plain) or isinstance(at, Scalar):
        value = at.value if isinstance(at, Scalar) else None
        if isinstance(named, Plain) and named.among:
            return f"{named.name}: {type(value).__name__}, {named.among_text}"
        return _plain(named.name, value, named.formula if isinstance(named, Plain) else "")
    parts = [named.role, named.dtype or "dtype of the case", _values(named, at)]
    parts += ["differentiable"] if named.differentiable else []
    return f"{named.name}: tensor [{_shape(named.shape)}], {', '.join(part for part in parts if part)}"


def _plain(name: str, value: Any, formula: str = "") -> str:
    kind = type(value).__name__
    if isinstance(value, float) and not formula:
        return f"{name}: {kind}, usually {clean(repr(value))}"
    return f"{name}: {kind} = {formula or repr(value)}"


def _values(named: Arg, at: TensorSpec) -> str:
    if named.values == "integers":
        wide = _NO_INTEGERS if named.wide and "float" in at.dtype else named.wide_text
        return f"integers from {named.low} to below {named.high}{wide}"
    text = _VALUES[named.values] + (", or 0" if named.idle and named.values == "variance" else "")
    if named.fan_in and named.values not in _MATRICES:
        return f"{text}, times ({' * '.join(named.fan_in.split())}) ** -0.5"
    return text


def _specified(argument: Argument) -> str:
    """An argument of a task whose shapes have no names."""
    if isinstance(argument, Scalar):
        return _plain(argument.name, argument.value)
    parts = [argument.role, argument.dtype] + (["differentiable"] if argument.differentiable else [])
    return f"{argument.name}: tensor of {len(argument.shape)} dims, {', '.join(parts)}"


def _shape(names: str) -> str:
    return ", ".join("1" if name == "one" else name for name in names.split())


def _output_names(table: Table, floating: str) -> list[str]:
    """Names of the outputs that have gradients; ``floating`` is the dtype of those that state none."""
    if len(table.outputs) <= 1:
        return ["out"]
    return [out.name for out in table.outputs if (out.dtype or floating).startswith(("float", "bfloat", "complex"))]


def _categories(task: Task) -> list[str]:
    """The shape categories that the task has, with their ranges; none where its sizes are its own."""
    if task.case_dims:
        return []
    return [
        f"{name}: {_CATEGORIES[name]}, {low} to {high}" for name, (low, high) in RANGES.items() if exists(task, name)
    ]


def _tolerance(task: Task, table: Table) -> list[str]:
    tolerance = task.tolerance
    if tolerance.kind == "exact":
        return ["Outputs must equal the reference's exactly."] + (
            ["Gradients are judged against an fp64 oracle."] if "backward" in task.directions else []
        )
    if tolerance.kind == "index":
        return ["An index is right when the element that it selects equals the one that the reference selects."]
    if tolerance.kind == "random":
        return [
            "Outputs are judged by their distribution: independent draws, uniform generators of good quality.",
            "The same seed must give the same numbers at every call; other seeds independent ones.",
        ]
    lines = [
        "Judged against an fp64 oracle. The error may be a few roundings of fp32 (of fp64 in float64), in half types "
        "and one rounding of the output: compute and accumulate half types in fp32."
    ]
    terms = table.reduction
    if terms:
        lines.append(f"One output element sums {clean(terms)} terms.")
    if tolerance.normwise:
        lines.append("An element may be off by what the largest of its output may (fast algorithms are welcome).")
    if tolerance.exact_form is not None:
        lines.append(
            "The operator quantises: round as the reference does, ties to even, and really compute with the "
            "quantised numbers. Results of exact arithmetic are refused."
        )
    return lines


def costed_shapes(task: Task, device: str) -> Shapes:
    """Shapes at which costs are given, smaller ones on processors; none for tasks with sizes of their own but problem
    files.
    """
    if task.case_dims:
        return [("the file's own sizes", dict(task.case_dims[0][1]))] if task.module else []
    small = device in _PROCESSORS
    most_bytes, most_flops = (_SMALL_BYTES, _SMALL_FLOPS) if small else (_LARGE_BYTES, _LARGE_FLOPS)

    def fits(dims: Mapping[str, int]) -> bool:
        return task.bytes(dims, task.dtypes[0]) <= most_bytes and task.flops(dims) <= most_flops

    wanted = [name for name in ("medium", "large") if exists(task, name)] or [n for n in RANGES if exists(task, n)][:1]
    drawn = [(name, draw(task, name, 0, 1, _EXAMPLE_SEED, fits)) for name in wanted]
    return [(name, dims) for name, dims in drawn if dims is not None]


def _cost(task: Task, category: str, dims: Mapping[str, int]) -> str:
    flops, moved = task.flops(dims), task.bytes(dims, task.dtypes[0])
    at = " ".join(f"{name}={value}" for name, value in dims.items())
    intensity = f", {flops / moved:.3g} FLOP/B" if moved else ""
    where = at if category in RANGES else category
    return f"{where} ({task.dtypes[0]}): {_si(flops)}FLOP, at least {_si(moved)}B moved{intensity}"


def _roofline(task: Task, limits: Limits, samples: Shapes) -> list[str]:
    """The least time of each sample shape, and what bounds it."""
    lines = []
    dtype = task.dtypes[0]
    for category, dims in samples:
        flops, moved = task.flops(dims), task.bytes(dims, dtype)
        at = " ".join(f"{n}={v}" for n, v in dims.items()) if category in RANGES else category
        least_s, by_memory_s = limits.least_s(flops, moved, dtype), moved / limits.bandwidth_bytes_per_s
        bound = "memory" if least_s <= by_memory_s else "arithmetic"
        lines.append(f"{at} ({dtype}): no less than {_si(least_s)}s, bound by {bound}")
    return lines


def _machine(machine: Machine) -> list[str]:
    units = _UNITS.get(machine.device, "multiprocessors")
    lines = [
        f"{machine.name} ({machine.arch}), {machine.units} {units}",
        f"{_binary(machine.memory_bytes)}B memory, {_binary(machine.cache_bytes)}B last-level cache",
        f"PyTorch {machine.torch}" + (f", Triton {machine.triton}" if machine.triton else ""),
    ]
    return [*lines, f"driver {machine.driver}"] if machine.driver else lines


def _si(value: float) -> str:
    """``1.23 M``, ``4.5 µ``: ready for a unit."""
    if not value:
        return "0 "
    steps = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"))
    size, prefix = next((step for step in steps if abs(value) >= step[0]), (1e-9, "n"))
    return f"{value / size:.3g} {prefix}"


def _binary(value: int) -> str:
    size, prefix = next((s for s in ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")) if value >= s[0]), (1, ""))
    return f"{value / size:.3g} {prefix}"


_TYPES = {
    "float64": "double", "float32": "float", "float16": "uint16_t", "bfloat16": "uint16_t",
    "float8_e4m3fn": "uint8_t", "float8_e5m2": "uint8_t", "complex64": "float", "complex128": "double",
    "int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip
"""C++ types of elements. Complex ones are pairs of numbers, half ones and eight-bit floats their bits."""

_SHADER_TYPES = _TYPES | {
    "int64": "long", "int32": "int", "int16": "short", "int8": "char", "uint8": "uchar", "float16": "half",
    "float8_e4m3fn": "uchar", "float8_e5m2": "uchar",
}  # fmt: skip
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
    """One declaration for each dtype and direction, forward first, in a language of :data:`NATIVE`. Where the first
    floating tensor has a dtype of its own, several share a name: the first one counts. ``arguments`` are the task's, at
    any dims, in its first dtype; at ``dims`` arguments can be made. Raises UsageError where the language cannot take
    one of the arguments, or has none of the task's dtypes; says which.
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
    # the dtype of the first floating tensor, else of the first tensor
    kinds = sorted((kind for _, kind in tensors), key=lambda kind: not kind.startswith(("float", "bfloat")))
    name = task.name + ("_backward" if direction == "backward" else "") + f"_{[*kinds, dtype][0]}"
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
