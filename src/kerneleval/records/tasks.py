"""Tasks: what to solve, the table that a task is made from, and the cases at which it is judged.

A table gives shapes in names of dims, and formulas over these names as text (``"2 * M * N * K"``), which are checked
and compiled once and evaluated at given dims. A formula is one Python expression of numbers, names of dims,
arithmetic, comparisons, ``and``, ``or``, ``not``, ``a if b else c`` and the functions in :data:`FUNCTIONS`. Nothing
else is evaluated, so a formula reads no attribute, opens no file and calls no other code.

Tasks hold callables and stay with the judge; they are never sent to a worker.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Annotated, Any, Literal

from kerneleval.records.errors import UsageError
from kerneleval.records.outcomes import Finding
from kerneleval.records.plain import OPTIONAL, OneOf
from kerneleval.records.vocabulary import DISTRIBUTIONS, DTYPES, FAR, LAYOUTS, Direction

__all__ = [
    "FUNCTIONS",
    "MOST_DIMS",
    "Arg",
    "Argument",
    "Case",
    "Dim",
    "Extreme",
    "Folded",
    "Law",
    "Nonfinite",
    "Plain",
    "Relation",
    "Scalar",
    "Sizes",
    "Table",
    "Task",
    "TensorSpec",
    "Tolerance",
    "Values",
    "formula_names",
    "product_text",
]

MOST_DIMS = 5
"""Dims of a tensor at most, where a task takes any number."""

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
    """Values of names: a task's dims, and the names derived from them, each computed once, when it is used."""

    __slots__ = ("_derive", "_place")

    def __init__(self, dims: Mapping[str, int], derive: Mapping[str, str | int], place: str) -> None:
        super().__init__(dims)
        self._derive, self._place = derive, place

    def __missing__(self, name: str) -> Any:
        formula = self._derive[name]  # a KeyError sends the evaluation on to the functions
        value = self[name] = self.value(formula, name)
        return value

    def value(self, formula: str | float, *what: str) -> Any:
        """A formula's value at these dims; a number is its own value. ``what`` is what it gives, for the message: ``x``
        and ``low``. Raises UsageError: it cannot be computed here, as a division by zero cannot.
        """
        if not isinstance(formula, str):
            return formula
        try:
            return eval(_compiled(formula)[0], _GLOBALS, self)
        except (ArithmeticError, ValueError) as error:
            at = ", ".join(f"{name}={value}" for name, value in self.items() if name not in self._derive)
            raise UsageError(f"{self._place}, {': '.join(what)} = {formula!r} at {at}: {error}") from error


