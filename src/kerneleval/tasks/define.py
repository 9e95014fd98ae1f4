"""A small vocabulary in which an operator is a table: dims, arguments, outputs, formulas.

Shapes are strings of dim names (``"M N"``); formulas are functions of the dims (``lambda d: 2 * d.M * d.N``). Names
that are no dims of their own (the length that a convolution leaves, channels made of groups) stand in ``derive``.

Conventions of all built-in operators, which candidates may rely on:

* tensors come first, plain numbers last, in the order of PyTorch's own functional call;
* row-wise operators work on ``(M, N)`` and reduce the last dimension;
* ``flops`` counts a multiply-add as two and every other arithmetic operation, comparison or transcendental as one;
* ``bytes`` counts every argument once and every output once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kerneleval.records import (
    CATEGORIES,
    DISTRIBUTIONS,
    DTYPES,
    GROUPS,
    LAYOUTS,
    Argument,
    Dim,
    Law,
    Relation,
    Scalar,
    Task,
    TensorSpec,
    Tolerance,
    UsageError,
    Values,
)

__all__ = ["FAR_BELOW", "FLOATS", "INTEGERS", "ROWS", "Arg", "Formula", "Plain", "Table", "bias", "bits", "data",
           "fixed", "flags", "index", "mask", "operator", "plain", "size", "table_of", "validate", "weight",
           "whole"]  # fmt: skip

Formula = Callable[[Any], Any]
"""A function of the dims as attributes (own and derived ones)."""

FLOATS: tuple[str, ...] = ("float32", "float16", "bfloat16")
"""The floating types of every built-in operator, the default first."""

INTEGERS: tuple[str, ...] = ("int32", "int64", "int8", "uint8")
"""The types of operators on bits and whole numbers, the default first."""

_DISTRIBUTIONS = tuple(d for d in DISTRIBUTIONS if d not in ("negative", "trained", "common"))
"""Those that every operator has: the first two of the others are for problem files, the last for few tasks."""

_DISCRETE = ("standard", "constant", "zeros")
"""Those that mean something where no argument is a floating number."""

_GROUP = {
    "elementwise": "Math",
    "reduction": "Reduce",
    "gemm": "MatrixMultiply",
    "convolution": "Convolution",
    "normalization": "Normalization",
    "attention": "Fusion",
    "fused": "Fusion",
}
_COMPLEXITY = {"normalization": 2, "gemm": 3, "convolution": 3, "attention": 3}
"""What a task of each category is, unless its table says otherwise."""


FAR_BELOW = -200.0
"""What rows of unlikely things lie about (log-probabilities): exp gives 0 there in fp32 and bf16 unless the maximum,
which is no larger, is taken off."""

_KEPT = 2.0
"""``Tolerance.kept`` of operators that models also run in separate calls. Without it, eager attentions of common models
were rejected in 5 to 10 of 10 runs in float16; with it in none of 36."""


def size(name: str, low: int = 1, high: int = 8192, multiple_of: int = 1) -> Dim:
    """A dim whose range the shape category sets, within [low, high]."""
    return Dim(name=name, low=low, high=high, multiple_of=multiple_of)


def fixed(name: str, low: int = 1, high: int = 8, multiple_of: int = 1) -> Dim:
    """A dim (batch, heads, kernel width) sampled from [low, high] whatever the shape category is."""
    return Dim(name=name, low=low, high=high, multiple_of=multiple_of, scaled=False)


ROWS: tuple[Dim, ...] = (size("M"), size("N"))
"""Dims of elementwise and row-wise operators: M rows of N elements."""


class Dims:
    """Dims as attributes: a task's own, and the derived ones, computed when asked for."""

    __slots__ = ("_derive", "own")

    def __init__(self, own: Mapping[str, int], derive: Mapping[str, Formula]) -> None:
        self.own, self._derive = own, derive

    def __getattr__(self, name: str) -> Any:
        if name in self.own:
            return self.own[name]
        if name in self._derive:
            return self._derive[name](self)
        raise AttributeError(f"no dim is called {name!r}; there are {', '.join((*self.own, *self._derive))}")


