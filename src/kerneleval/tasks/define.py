"""A small vocabulary in which an operator is a table: dims, arguments, outputs, formulas.

Shapes are strings of dim names (``"M N"``); formulas are strings over them (``"2 * M * N"``), in the language of
``records/tasks.py``. Names that are no dims of their own (the length that a convolution leaves, channels made of
groups) stand in ``derive``.

Conventions of all built-in operators, which candidates may rely on:

* tensors come first, plain numbers last, in the order of PyTorch's own functional call;
* elementwise and row-wise operators are planned at ``(M, N)``, and row-wise ones reduce the last dimension; where
  ``folded`` names ``M``, it stands for any number of dims, so that ``(N,)`` and ``(A, B, N)`` are right too;
* ``flops`` counts a multiply-add as two and every other arithmetic operation, comparison or transcendental as one;
* ``bytes`` counts every argument once and every output once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from kerneleval.records import (
    DISTRIBUTIONS,
    ROW_DISTRIBUTIONS,
    Arg,
    Dim,
    Extreme,
    Law,
    Nonfinite,
    Plain,
    Relation,
    Table,
    Task,
    Tolerance,
    UsageError,
    Values,
    formula_names,
    near,
    product_text,
)

FLOATS: tuple[str, ...] = ("float32", "float16", "bfloat16")
"""The floating types of every built-in operator, the default first."""

INTEGERS: tuple[str, ...] = ("int32", "int64", "int8", "uint8")
"""The types of operators on bits and whole numbers, the default first."""

_OF_FILES = ("negative", "trained", "tiny_scale", "alike", "padded", "edges", "redrawn", "sorted", "skewed")
"""Those of problem files alone."""

_DISTRIBUTIONS = tuple(d for d in DISTRIBUTIONS if d not in (*_OF_FILES, "common", *ROW_DISTRIBUTIONS))
"""Those that every operator has."""

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

_USUAL: dict[str, Any] = {"source": "aten", "level": 1, "dtypes": FLOATS}
"""Fields of every task, unless its table says otherwise."""


FAR_BELOW = -200.0
"""Mean of rows of small log-probabilities: exp gives 0 there in fp32 and bf16 unless the maximum,
which is no larger, is taken off."""

_KEPT = 2.0
"""``Tolerance.kept`` of operators that models also run in separate calls. Without it, eager attentions of common models
were rejected in 5 to 10 of 10 runs in float16; with it in none of 36."""


def size(name: str, low: int = 1, high: int = 8192, multiple_of: int = 1, long: int = 0) -> Dim:
    """A dim whose range the shape category sets, within [low, high]; ``long`` as ``Dim`` has it."""
    return Dim(name=name, low=low, high=high, multiple_of=multiple_of, long=long)


MOST_NAMED = 1 << 17
"""Most rows of a table, or classes, that an index names: beyond what 16 bits hold, as vocabularies are."""


MOST_STEPS = 1 << 11
"""Most steps of a recurrence whose reference goes step by step, in one secret case of little else."""


def fixed(name: str, low: int = 1, high: int = 8, multiple_of: int = 1) -> Dim:
    """A dim (batch, heads, kernel width) sampled from [low, high] whatever the shape category is."""
    return Dim(name=name, low=low, high=high, multiple_of=multiple_of, scaled=False)


ROWS: tuple[Dim, ...] = (size("M"), size("N"))
"""Dims of elementwise and row-wise operators: M rows of N elements."""

LONG_ROWS: tuple[Dim, ...] = (size("M"), size("N", long=MOST_NAMED))
"""``ROWS`` of operators whose rows may be a vocabulary or a plane, in one secret case of few rows."""

MOST_COUNTED = 1 << 17
"""Longest row of operators that count, which are judged where a counter of 16 bits wraps."""

COUNTED_ROWS: tuple[Dim, ...] = (size("M"), size("N", high=MOST_COUNTED))
"""``ROWS`` of such operators."""


def data(
    name: str, shape: str, fan_in: str = "", *, values: Values = "normal", differentiable: bool = True, **more: Any
) -> Arg:
    """An argument that follows the case's distribution and layout; ``more`` as ``Arg`` has it."""
    return Arg(name=name, shape=shape, values=values, fan_in=fan_in, differentiable=differentiable, **more)


def weight(
    name: str, shape: str, fan_in: str = "", values: Literal["normal", "ones_normal", "variance"] = "normal"
) -> Arg:
    """A differentiable parameter: standard values, scaled by the fan-in so that outputs stay near unit scale."""
    return Arg(name=name, shape=shape, role="weight", values=values, fan_in=fan_in, differentiable=True)


def gain(name: str, shape: str) -> Arg:
    """A weight about 1 by which normalised numbers are multiplied; some are 0 beside ``outlier`` data."""
    return replace(weight(name, shape, values="ones_normal"), vanishes=True)


def bias(shape: str) -> Arg:
    """A differentiable additive parameter called ``bias``, N(0, 1)."""
    return weight("bias", shape)


