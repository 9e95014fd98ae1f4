"""Tasks: what to solve, and the cases at which it is judged.

Tasks hold callables and stay with the judge; they are never sent to a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from kerneleval.records.arguments import Argument, Dim
from kerneleval.records.plain import OneOf
from kerneleval.records.tables import Table
from kerneleval.records.vocabulary import DISTRIBUTIONS, LAYOUTS, Direction

__all__ = ["Case", "Law", "Relation", "Task", "Tolerance"]


Law = Callable[[Any, Sequence[Any], Callable[[Any], Any]], tuple[Any, Any]]
"""(output, arguments, noise) -> (which elements no draw could give, numbers that are uniform on [0, 1] and independent
if the output was drawn as the task says). Floating arguments come in fp64; ``noise(like)`` is uniform, for outputs
that are discrete (a flag that is 1 with probability p becomes a number above 1 - p, at random there) or rounded."""


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
    gathered: Callable[[Mapping[str, int]], int] | None = None
    """dims -> number of terms of a gradient's longest sum, where that runs over several dims: that of a convolution's
    weights over batch and positions. None: no longer than a dim, the forward sum, or what a broadcast argument gathers.
    """
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
    contract: tuple[float, float, float] = (0.95, 0.05, 0.1)
    """For these: least cosine, largest relative L1 error and largest rms error over the rms, of the outputs against
    those of ``exact_form``, wherever the oracle's own outputs keep to it (KernelBench-X's contract)."""
    outlier_rms: float = 1.0
    """Multiplies the error floor of whole outputs (not of elements) under outliers; say why where it is set."""


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
    """The free dimensions."""
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
    """How outputs are judged."""
    relations: tuple[Relation, ...] = ()
    """Metamorphic relations."""
    constraint: Callable[[Mapping[str, int]], bool] | None = None
    """dims -> whether they are allowed together; None: all are."""
    distributions: tuple[str, ...] = ("standard", "outlier", "large_scale", "small_scale", "constant", "zeros")
    """The distributions that the operator defines (``nonfinite`` only where IEEE semantics say what comes out)."""
    forward_only: tuple[str, ...] = ()
    """Those of the distributions under which gradients are rounding noise; infinities and NaN are always."""
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
    baseline_source: str = ""
    """Python source of the eager baseline, with a callable ``run`` (or a class ``ModelNew``); empty: the built-in
    reference of this name."""
    module: bool = False
    """Whether candidates are modules: class ``ModelNew`` built from ``init_args``, weights revealed by state_dict."""
    build: Callable[[Mapping[str, int], str], Any] | None = None
    """For module tasks: (dims, device) -> a fresh ``ModuleProblem`` (see ``tasks/formats/kernelbench.py``)."""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions in which the task is judged."""
        return ("forward",) if self.no_backward else ("forward", "backward")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One point at which a candidate is judged."""

    task: str
    """Task name."""
    direction: Direction
    """``forward``, or ``backward``: gradients of all differentiable arguments from arguments and upstream gradients."""
    dims: tuple[tuple[str, int], ...]
    """(name, value) pairs in the task's order; :attr:`dims_map` is the same as a dict."""
    dtype: str
    """Data type of the data arguments."""
    layout: Annotated[str, OneOf(LAYOUTS)] = "contiguous"
    """One of :data:`LAYOUTS`."""
    distribution: Annotated[str, OneOf(DISTRIBUTIONS)] = "standard"
    """One of :data:`DISTRIBUTIONS`."""
    shape_category: str = "medium"
    """The category from which the dims were sampled; ``edge``; ``given``; or ``real:`` and the name of a model's shape.
    """

    @property
    def dims_map(self) -> dict[str, int]:
        """The dims as a dict."""
        return dict(self.dims)

    @property
    def key(self) -> str:
        """Readable identity: ``gelu/forward/M=4,N=7/float32/contiguous/standard``."""
        dims = ",".join(f"{n}={v}" for n, v in self.dims)
        return "/".join((self.task, self.direction, dims, self.dtype, self.layout, self.distribution))