@dataclass(frozen=True, kw_only=True)
class Arg:
    """One tensor argument or output, with its shape still in names."""

    name: str
    shape: str
    role: Literal["data", "weight", "index", "mask", "output"] = "data"
    values: Values = "normal"
    fan_in: str = ""
    """Names of the dims summed over; the values are scaled by (their product) ** -0.5."""
    low: int | Formula = 0
    high: int | Formula = 2
    dtype: str = ""
    """Empty: the case's dtype."""
    differentiable: bool = False
    nan_only: bool = False
    common: Formula | None = None
    common_signs: bool = False
    large_half: float = 16.0
    large_half_backward: float = 0.0

    def at(self, d: Dims, dtype: str) -> TensorSpec:
        """The argument at given dims and dtype."""
        return TensorSpec(
            name=self.name,
            shape=tuple(getattr(d, name) for name in self.shape.split()),
            dtype=self.dtype or dtype,
            role=self.role,
            values=self.values,
            low=self.low(d) if callable(self.low) else self.low,
            high=self.high(d) if callable(self.high) else self.high,
            scale=max(1, math.prod(getattr(d, name) for name in self.fan_in.split())) ** -0.5,
            differentiable=self.differentiable,
            nan_only=self.nan_only,
            common=0.0 if self.common is None else self.common(d),
            common_signs=self.common_signs,
            large_half=self.large_half,
            large_half_backward=self.large_half_backward,
        )


@dataclass(frozen=True, kw_only=True)
class Plain:
    """One plain argument; ``value`` may be a formula."""

    name: str
    value: Any

    def at(self, d: Dims, dtype: str) -> Scalar:
        """The argument at given dims."""
        return Scalar(name=self.name, value=self.value(d) if callable(self.value) else self.value)


def data(
    name: str,
    shape: str,
    fan_in: str = "",
    common: Formula | None = None,
    common_signs: bool = False,
    large_half: float = 16.0,
    large_half_backward: float = 0.0,
    values: Values = "normal",
    differentiable: bool = True,
) -> Arg:
    """An argument that follows the case's distribution and layout; the rest as in ``TensorSpec``."""
    return Arg(
        name=name,
        shape=shape,
        values=values,
        fan_in=fan_in,
        differentiable=differentiable,
        common=common,
        common_signs=common_signs,
        large_half=large_half,
        large_half_backward=large_half_backward,
    )


def weight(
    name: str, shape: str, fan_in: str = "", values: Literal["normal", "ones_normal", "variance"] = "normal"
) -> Arg:
    """A differentiable parameter: standard values, scaled by the fan-in so that outputs stay near unit scale."""
    return Arg(name=name, shape=shape, role="weight", values=values, fan_in=fan_in, differentiable=True)


def bias(shape: str) -> Arg:
    """A differentiable additive parameter called ``bias``, N(0, 1)."""
    return weight("bias", shape)


def index(name: str, shape: str, high: Formula, low: int | Formula = 0) -> Arg:
    """Integers (int64) in [low, high)."""
    return Arg(name=name, shape=shape, role="index", values="integers", low=low, high=high, dtype="int64")


def whole(name: str, shape: str, low: int | Formula, high: int | Formula, dtype: str = "") -> Arg:
    """Whole numbers in [low, high) that follow the case's layout, of the case's dtype unless another is given."""
    return Arg(name=name, shape=shape, values="integers", low=low, high=high, dtype=dtype)


def bits(name: str, shape: str) -> Arg:
    """Whole numbers over all of the case's dtype that follow the case's layout."""
    return Arg(name=name, shape=shape, values="bits")


def flags(name: str, shape: str) -> Arg:
    """Booleans that follow the case's layout."""
    return Arg(name=name, shape=shape, values="bool", dtype="bool")


def mask(name: str, shape: str) -> Arg:
    """Flags (bool), True where an element takes part; at least four in every row (last dim) of as many."""
    return Arg(name=name, shape=shape, role="mask", values="bool", dtype="bool")


def plain(name: str, value: Any) -> Plain:
    """A number or flag, or a formula that gives one."""
    return Plain(name=name, value=value)