def products_below(left: Arg, right: Arg, *, over: str) -> tuple[Arg, Arg]:
    """Two arguments whose sums of products, of so many terms, are about :data:`FAR_BELOW` under ``common``."""
    common = f"sqrt({-FAR_BELOW} / max(1, {over}))"
    return replace(left, common=common), replace(right, common=f"-{common}")


def index(name: str, shape: str, high: int | str, low: int | str = 0, **more: Any) -> Arg:
    """Integers (int64) in [low, high); ``more`` as ``Arg`` has it: ``summed`` where what is at equal ones is added up,
    ``lengths`` where they say where sequences end.
    """
    return Arg(name=name, shape=shape, role="index", values="integers", low=low, high=high, dtype="int64", **more)


def whole(name: str, shape: str, low: int | str, high: int | str, dtype: str = "", **more: Any) -> Arg:
    """Whole numbers in [low, high) that follow the case's layout, of the case's dtype unless another is given; ``more``
    as ``Arg`` has it.
    """
    return Arg(name=name, shape=shape, values="integers", low=low, high=high, dtype=dtype, **more)


def bits(name: str, shape: str) -> Arg:
    """Whole numbers over all of the case's dtype that follow the case's layout."""
    return Arg(name=name, shape=shape, values="bits")


def flags(name: str, shape: str) -> Arg:
    """Booleans that follow the case's layout."""
    return Arg(name=name, shape=shape, values="bool", dtype="bool")


def mask(name: str, shape: str) -> Arg:
    """Flags (bool), True where an element takes part; at least four in every row (last dim) of as many."""
    return Arg(name=name, shape=shape, role="mask", values="bool", dtype="bool")


def plain(name: str, value: Any = None, *, formula: str = "", among: Iterable[float | str] = ()) -> Plain:
    """A number or flag, or a formula that gives one; ``among`` as ``Plain`` has it."""
    return Plain(name=name, value=value, formula=formula, among=tuple(among))


def nonempty(dims: Iterable[Dim], *may: str) -> str:
    """The formula that no dim is 0 but those that ``may`` be."""
    names = [dim.name for dim in dims if dim.name not in may]
    return f"min({', '.join(names)}) > 0" if len(names) > 1 else f"{names[0]} > 0"


def _output(position: int, text: str) -> Arg:
    shape, _, dtype = text.partition(":")
    return Arg(name=f"out{position}", shape=shape, role="output", dtype=dtype.strip())


@dataclass(frozen=True, kw_only=True)
class _Own:
    """What an operator's table says beyond the fields of :class:`Table`, :class:`Tolerance` and :class:`Task`."""

    args: tuple[Arg | Plain, ...]
    """The arguments, in the order of the call."""
    out: tuple[str, ...]
    """Shapes of the outputs; ``"M: int64"`` where the dtype is not the case's."""
    flops: str
    """Operations of one forward call."""
    in_type: bool = True
    """Whether the calls of ``unfused`` keep what is between them in half types."""
    rows: tuple[str, ...] = ()
    """Which of ``ROW_DISTRIBUTIONS`` it is judged in."""
    without: tuple[str, ...] = ()
    """Distributions left out, because the operator is ill-conditioned or overflows there."""
    nonfinite: bool | Nonfinite = "nan"
    """What arguments have under ``nonfinite``, unless they say it themselves. True: ``"ieee"``, because IEEE arithmetic
    defines the output for infinities and NaN; False: ``"none"``."""
    nan_signs: bool = True
    """Whether the NaN of most rows have their sign bit set. Not where the operator reads it, nor where the reference
    sorts: sorts by bits on GPUs put such a NaN at the wrong end, and so does ``torch.topk`` from 33 elements on."""
    extreme: Extreme = False
    """Whether large and small data reach the ends of the range (``TensorSpec.extreme``)."""
    epsilon: float = 0.0
    """Size of rows that small data come down to (``TensorSpec.epsilon``)."""
    epsilon_backward: bool = True
    """Whether they do backward: not where PyTorch's gradient is another than that of the formula there."""
    index_output: bool = False
    """Whether the outputs are indices, judged by the elements that they select."""
    exact: bool = False
    """Whether outputs must be equal to the reference's, because nothing is computed or what is has no rounding."""
    group: str = ""
    """One of ``records.GROUPS``; empty: what the category has."""
    complexity: int = 0
    """K of the rubric; 0: what the category has."""

    def arguments(self, no_backward: str) -> tuple[Arg | Plain, ...]:
        """The arguments with what the whole operator says of each."""
        usual: Nonfinite = self.nonfinite if isinstance(self.nonfinite, str) else "ieee" if self.nonfinite else "none"
        tensors = [a for a in self.args if isinstance(a, Arg)]
        row = next((a for a in tensors if a.role == "data"), None) if not any(a.along for a in tensors) else None
        single = not any(text.partition(":")[0].split() for text in self.out)

        def whole(arg: Arg) -> Arg:
            along = arg.shape.split()[-1] if self.rows and arg is row else arg.along
            arg = replace(arg, nonfinite=arg.nonfinite or usual, along=along, extreme=arg.extreme or self.extreme)
            arg = replace(arg, nan_signs=arg.nan_signs and self.nan_signs)
            if single and arg.nonfinite == "masked_nan":
                arg = replace(arg, nonfinite="masked_apart")
            if self.epsilon and arg.role == "data":
                arg = replace(arg, epsilon=self.epsilon, epsilon_backward=self.epsilon_backward)
            return replace(arg, differentiable=False) if no_backward else arg

        return tuple(whole(a) if isinstance(a, Arg) else a for a in self.args)

    def distributions(self) -> tuple[str, ...]:
        """Those in which the operator is judged."""
        tensors = [a for a in self.args if isinstance(a, Arg)]
        discrete = all(a.values in ("integers", "bits", "bool") for a in tensors if a.role == "data")
        known = _DISCRETE if discrete else _DISTRIBUTIONS
        some = self.nonfinite or any(a.nonfinite for a in tensors)
        kept = (d for d in known if d not in self.without and (some or d != "nonfinite"))
        return (*kept, *(("common",) if any(a.common for a in tensors) else ()), *self.rows)

    def kind(self, law: Law | None) -> Any:
        """``Tolerance.kind``."""
        if law is not None:
            return "random"
        return "index" if self.index_output else "exact" if self.exact else "float"