def formula_names(formula: str | float, place: str) -> frozenset[str]:
    """The names of dims in a formula; a number has none. ``place`` says what it is of, for the message: ``task conv2d,
    flops``. Raises UsageError: it is no text, no expression, or uses what a formula may not; with place and formula.
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


class Folded(int):
    """The size of a dim that stands for several dims of a tensor, or for none: their product, and each of them."""

    sizes: tuple[int, ...]

    def __new__(cls, sizes: Sequence[int]) -> Folded:
        """From the sizes of these dims, outermost first."""
        made = super().__new__(cls, math.prod(sizes))
        made.sizes = tuple(sizes)
        return made


def _sizes(value: int) -> tuple[int, ...]:
    """The sizes of the dims that one named dim stands for."""
    return value.sizes if isinstance(value, Folded) else (value,)


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One named dimension of a task and the values that it may take."""

    name: str
    """Upper-case letter or short word: ``M``, ``heads``."""
    low: int = 1
    """Smallest value (inclusive). Only a dim that is not scaled may be 0: a padding."""
    high: int = 8192
    """Largest value (inclusive)."""
    multiple_of: int = 1
    """Every sampled value is a multiple of this."""
    scaled: bool = True
    """Whether the shape category sets this dim's range; False: sampled from ``low`` to ``high`` in every category."""
    long: int = 0
    """Largest value in secret cases of which few dims are more than thin; 0: ``high`` there, too."""

    @property
    def least(self) -> int:
        """The smallest value that it may take."""
        return -(-self.low // self.multiple_of) * self.multiple_of


Values = Literal[
    "normal",
    "positive",
    "nonnegative",
    "uniform",
    "symmetric",
    "above_one",
    "special",
    "integers",
    "bits",
    "bool",
    "ones_normal",
    "variance",
    "off_eye",
    "leaning",
    "faint",
    "skew",
    "resized",
    "turned",
    "linked",
    "half_linked",
    "rates",
]
"""Standard values: N(0, 1), |N(0, 1)| + 0.1, the same with exact zeros in ``outlier`` and ``zeros`` data (forward, or
where it has no gradient), U[0, 1), U(-1, 1), 1 + |N(0, 1)|, N(0, 1) of which an eighth is NaN, an eighth infinite and a
sixteenth near the end of the range, integers in [low, high), integers over the whole range of their type, fair coin,
1 + N(0, 0.1), U[0.5, 1.5) (a positive running variance), what makes I + a a regular matrix, or one of which two columns
are nearly a third, U(-1, 1) and columns next to nothing, U(-1, 1) and skew-symmetric matrices of a norm of 8 to 16,
what makes I + a a multiple of a matrix near I, or diag(1, 2, ...) + a a matrix whose eigenvalues are about 1, 2, ...,
U(-1, 1) and matrices with large elements beside the diagonal, where I + a is a triangle or positive definite (all in
``judge/windows/matrices.py``), and ``positive`` ones of which some rows are
up to 2000, or as large as leaves counts of that mean exact in a half type."""


_SCORES = -150.0
"""``TensorSpec.common`` of scores is at most this."""

_WIDE = {"divisors": "divisors of one large number, in all of int8", "shifts": "below the bits of the type"}
"""What ``Arg.wide`` promises by name."""

Extreme = bool | Literal["large", "small", "floors", "rows", "angles"]
"""Whether data reach the ends of the range; ``"large"``, ``"small"``: large or small ones alone; ``"floors"``: small
ones of 1e-9 to 1e-13, of which a kernel may hold the scale at a floor; ``"angles"``: large ones in fp32 go up to some
6,400,000 times a normal number; ``"rows"``: in every second call, all of a large row lies far below 0, or far above: at
1e31, of scores at 3e7, in float16 at 10,900."""

Nonfinite = Literal["ieee", "limits", "infinite", "masked", "masked_nan", "masked_apart", "nan", "channels", "none"]
"""What an argument has under ``nonfinite``:

* ``ieee``: NaN and both infinities, because IEEE arithmetic defines what comes out;
* ``limits``: the same, but nothing is asked where the reference makes NaN of an infinity: right kernels differ there;
* ``masked``: minus infinity over parts of rows, as masks leave it, asked for like ``limits``;
* ``masked_nan``: the same and NaN, rows of nothing but minus infinity among them;
* ``masked_apart``: one of these two from call to call, and with the first no NaN in any argument, since a single row
  that is NaN makes all of the task's outputs so (``define.py``);
* ``nan``: NaN alone, because right kernels differ about infinities;
* ``channels``: NaN alone, over whole channels (an index of the first two dims), because right kernels differ about
  neighbours that weigh next to nothing;
* ``infinite``: both infinities alone, because what PyTorch makes of NaN hangs on its place; asked for like ``limits``;
* ``none``: numbers.
"""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor argument (or output) of a task at given dims and dtype."""

    name: str
    """Argument name, as in the operator's signature."""
    shape: tuple[int, ...]
    """Sizes, outermost first."""
    dtype: str
    """A key of :data:`DTYPES`."""
    role: Literal["data", "weight", "index", "mask", "output", "gradient"] = "data"
    """``weight`` inputs are standard values times ``scale``; beside unusual data they differ in size and sign alone."""
    values: Values = "normal"
    low: int = 0
    """Lower bound of ``integers`` (inclusive)."""
    high: int = 2
    """Upper bound of ``integers`` (exclusive)."""
    wide: int | Literal["divisors", "shifts"] = 0
    """Bits that ``integers`` have in some rows of standard data, or as many as their type has: see ``Arg.wide``."""
    ids: bool = False
    """Whether ``integers`` of role ``data`` have the structures of indices (``docs/inputs.md``), as ids do."""
    equals: str = ""
    """As ``Arg`` has it."""
    summed: bool = False
    """Whether what lies at equal indices is added up, forward, in the case's dtype."""
    lengths: bool = False
    """Whether indices say where sequences end: half of them lie at multiples of 256, or one beside."""
    ignored: str = ""
    """As ``Arg`` has it."""
    scale: float = 1.0
    """Factor on the drawn values (e.g. fan-in ** -0.5 for weights, so that outputs stay near unit scale)."""
    differentiable: bool = False
    """Whether backward cases ask for this argument's gradient."""
    common: float = 0.0
    """The mean of ``common`` data; 0: it is N(0, 1), as in half types where these are no scores."""
    common_signs: bool = False
    """Whether the mean of half of the rows (last dim) of ``common`` data, chosen at random, is the negative of that."""
    apart: tuple[int, ...] = ()
    """Positions of the dims that ``Arg.apart`` names; empty: it names none."""
    large_half: float = 16.0
    """Factor of ``large_scale`` in float16: with 16, products of two inputs stay below its largest number, 65504."""
    large_half_backward: float = 0.0
    """The same for gradients; 0: as forward."""
    nonfinite: Nonfinite = "ieee"
    nan_signs: bool = True
    """As ``Arg`` has it."""
    extreme: Extreme = False
    """Whether ``large_scale`` reaches the end of the range and ``small_scale`` goes where squares underflow, forward;
    by the same factors in all such arguments of one shape. ``"large"``, ``"small"``: one of the two; ``"floors"``:
    small ones of 1e-9 to 1e-13; ``"angles"``: large ones up to 64 times larger, backward too; ``"rows"``: large rows
    (``along``, or the last dim) of one sign instead."""
    divides: bool = False
    """As ``Arg`` has it."""
    multiple_of: str = ""
    """As ``Arg`` has it."""
    epsilon: float = 0.0
    """What the norm of a row (last dim) is held against: some rows of ``small_scale`` data come down to an eighth of
    it; not in float16, which has no such numbers, and backward not in bfloat16. 0: none do."""
    epsilon_backward: bool = True
    """Whether they do so backward, too."""
    even: bool = False
    """As ``Arg`` has it."""
    missing: bool = False
    """As ``Arg`` has it."""
    vanishes: bool = False
    """As ``Arg`` has it."""
    borders: tuple[float, ...] = ()
    """As ``Arg`` has it."""
    beside: bool = False
    """As ``Arg`` has it."""
    unset: bool = False
    """As ``Arg`` has it."""
    idle: bool = False
    """As ``Arg`` has it."""
    reset: float = 0.0
    """As ``Arg`` has it."""
    one_sided: bool | Literal["all"] = False
    """As ``Arg`` has it."""
    nearing: bool = False
    """As ``Arg`` has it."""
    ties: str = ""
    """As ``Arg`` has it."""
    step: float = 0.0
    """As ``Arg`` has it."""
    along: tuple[int, ...] = ()
    """Dims that make up a row of ``ROW_DISTRIBUTIONS``; empty: they leave the argument standard, and ``ordered`` makes
    it 0 where it is ``normal``."""
    edges: tuple[float, ...] = ()
    """First and last edge of the bins in which it is counted and the distance of two: what ``binned`` data lies at.
    Empty: it has none, and ``binned`` leaves it standard."""
    far: float = 1.0
    """Factor on the means of ``far_mean`` rows: a sum's mean is another than that of a term."""
    slow: tuple[float, float] = (1.0, 0.0)
    """Factor on, and number added to, standard values under ``long_memory``: what brings a decay near 1."""

    @property
    def scores(self) -> bool:
        """Whether they are what exponentials are taken of, which ``common`` data have far below zero; not queries or
        keys, of which half types may keep the products in the type, nor the argument of ``log_ndtr``.
        """
        return self.common <= _SCORES

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes when contiguous."""
        return self.numel * DTYPES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """One plain argument of a task: a number, flag, string or list of ints; the same at every call of a case."""

    name: str
    """Argument name, as in the operator's signature."""
    value: Any
    among: tuple[float, ...] = ()
    """As ``Plain`` has it."""


Argument = TensorSpec | Scalar


@dataclass(frozen=True, kw_only=True)
class Arg:
    """One tensor argument or output, with its shape still in names."""

    name: str
    shape: str
    role: Literal["data", "weight", "index", "mask", "output"] = "data"
    values: Values = "normal"
    fan_in: str = ""
    """Names of the dims summed over; the values are scaled by (their product) ** -0.5."""
    low: int | str = 0
    """A number or a formula, as ``high`` and ``common``."""
    high: int | str = 2
    wide: int | Literal["divisors", "shifts"] = 0
    """Of ``integers`` in an integer type: in some rows of standard data they have up to so many bits, or all those of
    their type, and no other bound. ``"divisors"``: there they divide one number of the type, and so does the
    least common multiple of any two; in int8 in all rows. ``"shifts"``: they are below the bits of their type there. 0:
    they are in [low, high) everywhere."""
    ids: bool = False
    equals: str = ""
    """Name of an argument before it of which some rows (last dim) are rows of this one too, backward, where a distance
    is 0 and a formula for its gradient may be 0 / 0."""
    summed: bool = False
    lengths: bool = False
    ignored: str = ""
    """Name of a plain argument: elements that equal it do not count. A secret eighth or half of the indices do, be it
    within their bounds or not."""
    dtype: str = ""
    """Empty: the case's dtype."""
    differentiable: bool = False
    nonfinite: Nonfinite | Literal[""] = ""
    """Empty: what the operator has."""
    nan_signs: bool = True
    """Whether the NaN of most rows have their sign bit set, as 0 / 0 has on x86."""
    extreme: Extreme = False
    divides: bool = False
    """Whether it divides what a remainder is left of. Its ``small_scale`` numbers are 2^26 times smaller forward: fp32
    does not hold such quotients, and the remainder is exact all the same. Not in float16."""
    multiple_of: str = ""
    """Name of the argument by which it is divided before the quotient is cut to a whole number. A quarter of the
    standard data are whole multiples of it, exactly; in float64 alone, since Triton's division is not rounded right in
    fp32."""
    epsilon: float = 0.0
    epsilon_backward: bool = True
    even: bool = False
    """Whether some rows (last dim) are scores of which 2^k are 0 and the others far below: their softmax is exact in
    every arithmetic. The share that goes with such a row (an argument of as many rows) equals a sum of them."""
    borders: tuple[float, ...] = ()
    """Numbers up to which, or from which on, the formula has another term. A quarter of the standard data is equal to
    one of them, in every type exactly; backward not where that is the 0 at which the range begins."""
    idle: bool = False
    """Whether one row in eight (last dim) of standard data is 0, in all such arguments the same; not in float16. In
    half of these rows gradients are as small as an epsilon instead."""
    beside: bool = False
    """Whether the type's next numbers on either side of a border are given, too (not beside 0): right kernels compare
    the argument itself with it, and nothing that is rounded."""
    unset: bool = False
    """Whether all of it is 0 in half of the standard calls, as a parameter that is initialised to 0, beside gradients
    that are not."""
    reset: float = 0.0
    """What a gate is where a state is forgotten: one in 64 of the standard data of half types. In fp32 half of the
    gates of the last step (``along``) are, and no others: after such a gate, honest kernels that take differences of
    running sums lose digits. So is the score of a router's expert, of which exp overflows. 0: none is."""
    missing: bool = False
    """Whether the gradient of NaN, of both infinities where ``nonfinite`` is ``ieee``, and of what is beside them is
    defined: they are among some of the data backward."""
    vanishes: bool = False
    """Whether one in 16 of its elements is exactly 0 beside ``outlier`` data, as pruning and merging leave gains; of a
    weight that is no gain, one in 16 rows and columns as a whole."""
    nearing: bool = False
    """Whether ``small_scale`` data are up to 64 times larger, forward, by a factor secret in each call: a series may be
    cut off too soon between 0.001 and 1."""
    one_sided: bool | Literal["all"] = False
    """Whether in a quarter of the rows (last dim) of standard data all numbers have one sign, at some distance from 0:
    of quantisers with a zero point, and of what takes a row's extremes. ``"all"``: all rows, in half of the calls."""
    ties: str = ""
    """Name of the argument by which it is divided before it is rounded. In half of the standard cases that is a power
    of two (a plain one always), and a quarter of the elements lie half way between two whole multiples of it, in every
    arithmetic."""
    step: float = 0.0
    """Data are whole multiples of it, or of its product with their scale: numbers that are not equal are so far apart
    that their exponentials in fp32 are in the same order. 0: any numbers."""
    along: str = ""
    """Names of the dims that make up a row, as in ``TensorSpec``; empty in a task of ``ROW_DISTRIBUTIONS`` where no
    argument has any: the last dim of the first argument of role ``data``."""
    edges: tuple[float | str, ...] = ()
    """Numbers or formulas, as in ``TensorSpec``."""
    far: float = 1.0
    slow: tuple[float, float] = (1.0, 0.0)
    common: float | str = 0.0
    common_signs: bool = False
    apart: str = ""
    """Names of the dims along which keys of attention come in a secret order, in every second call of ``common`` data
    in fp32, forward, if there are at most 1,536. Every query (an argument with ``common_signs``) is 1,024 times larger
    then: by the scale ``D ** -0.5`` its scores are 46,000 or more, or as far below 0. One key has all the weight."""
    large_half: float = 16.0
    large_half_backward: float = 0.0

    @property
    def wide_text(self) -> str:
        """What ``wide`` and ``ignored`` promise, to follow the bounds: ``, in some rows of all bits``; may be empty."""
        if self.ignored:
            return f", or {self.ignored}"
        if isinstance(self.wide, str):
            return f", in some rows {_WIDE[self.wide]}"
        which = "of any bits of the type" if self.wide == 64 else f"of up to {self.wide} bits, if the type has them"
        return f", in some rows {which}" if self.wide else ""

    def shape_at(self, sizes: Sizes) -> tuple[int, ...]:
        """Its sizes at given dims, outermost first."""
        return tuple([size for name in self.shape.split() for size in _sizes(sizes[name])])

    def _places(self, names: str, sizes: Sizes) -> tuple[int, ...]:
        """Positions of the named dims in the shape."""
        every = [name for name in self.shape.split() for _ in _sizes(sizes[name])]
        return tuple([place for name in names.split() for place, own in enumerate(every) if own == name])

    def at(self, sizes: Sizes, dtype: str) -> TensorSpec:
        """The argument at given dims and dtype."""
        return TensorSpec(
            name=self.name,
            shape=self.shape_at(sizes),
            dtype=self.dtype or dtype,
            role=self.role,
            values=self.values,
            low=sizes.value(self.low, self.name, "low"),
            high=sizes.value(self.high, self.name, "high"),
            wide=self.wide,
            ids=self.ids,
            equals=self.equals,
            summed=self.summed,
            lengths=self.lengths,
            ignored=self.ignored,
            scale=max(1, math.prod([sizes[name] for name in self.fan_in.split()])) ** -0.5,
            differentiable=self.differentiable,
            nonfinite=self.nonfinite or "ieee",
            nan_signs=self.nan_signs,
            extreme=self.extreme,
            divides=self.divides,
            multiple_of=self.multiple_of,
            epsilon=self.epsilon,
            epsilon_backward=self.epsilon_backward,
            even=self.even,
            missing=self.missing,
            vanishes=self.vanishes,
            borders=self.borders,
            beside=self.beside,
            unset=self.unset,
            idle=self.idle,
            reset=self.reset,
            one_sided=self.one_sided,
            nearing=self.nearing,
            ties=self.ties,
            step=self.step,
            along=self._places(self.along, sizes),
            edges=tuple([float(sizes.value(edge, self.name, "edges")) for edge in self.edges]),
            far=self.far,
            slow=self.slow,
            common=sizes.value(self.common, self.name, "common"),
            common_signs=self.common_signs,
            apart=self._places(self.apart, sizes),
            large_half=self.large_half,
            large_half_backward=self.large_half_backward,
        )


@dataclass(frozen=True, kw_only=True)
class Plain:
    """One plain argument: a value, or a formula that gives it."""

    name: str
    value: Any = None
    formula: str = ""
    among: tuple[float | str, ...] = ()
    """Other numbers, or formulas that give whole ones, that it takes at secret sizes: its value is not part of what the
    operator is. Empty: a whole number keeps its value, and a floating one varies by a factor. A floating one that has
    some varies by a factor half of the time; never, if its usual value is named here too.
    """

    @property
    def among_text(self) -> str:
        """What ``among`` promises: ``usually 2, or another whole number such as 0 or 9``; empty where there is none."""
        kind = "number" if isinstance(self.value, float) else "whole number"
        if not self.among:
            return ""
        formulas = any(isinstance(one, str) for one in self.among)
        *first, last = dict.fromkeys(self.among if formulas else (min(self.among), max(self.among)))
        others = f"{', '.join(map(str, first))} or {last}" if first else str(last)
        return f"usually {self.formula or self.value}, or another {kind} such as {others}"

    def at(self, sizes: Sizes, dtype: str) -> Scalar:
        """The argument at given dims."""
        value = sizes.value(self.formula, self.name) if self.formula else self.value
        among = tuple(
            one if isinstance(one, float) else int(sizes.value(one, self.name, "among")) for one in self.among
        )
        return Scalar(name=self.name, value=value, among=among)


_MOST_KNOWN = 64
"""Dims at which a task keeps its arguments."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a task is made from. Every formula is a text, as ``records/tasks.py`` reads it; empty: there is none."""

    task: str = ""
    args: tuple[Arg | Plain, ...] = ()
    outputs: tuple[Arg, ...] = ()
    derive: Mapping[str, str | int] = field(default_factory=dict)
    """Names that are no dims of their own, each a formula of dims and of the names before it."""
    flops: str = ""
    """Operations of one forward call."""
    where: str = ""
    """Which dims are allowed together."""
    reduction: str = ""
    """Terms summed into one output element."""
    gathered: str = ""
    """Terms of a gradient's longest sum."""
    folded: str = ""
    """Name of the dim that stands for any number of dims in all shapes, so that the first argument may have 1 to
    ``MOST_DIMS`` dims: ``M`` of ``(M, N)``, where the reference takes ``(N,)`` and ``(A, B, N)`` too. Empty: none."""
    _known: dict[tuple[object, ...], tuple[Argument, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The arguments at the dims last asked for: a verdict asks some hundred times."""

    @property
    def folded_text(self) -> str:
        """What ``folded`` promises: ``x may have 1 to 5 dims: M is the product of several sizes, as in [M1, M2, N], or
        of none, as in [N]``. Empty where ``folded`` is.
        """
        if not self.folded:
            return ""
        first = next(arg for arg in self.args if isinstance(arg, Arg))
        names, place = first.shape.split(), first.shape.split().index(self.folded)
        more, none = ([*names[:place], *of, *names[place + 1 :]] for of in ((f"{self.folded}1", f"{self.folded}2"), ()))
        return (
            f"{first.name} may have {len(none)} to {MOST_DIMS} dims: {self.folded} is the product of several sizes, as "
            f"in [{', '.join(more)}], or of none, as in [{', '.join(none)}]"
        )

    def sizes(self, dims: Mapping[str, int]) -> Sizes:
        """Values of all names at given dims."""
        return Sizes(dims, self.derive, f"task {self.task}")

    def arguments(self, dims: Mapping[str, int], dtype: str) -> tuple[Argument, ...]:
        """The arguments at given dims and dtype."""
        key = dtype, *dims.items(), *map(_sizes, dims.values())  # dims that were folded differ where products do not
        if (known := self._known.get(key)) is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            sizes = self.sizes(dims)
            known = self._known[key] = tuple([arg.at(sizes, dtype) for arg in self.args])
        return known

    def bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """Bytes of every argument and output."""
        sizes = self.sizes(dims)
        tensors = [*(arg for arg in self.args if isinstance(arg, Arg)), *self.outputs]
        return sum(math.prod(arg.shape_at(sizes)) * DTYPES[arg.dtype or dtype] for arg in tensors)

    def argument_bytes(self, dims: Mapping[str, int], dtype: str) -> tuple[int, int]:
        """Bytes of the arguments, and of those that have gradients: of :meth:`arguments`, which take longer to make."""
        sizes, given, differentiable = self.sizes(dims), 0, 0
        for arg in self.args:
            if isinstance(arg, Arg):
                nbytes = math.prod(arg.shape_at(sizes)) * DTYPES[arg.dtype or dtype]
                given += nbytes
                differentiable += nbytes * arg.differentiable
        return given, differentiable

    def function(self, what: str) -> Callable[[Mapping[str, int]], Any]:
        """One of the formulas, by its field's name, as a function of the dims."""
        formula = getattr(self, what)
        return lambda dims: self.sizes(dims).value(formula, what)


Law = Callable[[Any, Sequence[Any], Callable[[Any], Any]], tuple[Any, ...]]
"""(output, arguments, noise) -> (which elements no draw could give, numbers that are uniform on [0, 1] and independent
if the output was drawn as the task says). Floating arguments come in fp64; ``noise(like)`` is uniform, for outputs
that are discrete (a flag that is 1 with probability p becomes a number above 1 - p, at random there) or rounded. A
third tensor may hold the logarithms of likelihood ratios: of distributions that kernels draw from instead, against the
right one."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How outputs are judged; see ``docs/correctness.md`` for the bounds that follow from it."""

    kind: Literal["float", "exact", "index", "random"] = "float"
    """``float``: error against the fp64 oracle; ``exact``: equal (outputs; gradients are judged as ``float``);
    ``index``: an index is right when the element that it selects equals the one that the oracle selects (ties are
    free); ``random``: by distribution, see ``law``."""
    law: Law | None = None
    """Of operators that draw: how their output is distributed. Such a task has an argument ``seed``, int64 with one
    element, and one output."""
    reduction: Callable[[Mapping[str, int]], int] | None = None
    """dims -> number of terms summed into one output element; None: 1."""
    guessed: bool = False
    """Whether that number is no more than a guess, as for a file of which nothing says what it sums."""
    gathered: Callable[[Mapping[str, int]], int] | None = None
    """dims -> number of terms of a gradient's longest sum, where that runs over several dims: that of a convolution's
    weights over batch and positions. None: no longer than a dim, the forward sum, or what a broadcast argument gathers.
    """
    placed: bool = False
    """Whether values say where terms of a gradient are added up: under other than standard data they crowd, and a sum
    may have all ``gathered`` terms."""
    factor: float = 1.0
    """Multiplies the error floor, for operators with ill-conditioned steps; say why where it is set."""
    normwise: bool = False
    """Whether an element may be off by what the largest elements of the output may: fast algorithms for matrix products
    (Strassen) and convolutions (Winograd, FFT) are stable in the norm, not element by element (Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd ed., ch. 23)."""
    kept: float = 0.0
    """Times the largest floor of the output that an element of a gradient may be off in half types, for operators of
    which kernels keep a step in the type: what that leaves does not follow the size of a row's gradient."""
    exact_form: Callable[..., Any] | None = None
    """For operators that quantise: the same without it. A candidate must be nearer to the quantised oracle than half of
    the distance between the two, so that the error of the quantisation, and no other, is in the result."""
    unbiased: bool = False
    """Of these: whether the mean error is asked for. Not where products are made in fp8, whose accumulators tensor
    cores cut to 14 bits, where kernels may quantise what they compute by blocks, or where one scale, which may be kept
    in half precision, is in all of the output."""
    contract: tuple[float, float, float] = (0.95, 0.05, 0.1)
    """For these: least cosine, largest relative L1 error and largest rms error over the rms, of the outputs against
    those of ``exact_form``, wherever the oracle's own outputs keep to it (KernelBench-X's contract)."""
    drifts: bool = False
    """Whether exponentials are summed: beside an outlier those just below half a step of the sum are all lost, and a
    sum in turn drifts as one of equal terms does."""
    kinks: Literal["", "free", "between"] = ""
    """What gradients may be where they jump, at ties and kinks: what the reference has (empty), any number of the
    gradient's size (of operators composed of others, where the formula names no convention), or any number between the
    slopes of both sides (where each element has a kink of its own)."""
    stable: bool = False
    """Whether orders are exact: the problem file sorts with ``stable=True``, and selects nothing otherwise."""
    rms: float = 1.0
    """Multiplies the error floor of whole outputs (not of elements); say why where it is set."""
    outlier_rms: float = 1.0
    """The same under outliers, where it is larger."""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A metamorphic relation: outputs on transformed inputs follow from outputs on the original ones."""

    name: str
    """Slug, unique within the task: ``row_permutation``."""
    transform: Callable[[Sequence[Any], Any], Sequence[Any]]
    """(arguments, generator) -> transformed arguments; the generator is a ``torch.Generator`` on the tensors' device,
    seeded alike for ``transform`` and ``expect``. Must keep shapes and dtypes."""
    expect: Callable[[Sequence[Any], Sequence[Any], Any], Sequence[Any]]
    """(outputs on the original, original arguments, generator) -> the outputs expected on the transformed."""
    holds: Callable[[str, str], bool] | None = None
    """(dtype, distribution) -> whether the relation is to be checked there; None: standard data only, in float32 or,
    where the task has none, in its first type that is no half one."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One operator to solve, with parameterised shapes. The reference is plain PyTorch and must run in fp64 too."""

    name: str
    """Unique slug: ``layer_norm``."""
    category: str
    """One of :data:`CATEGORIES`."""
    source: str
    """Where the operator comes from: ``aten``, ``model``, ``kernelbench`` ..."""
    level: int
    """1 one operator, 2 a fusion, 3 a model."""
    summary: str
    """One line with the formula."""
    dims: tuple[Dim, ...]
    dtypes: tuple[str, ...]
    """Data types in which the task is judged, the default one first."""
    arguments: Callable[[Mapping[str, int], str], tuple[Argument, ...]]
    """(dims, dtype) -> the arguments, in the order of the call."""
    reference: Callable[..., Any]
    """The operator in plain PyTorch: tensor or tuple of tensors from the arguments, in order."""
    flops: Callable[[Mapping[str, int]], int]
    """dims -> floating-point operations of one forward call (multiply and add count as two)."""
    bytes: Callable[[Mapping[str, int], str], int]
    """(dims, dtype) -> the fewest bytes that one forward call must move: inputs once, outputs once."""
    table: Table = field(default_factory=Table)
    """What it was made from, with shapes and formulas as text; empty for tasks that are read from peers' files."""
    group: str = ""
    """One of :data:`GROUPS`; empty: none of them."""
    complexity: int = 1
    """K of the Standard Kernel Rubric: 1 simple and bound by memory, 2 structured primitives, 3 dense core linear
    algebra, 4 frontier."""
    tolerance: Tolerance = field(default_factory=Tolerance)
    relations: tuple[Relation, ...] = ()
    constraint: Callable[[Mapping[str, int]], bool] | None = None
    """dims -> whether they are allowed together; None: all are."""
    distributions: tuple[str, ...] = ("standard", "outlier", "large_scale", "small_scale", "constant", "zeros")
    """The distributions that the operator defines (``nonfinite`` only where IEEE semantics say what comes out)."""
    forward_only: tuple[str, ...] = ()
    """Those of the distributions under which gradients are rounding noise, or take seconds; infinities and NaN are
    always."""
    layouts: tuple[str, ...] = LAYOUTS
    """The layouts in which its data arguments are given."""
    empty: bool = False
    """Whether the operator is defined when a dimension is 0."""
    in_place: tuple[str, ...] = ()
    """Names of arguments that the operator may change; empty: none."""
    unfused: tuple[Callable[..., Any], ...] = ()
    """The operator as separate PyTorch calls, in the ways that are usual, where the reference is one fused kernel: what
    is usual is as good as the reference. The native error is the largest of theirs, in half types of the last two's,
    else of the first two's.
    """
    backward_dtypes: tuple[str, ...] = ()
    """Those of the dtypes in which gradients are judged; empty: all."""
    no_backward: str = ""
    """Why there is no backward; empty: backward is judged for every differentiable argument."""
    case_dims: tuple[tuple[str, dict[str, int]], ...] = ()
    """Fixed (shape category, dims) pairs instead of sampling, for tasks read from a peer's file."""
    findings: tuple[Finding, ...] = ()
    """What every verdict on it must say: what could not be judged, and why."""
    baseline_source: str = ""
    """Python source of the eager baseline: a user's file with ``TASKS``, or of a problem file, with a class ``Model``;
    empty: the built-in reference of this name."""
    module: bool = False
    """Whether candidates are modules: class ``ModelNew`` built from ``init_args``, weights revealed by state_dict."""
    build: Callable[[Mapping[str, int], str], Any] | None = None
    """For module tasks: (dims, device) -> a fresh ``ModuleProblem`` (see ``tasks/formats/kernelbench.py``)."""

    @property
    def least_dims(self) -> dict[str, int]:
        """Every dim at its smallest, whether they are allowed together or not."""
        return {dim.name: dim.least for dim in self.dims}

    def is_empty(self, dims: Mapping[str, int]) -> bool:
        """Whether a dim is 0 that is 0 in empty cases alone, as a padding is not."""
        return any(dims.get(dim.name, 1) == 0 < dim.least for dim in self.dims)

    def allows(self, dims: Mapping[str, int]) -> bool:
        """Whether these dims are allowed together."""
        return self.constraint is None or bool(self.constraint(dims))

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions in which the task is judged."""
        return ("forward",) if self.no_backward else ("forward", "backward")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One point at which a candidate is judged."""

    task: str
    direction: Direction
    """``forward``, or ``backward``: gradients of all differentiable arguments from arguments and upstream gradients."""
    dims: tuple[tuple[str, int], ...]
    """(name, value) pairs in the task's order; :attr:`dims_map` is the same as a dict."""
    dtype: str
    """Data type of the data arguments."""
    layout: Annotated[str, OneOf((*LAYOUTS, FAR))] = "contiguous"
    """One of :data:`LAYOUTS`; or :data:`FAR`."""
    distribution: Annotated[str, OneOf(DISTRIBUTIONS)] = "standard"
    """One of :data:`DISTRIBUTIONS`."""
    shape_category: str = "medium"
    """The category from which the dims were sampled; ``edge``; ``given``; or ``real:`` and the name of a model's shape.
    """
    folds: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=OPTIONAL)
    """Of a dim that stands for several dims, or none, its name and their sizes (``Table.folded``); their product is
    among ``dims``."""

    @property
    def dims_map(self) -> dict[str, int]:
        """The dims as a dict; one that stands for several is ``Folded``."""
        return dict(self.dims) | {name: Folded(sizes) for name, sizes in self.folds}

    @property
    def key(self) -> str:
        """Readable identity: ``gelu/forward/M=4,N=7/float32/contiguous/standard``; ``M=2x3`` or ``M=none`` where it
        stands for several dims or for none.
        """
        return "/".join(
            (self.task, self.direction, ",".join(self.dims_texts), self.dtype, self.layout, self.distribution)
        )

    @property
    def dims_texts(self) -> list[str]:
        """Each dim as the key has it."""
        folds = {name: "x".join(map(str, sizes)) or "none" for name, sizes in self.folds}
        return [f"{name}={folds.get(name, value)}" for name, value in self.dims]