@dataclass(frozen=True)
class Table:
    """The closures of a task, all from one description."""

    args: tuple[Arg | Plain, ...]
    """The arguments, in the order of the call."""
    outputs: tuple[Arg, ...]
    """The outputs."""
    derive: Mapping[str, Formula] = field(default_factory=dict)
    """Names that are no dims of their own."""
    formulas: Mapping[str, Formula] = field(default_factory=dict)
    """What is computed from the dims: ``flops``; ``where``, ``reduction`` and ``gathered`` where there are such."""

    def space(self, dims: Mapping[str, int]) -> Dims:
        """Dims as attributes."""
        return Dims(dims, self.derive)

    def arguments(self, dims: Mapping[str, int], dtype: str) -> tuple[Argument, ...]:
        """The arguments at given dims and dtype."""
        d = self.space(dims)
        return tuple(arg.at(d, dtype) for arg in self.args)

    def bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """Bytes of every argument and output."""
        d = self.space(dims)
        tensors = [*(arg for arg in self.args if isinstance(arg, Arg)), *self.outputs]
        return sum(arg.at(d, dtype).nbytes for arg in tensors)

    def formula(self, formula: Formula) -> Callable[[Mapping[str, int]], Any]:
        """A formula as a function of the dims."""
        return lambda dims: formula(self.space(dims))


def table_of(task: Task) -> Table | None:
    """The table that a task was made from; None: it was made in another way, as those of peers' files are."""
    owner = getattr(task.arguments, "__self__", None)
    return owner if isinstance(owner, Table) else None


def _output(position: int, text: str) -> Arg:
    shape, _, dtype = text.partition(":")
    return Arg(name=f"out{position}", shape=shape, role="output", dtype=dtype.strip())


def operator(
    name: str,
    category: str,
    summary: str,
    *,
    dims: tuple[Dim, ...],
    args: tuple[Arg | Plain, ...],
    out: tuple[str, ...],
    reference: Callable[..., Any],
    unfused: tuple[Callable[..., Any], ...] = (),
    in_type: bool = True,
    flops: Formula,
    reduction: Formula | None = None,
    gathered: Formula | None = None,
    normwise: bool = False,
    derive: Mapping[str, Formula] | None = None,
    where: Formula | None = None,
    without: tuple[str, ...] = (),
    forward_only: tuple[str, ...] = (),
    nonfinite: bool | Literal["nan"] = "nan",
    empty: bool = False,
    layouts: tuple[str, ...] = LAYOUTS,
    index_output: bool = False,
    exact: bool = False,
    dtypes: tuple[str, ...] = FLOATS,
    backward_dtypes: tuple[str, ...] = (),
    factor: float = 1.0,
    law: Law | None = None,
    exact_form: Callable[..., Any] | None = None,
    contract: tuple[float, float, float] = (0.95, 0.05, 0.1),
    no_backward: str = "",
    relations: tuple[Relation, ...] = (),
    source: str = "aten",
    level: int = 1,
    group: str = "",
    complexity: int = 0,
) -> Task:
    """A task from its table.

    Args:
        name: unique slug.
        category: one of ``records.CATEGORIES``.
        summary: one line with the formula.
        dims: the free dims, in the order in which native launchers receive them.
        args: the arguments, in the order of the call.
        out: shapes of the outputs; ``"M: int64"`` where the dtype is not the case's.
        reference: the operator in plain PyTorch.
        unfused: the same as separate calls, as is usual, where the reference is one fused kernel; see ``Task.unfused``.
        in_type: whether these keep what is between the calls in half types.
        flops: operations of one forward call.
        reduction: terms summed into one output element (None: 1).
        gathered: terms of a gradient's longest sum, where that runs over several dims; see ``Tolerance.gathered``.
        normwise: whether fast algorithms exist that are stable in the norm alone; see ``Tolerance.normwise``.
        derive: further names for shapes and formulas, each a formula of those before it.
        where: which dims are allowed together. It alone says which dims may be 0 in empty cases.
        without: distributions left out, because the operator is ill-conditioned or overflows there.
        forward_only: distributions left out backward, because gradients are rounding noise there.
        nonfinite: whether IEEE arithmetic defines the output for infinities and NaN; ``"nan"``: for NaN alone, because
            kernels that are right, PyTorch's own among them, differ about infinities.
        empty: whether a dim (any that ``where`` allows) may be 0.
        layouts: the layouts in which data arguments are given.
        index_output: whether the outputs are indices, judged by the elements that they select.
        exact: whether outputs must be equal to the reference's, because nothing is computed or what is has no rounding.
        dtypes: the types in which it is judged, the default first.
        backward_dtypes: those of them in which gradients are judged; empty: all.
        factor: see ``Tolerance.factor``.
        law: of operators that draw, see ``Tolerance.law``.
        exact_form: of operators that quantise, the same without it; see ``Tolerance.exact_form``.
        contract: least cosine, largest relative L1 and rms errors against it.
        no_backward: why there is no backward.
        relations: metamorphic relations.
        source: where the operator comes from: ``aten``, ``vllm``, ``cublas`` or ``model``.
        level: 1 one operator, 2 a fusion, 3 a model's block.
        group: one of ``records.GROUPS``; empty: what the category has.
        complexity: K of the rubric; 0: what the category has.
    """
    tensors = [a for a in args if isinstance(a, Arg)]
    discrete = all(a.values in ("integers", "bits", "bool") for a in tensors if a.role == "data")
    known = _DISCRETE if discrete else _DISTRIBUTIONS
    if nonfinite == "nan":
        args = tuple(replace(a, nan_only=True) if isinstance(a, Arg) else a for a in args)
    if no_backward:
        args = tuple(replace(a, differentiable=False) if isinstance(a, Arg) else a for a in args)
    formulas = {"flops": flops, "where": where, "reduction": reduction, "gathered": gathered}
    table = Table(
        args=args,
        outputs=tuple(_output(i, text) for i, text in enumerate(out)),
        derive=dict(derive or {}),
        formulas={kind: formula for kind, formula in formulas.items() if formula is not None},
    )
    return Task(
        name=name,
        category=category,
        source=source,
        level=level,
        summary=summary,
        dims=dims,
        dtypes=dtypes,
        group=group or _GROUP[category],
        complexity=complexity or _COMPLEXITY.get(category, 1),
        arguments=table.arguments,
        reference=reference,
        unfused=unfused,
        flops=table.formula(flops),
        bytes=table.bytes,
        tolerance=Tolerance(
            kind="random" if law is not None else "index" if index_output else "exact" if exact else "float",
            law=law,
            reduction=None if reduction is None else table.formula(reduction),
            gathered=None if gathered is None else table.formula(gathered),
            factor=factor,
            normwise=normwise,
            kept=_KEPT if unfused and in_type else 0.0,
            exact_form=exact_form,
            contract=contract,
        ),
        relations=relations,
        constraint=None if where is None else table.formula(where),
        forward_only=forward_only,
        distributions=(
            *(d for d in known if d not in without and (nonfinite or d != "nonfinite")),
            *(("common",) if any(isinstance(a, Arg) and a.common for a in args) else ()),
        ),
        layouts=layouts,
        empty=empty,
        backward_dtypes=backward_dtypes,
        no_backward=no_backward,
    )