def _part(record: type, declared: dict[str, Any]) -> dict[str, Any]:
    """Takes the fields of a record out of what is declared."""
    return {f.name: declared.pop(f.name) for f in fields(record) if f.name in declared}


def operator(
    name: str,
    category: str,
    summary: str,
    *,
    dims: tuple[Dim, ...],
    common_relations: Iterable[Relation] = (),
    relations: Iterable[Relation] = (),
    **declared: Any,
) -> Task:
    """A task from the fields of :class:`_Own`, ``Table``, ``Tolerance`` and ``Task``; ``common_relations`` are those of
    every operator that a short form declares, and come first. ``where`` alone says which dims may be 0 in empty cases.

    Raises:
        UsageError: a formula is none, or it or a shape names what is no dim; with the task, the place and the formula.
        TypeError: a field is missing or unknown.
    """
    own = _Own(**_part(_Own, declared))
    made = Table(
        task=name,
        args=own.arguments(declared.get("no_backward", "")),
        outputs=tuple(_output(i, text) for i, text in enumerate(own.out)),
        flops=own.flops,
        **_part(Table, declared),
    )
    table = _checked(made, dims)
    tolerance = Tolerance(
        kind=own.kind(declared.get("law")),
        reduction=table.function("reduction") if table.reduction else None,
        gathered=table.function("gathered") if table.gathered else None,
        kept=_KEPT if declared.get("unfused") and own.in_type else 0.0,
        **_part(Tolerance, declared),
    )
    return Task(
        name=name,
        category=category,
        summary=summary,
        dims=dims,
        table=table,
        arguments=table.arguments,
        flops=table.function("flops"),
        bytes=table.bytes,
        group=own.group or _GROUP[category],
        complexity=own.complexity or _COMPLEXITY.get(category, 1),
        tolerance=tolerance,
        constraint=table.function("where") if table.where else None,
        distributions=own.distributions(),
        relations=(*common_relations, *relations),
        **_USUAL | declared,
    )


def _checked(table: Table, dims: tuple[Dim, ...]) -> Table:
    """The table, once every formula in it is one and has known names; of derived names it keeps those that it uses."""
    task = f"task {table.task}"
    used: dict[str, str] = {}
    for place, formula in _formulas(table):
        used |= dict.fromkeys(formula_names(formula, f"{task}, {place}"), f"{place} = {formula!r}")
    kept: dict[str, str | int] = {}
    for name, formula in reversed(list(table.derive.items())):
        if name in used:
            kept[name] = formula
            place = f"derive {name}"
            used |= dict.fromkeys(formula_names(formula, f"{task}, {place}"), f"{place} = {formula!r}")
    if table.folded:
        used[table.folded] = f"folded = {table.folded!r}"
    known = [*(dim.name for dim in dims), *table.derive]
    for name, place in used.items():
        if name not in known:
            raise UsageError(f"{task}, {place}: {name!r} is no dim; {near(name, known)}")
    return replace(table, derive=dict(reversed(kept.items())))


def _formulas(table: Table) -> Iterator[tuple[str, float | str]]:
    """Where each formula stands, and its text; those of derived names apart. A shape counts as its product."""
    yield "flops", table.flops
    for formula in ("where", "reduction", "gathered"):
        yield formula, getattr(table, formula) or 0
    for arg in (*table.args, *table.outputs):
        place = f"argument {arg.name}"
        if isinstance(arg, Plain):
            yield place, arg.formula or 0
            yield from ((f"{place}: among", one) for one in arg.among)
        else:
            yield f"{place}: shape", product_text(arg.shape)
            yield f"{place}: fan_in", product_text(arg.fan_in)
            yield from ((f"{place}: {bound}", getattr(arg, bound)) for bound in ("low", "high", "common"))
            yield from ((f"{place}: edges", edge) for edge in arg.edges)