def validate(task: Task, where: str) -> Task:
    """The task itself, once its declaration holds together.

    Args:
        task: the task.
        where: file or module that defines it, for the message.

    Raises:
        UsageError: naming the first field that is wrong and what would be right.
    """
    problems: list[str] = []
    if not task.name.isidentifier():
        problems.append(f"name {task.name!r} must be an identifier such as 'layer_norm'")
    if task.category not in CATEGORIES:
        problems.append(f"category {task.category!r} is unknown; known are {', '.join(CATEGORIES)}")
    for field_name, values, known in (
        ("dtypes", task.dtypes, tuple(DTYPES)),
        ("distributions", task.distributions, DISTRIBUTIONS),
        ("layouts", task.layouts, LAYOUTS),
        ("group", (task.group,), (*GROUPS, "")),
        ("complexity", (task.complexity,), (1, 2, 3, 4)),
    ):
        problems += [
            f"{field_name}: {v!r} is unknown; known are {', '.join(map(str, known))}" for v in values if v not in known
        ]
        if not values:
            problems.append(f"{field_name} is empty")
    names = [dim.name for dim in task.dims]
    if len(set(names)) != len(names):
        problems.append(f"two dims share a name in {', '.join(names)}")
    for dim in task.dims:
        least = -(-dim.low // dim.multiple_of) * dim.multiple_of
        if dim.low < 1 or least > dim.high:
            problems.append(
                f"dim {dim.name}: no multiple of {dim.multiple_of} lies in [{dim.low}, {dim.high}], low >= 1"
            )
    if not task.case_dims and not any(dim.scaled for dim in task.dims):
        problems.append("no dim is scaled and there are no case_dims, so there is nothing to sample")
    if problems:
        raise UsageError(f"task {task.name!r} in {where}: {problems[0]}")
    return task
