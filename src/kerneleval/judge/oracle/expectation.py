"""What must come out of a call: the numbers of the correctness rule, and the records of an expectation.

The rule itself stands in ``docs/correctness.md``; every constant here is explained there, and measured in
``tests/judge/test_comparison.py``. ``reference.py`` makes expectations, ``comparison.py`` compares outputs with them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from kerneleval.records import Case, Law, Task, TensorSpec, Tolerance

NATIVE = 2.0
"""A candidate's rms error may be this many times the native reference's."""

_NATIVE_ELEMENT = 4.0
"""In fp32 and fp64 an element's error may be this many times the largest native one of its row: where a row depends on
one rounded number (the sum that normalises it), native's may be small by luck. Narrower types are off by thousands. In
half types so under outliers, where a row depends on a few rounded scores: attention that scales queries and keys before
their product, no further off than eager PyTorch, was rejected in 1 of 150 cases."""

ELEMENT = 8.0
"""An element's error may be this many times the floor there; also of the largest native error and of the rms floor."""

SPREAD = 4.0
"""... plus this many times the native rms error over the whole output."""

BULK_SHARE = 0.25
"""Share of the elements that may lie beyond their own floor and rest on the slack of their row."""

EXPLAINED = 0.5
"""A candidate must be nearer to the oracle than this share of a trivial answer's distance ..."""

CLEAR = 0.125
"""... wherever the native reference is nearer than this share."""

POOLED = 256
"""Outputs with fewer elements get their scale from further draws, because a handful of numbers has none."""

QUANTISED = 0.5
"""A candidate must be nearer to the quantised oracle than this share of what the quantisation changes. A number near
the middle of two steps may go to either: quantising in fp32 moves one in 10^4 of them, in float16 one in 100 and the
rms by a third of the share; without quantisation a result is off by all of it, and by twice that where numbers are cut
and not rounded."""

PROBE = 2.0**-14
"""Relative change of the inputs by which conditioning is measured: small enough for operators to answer linearly, large
enough for a jump (another maximum is picked) to count for little when the answer is scaled down."""

_ROUNDINGS = 8.0
"""Steps of the computing precision that any operator may take, as rms; an element may take eight times as many."""

_UNMEASURED = 4.0
"""Times as many units of an element in fp64, beside the response, where algorithms are stable in the norm alone: the
oracle is rounded as native is there, by the same formula, so their distance tells nothing of what rounding costs. (A
determinant by QR was up to 1.8 times beyond the bound.)"""

_ORDER = 0.5
"""A running sum of L terms is off by about 0.2 sqrt(L) units, whatever their mean is; this leaves some room."""

MOST_INTERMEDIATE = 2.0**-4
"""Largest share of (|o| + rms(o)) that the rounding of intermediates may reach: where an operator jumps (a tie between
two maxima), the response says nothing about rounding."""

_HALF_INTERMEDIATES = 1.0
"""Multiple of the response to half-precision rounding of the inputs that half types get beside rounding the output:
scores or sums that a kernel keeps in the half type on its way, as unfused PyTorch does."""

_HALF_NORMWISE = 2.0
"""Largest ``Floor.normwise`` of half types: on data of one scale this is about the slack of a row."""

_BACKWARD_NORMWISE = 2.0
"""``Floor.normwise`` of gradients in fp32 and fp64 where something is summed: they are differences of sums, and a row
in which these are equal (a query that sees one key) is rounding noise in one kernel and exactly zero in another. In
half types that noise is one of the computing precision."""

_CONSTANT_DRIFT = 0.5
"""Equal terms round alike: a running sum of L of them drifts by up to L / 2 units, not by sqrt(L)."""

_FAR_RANDOM = 4096
"""Terms that a sum of a problem file has at most under ``far_mean``, where its length is guessed. So many do not round
alike: the digits in which they differ count in the sum. In one fp32 accumulator, terms 12,000 deviations from 0 are off
by 11 units as rms at 4,096 and by 290 at 16,384; those of 1,000 deviations by 13 and 26, and by 145 at 262,144."""

_FAR_ALIKE = 512
"""Terms of a sum that round alike at most under ``far_mean`` elsewhere, 1,000 deviations from 0: by the same figures,
one accumulator of 262,144 terms is off by 145 units. Half a unit for each term of long rows hid a variance by one pass.
"""

_TRUNCATED = 1 / 48
"""Tensor cores cut the accumulator after every eight terms of TF32 (sixteen of a half type): a product of K terms in
one accumulator is off by K / 58 units on an H200, all towards zero ..."""

_LONGEST_TRUNCATED = 65536
"""... up to so many terms. Beyond them one accumulator is no nearer than rounding the inputs to TF32."""

SYSTEMATIC = 0.125
"""The mean error of an output in a half type may be this part of its unit roundoff ..."""

_QUANTISED_SYSTEMATIC = 2.0**-12
"""The mean error of a quantised operator may be this part of its size at least: where few numbers are quantised, one
that goes to the other step moves many elements of one sign."""

SHARED = 0.5
"""... and the terms of a sum may share an error of so many units, as rms: a row's norm that is kept in the half type,
rounded once or twice on its way."""

_COMMON_FACTOR = 16.0
"""Factor of the floor of ``common`` data: scores that are large alike are rounded as large numbers, which moving the
inputs does not show. (FlashAttention in C++ with sums in order: 2 times the bound without it, backward.)"""

_UNEVEN = ("large_scale", "negative", "outlier")
"""Distributions of which a few elements may carry the rms of the error: a tanh that is not saturated, the difference of
two large sums. It then scatters as over so few."""

_TF32_UNIT = 2.0**-11
_MOST_GUESSED = 16384
"""Longest reduction that is assumed where a task does not say how long its reductions are."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The least error that is always allowed at an element: ``relative * |o| + conditioning * kappa + absolute``, and
    for half types ``intermediate * kappa`` more.

    ``o`` is the oracle there and ``kappa`` how far the oracle moves when every input moves by one unit roundoff of the
    computing precision, up or down at random.
    """

    relative: float
    """Factor of the oracle's magnitude."""
    conditioning: float
    """Factor of the response to input rounding."""
    intermediate: float
    """Factor of the response to rounding the inputs to the output's half type, as a multiple of kappa; 0 for others.
    Held below :data:`MOST_INTERMEDIATE` of the output's size."""
    absolute: float
    """Smallest step of the output's dtype: what flushing or rounding of subnormals costs."""
    normwise: float
    """An element may be off by this many times the largest floor of the output (``Tolerance.normwise``); 0: rows have
    scales of their own."""
    rms: float
    """Factor of the floor's rms: where sizes differ within a tensor, algorithms that are stable in the norm alone carry
    the rounding errors of large elements to small ones."""
    native: float
    """An element may be off by this many times the largest native error of its row."""
    unit: float
    bias: float
    """Part of the mean magnitude that the mean error of a half type may be; infinite: it is not judged."""
    uneven: bool
    """Whether few elements may carry the rms of the error: inputs are large, or some far larger than others."""
    probe_scale: float
    """Turns the response to :data:`PROBE` into the response to one unit roundoff of the computing precision."""
    left: float = math.inf
    """What rounding leaves of an output that is 0, on moved inputs too."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """Largest relative error of rounding to nearest: 2^-24 for float32, 2^-11 for float16, 2^-8 for bfloat16."""
    return float(torch.finfo(dtype).eps) / 2


def finite_limit(dtype: torch.dtype) -> float:
    """Magnitude from which rounding may give an infinity: a little below the largest finite number."""
    return float(torch.finfo(dtype).max) * (1 - 8 * unit_roundoff(dtype))


def floor_of(
    dtype: torch.dtype,
    length: int,
    case: Case,
    tolerance: Tolerance,
    *,
    tf32: bool,
    quantised_rms: float = 0.0,
    products: bool = True,
    inside: torch.dtype | None = None,
) -> Floor:
    """The floor of an output.

    Half types are expected to be computed in fp32 and rounded once; fp32 and fp64 in their own precision. TF32, where
    it is allowed, adds the rounding of inputs and intermediates to 11 bits.

    Args:
        length: terms summed into one element.
        case: gives the distribution and the layout, by which sums may drift.
        tolerance: the task's; gives its factor and whether norms count.
        quantised_rms: of operators that quantise, rms distance of the oracle from what comes out without it.
        products: whether what is summed may be a matrix product; the task must allow for norms, too.
        inside: half type to which the reference itself casts on its way, inputs too; None: to none.
    """
    real = torch.zeros((), dtype=dtype).real.dtype
    computing = min(unit_roundoff(real), 2.0**-24)
    unit = max(unit_roundoff(one) for one in (real, inside) if one is not None)
    terms = max(1, length)
    steps = _ROUNDINGS + max(_ORDER * math.sqrt(terms), _CONSTANT_DRIFT * _drifting(terms, case, tolerance))
    if products and tolerance.normwise and real != torch.float64:
        steps = max(steps, _ROUNDINGS + _TRUNCATED * min(terms, _LONGEST_TRUNCATED))
    relative, conditioning, intermediate = steps * computing, steps, 0.0
    cancels = case.direction == "backward" and tolerance.reduction is not None
    normwise = ELEMENT if tolerance.normwise else _BACKWARD_NORMWISE if cancels and unit <= computing else 0.0
    if half := unit > computing:
        relative += 2 * unit if case.distribution == "constant" else unit  # equal elements share one rounding error
        intermediate = _HALF_INTERMEDIATES * unit / computing
        noise = _BACKWARD_NORMWISE * steps * computing / unit if cancels else 0.0
        normwise = min(normwise, _HALF_NORMWISE) or (tolerance.kept if case.direction == "backward" else 0.0) or noise
    relative += (single := _TF32_UNIT if tf32 and real == torch.float32 else 0.0)
    conditioning += (single + (unit_roundoff(inside) if inside else 0.0)) / computing  # casts of inputs and weights
    # float16 subnormals are ordinary numbers of small kernels; below the normal range of the others, hardware may flush
    absolute = torch.finfo(real).tiny * (torch.finfo(real).eps if real == torch.float16 else 1.0)
    factor = tolerance.factor * (_COMMON_FACTOR if case.distribution == "common" else 1.0)
    quantised = tolerance.exact_form is not None  # what moves by half a step there is a step, however it is rounded
    own = _UNMEASURED if tolerance.normwise and unit < 2.0**-24 else 1.0
    return Floor(
        relative=own * factor * relative * (0.5 if quantised else 1.0),  # rounding the output is 0.3 units as rms
        conditioning=0.0 if quantised else factor * conditioning,
        intermediate=0.0 if quantised else factor * intermediate,
        absolute=absolute + QUANTISED * quantised_rms,
        normwise=normwise,
        rms=max(tolerance.rms, tolerance.outlier_rms if case.distribution == "outlier" else 1.0),
        native=NATIVE if half and case.distribution != "outlier" else _NATIVE_ELEMENT,
        unit=unit,
        bias=_systematic(real, unit, case, tolerance) + factor * steps * computing + 2 * single,  # of either operand
        uneven=case.distribution in _UNEVEN,
        probe_scale=computing / PROBE,
    )


def _drifting(terms: int, case: Case, tolerance: Tolerance) -> int:
    """How many of the terms of a sum round alike."""
    if case.distribution == "far_mean":
        return 0 if tolerance.guessed else min(terms, _FAR_ALIKE)
    zeros = case.distribution == "zeros" and not tolerance.guessed
    equal = zeros or case.distribution == "constant" or case.layout == "expanded"
    if equal and case.direction == "backward" and tolerance.reduction is not None:  # of the forward's sums, too
        terms = max(terms, tolerance.reduction(case.dims_map))
    return terms if equal or (tolerance.drifts and case.distribution == "outlier") else 0


def _systematic(real: torch.dtype, unit: float, case: Case, tolerance: Tolerance) -> float:
    """Part of the size that the mean error of a case may be, beside what is computed in; infinite where errors need not
    have both signs. Elsewhere than in standard data numbers repeat, or lie within a few rounding steps, and may share
    what one of them is off by.
    """
    if case.distribution != "standard" or case.layout == "expanded":
        return math.inf
    if tolerance.exact_form is not None:
        return max(SYSTEMATIC * unit, _QUANTISED_SYSTEMATIC) if tolerance.unbiased else math.inf
    return SYSTEMATIC * unit if 2.0**-24 < unit == unit_roundoff(real) else math.inf


def reduction_length(
    task: Task,
    case: Case,
    args: Sequence[object],
    weights: Sequence[torch.Tensor],
    shape: Sequence[int],
    forward_numel: int,
) -> int:
    """Number of terms summed into one element of an output, estimated where the task does not say.

    Backward, an argument with A elements takes part in (outputs x forward length) products, so each of its elements
    gathers that many over A; no single sum is longer than the largest of the forward length, the longest dim,
    (outputs / A), which is what a broadcast argument such as a bias gathers, and what the task states of sums over
    several dims.

    Where terms are added up by index, that is an average; an index that occurs more often gathers as much more. Where
    values say at which places (``Tolerance.placed``), all terms may meet at one.

    Module problems do not state lengths: the longest dim of an input, the fan-in of a weight or the ratio of input to
    output elements, at most 16384; under ``far_mean`` the elements of an input, at most :data:`_FAR_RANDOM`.

    Args:
        shape: shape of the output (of the gradient, in backward cases).
        forward_numel: elements of the forward outputs together (backward cases).
    """
    own = max(1, math.prod(shape))
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    stated = task.tolerance.reduction
    longest = max((size for t in tensors for size in t.shape), default=1)
    if task.module or stated is None:
        if not task.module and case.direction == "forward":
            return 1
        fan_in = max((w.numel() // max(w.shape[0], 1) for w in weights if w.ndim > 1), default=1)
        ratio = max((t.numel() // own for t in tensors), default=1)
        if task.module and case.distribution == "far_mean":  # a mean may be taken of several dims, or of all
            return max(1, min(_FAR_RANDOM, max((t.numel() for t in tensors), default=1)))
        if case.direction == "backward":
            ratio, longest = max(1, forward_numel // own), 1
        return max(1, min(_MOST_GUESSED, max(longest, fan_in, ratio)))
    length, crowding = max(1, stated(case.dims_map)), _crowding(task, case, args)
    if case.direction == "forward":
        return math.ceil(length * crowding)
    gathered = task.tolerance.gathered(case.dims_map) if task.tolerance.gathered is not None else 1
    if task.tolerance.placed and case.distribution != "standard":
        crowding = max(1.0, float(own))
    average = math.ceil(forward_numel * length / own * crowding) if crowding > 1 else forward_numel * length // own
    return max(1, min(average, max(length, longest, forward_numel // own, gathered)))


def _crowding(task: Task, case: Case, args: Sequence[object]) -> float:
    """How many times as often as on average the most frequent index occurs, of those at which terms are added up:
    forward where the task says so, backward in operators that pick by index and in those of experts.
    """
    crowding = 1.0
    for spec, arg in zip(task.arguments(case.dims_map, case.dtype), args, strict=False):
        if not isinstance(spec, TensorSpec) or not isinstance(arg, torch.Tensor) or not arg.numel():
            continue
        picks = spec.name == "ids" or (task.group == "Index" and (spec.role == "index" or spec.ids))
        if spec.summed or (picks and case.direction == "backward"):
            often = int(torch.unique(arg, return_counts=True)[1].max())
            crowding *= max(1.0, (spec.high - spec.low) * often / arg.numel())
    return crowding


def slack_of_count(count: float) -> float:
    """Factor for the scatter of an rms over few elements: 4 for one, 1.3 for a hundred, 1.003 for a million."""
    return 1 + 3 / math.sqrt(max(1, count))


Kind = Literal["float", "exact", "index", "count", "random"]

_TILE = {"cpu": 1 << 16}
_TILE_DEVICE = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Sizes of the oracle and of the native error, each as rms over the elements that are finite in both."""

    rms: float
    """Oracle."""
    native_rms: float
    """Native minus oracle."""
    native_max: float
    floor_rms: float
    """Floor (``tolerances.Floor``)."""
    floor_max: float
    bulk: float
    """Mean over the elements of min(1, native error / (ELEMENT * floor))."""
    mean: float
    """Of the oracle's magnitude."""
    response: float
    """Mean response to the rounding of the inputs to the computing precision."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """How far a floating output may be from the oracle. All tensors and figures but ``gain`` are multiplied by it."""

    gain: float
    """Power of two that brings the oracle's largest magnitude near 2^10, so that fp32 holds every square."""
    shape: tuple[int, int]
    """(rows, columns) as which the output is seen: rows have scales of their own."""
    local: torch.Tensor
    """fp32 (rows, columns): ELEMENT times the floor at each element."""
    slack: torch.Tensor
    """fp32 (rows, 1): what an element may be off beyond ``local``, by the scale of its row."""
    relative: float
    """The part of the floor that follows the element's own magnitude."""
    rms: float
    bulk: float
    """Bound on the mean of min(1, error / local); 1: no bound."""
    variation: float
    """Bound on the rms error by the distance of the nearest trivial answer; infinite where none is distinguishable."""
    nearest: str
    """That trivial answer: ``zero``, ``mean``, ``row_mean``, ``column_mean``, ``copy of argument i``; or empty."""
    special: bool
    """Whether oracle or native hold infinities, NaN or numbers at the end of the range: compared class by class."""
    limit: float
    """Magnitude at which rounding to the output's dtype may overflow."""
    scales: Scales
    typical: float
    """rms of the oracle over this and the further draws of a small output: its own rms may be near zero by chance."""
    independent: int
    """Elements that are no repetitions of others."""
    length: int
    """Terms summed into one element."""
    bias: float
    """Bound on the mean error of a half type, without what chance adds; infinite: it is not judged."""
    common: float
    """Standard error of that mean where the terms of each sum share a rounding error."""
    shared: bool = False
    """Whether the elements along a dim may share an error: that of one upstream number, or of a quantised one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """One output of the call."""

    kind: Kind
    """``float``: within ``bounds``; ``exact``: equal to the oracle; ``index``: selects equal elements; ``count``:
    integers of a floating computation, equal to the oracle but where the native reference is not either; also numbers
    of eight bits, by their places among all that there are; ``random``: drawn by ``law``."""
    oracle: torch.Tensor
    """fp64; fp32 for half types, whose roundoff is 2^13 times fp32's; the native dtype for integers."""
    native: torch.Tensor
    """What the reference gives in the case's dtype."""
    bounds: Bounds | None = None
    """For ``float`` outputs with elements."""
    source: torch.Tensor | None = None
    """``index``: the tensor that the indices select from."""
    dim: int = -1
    """``index``: the dim of ``source`` that is selected along."""
    distinct: bool = False
    """``index``: no element is selected twice along it."""
    allowed: int = 0
    """``count``: elements that may differ."""
    either: tuple[torch.Tensor, ...] = ()
    """``count``: what the oracle gives on inputs that are moved by a few roundings, where it is places: of two codes
    that are as near, a kernel may name the one or the other."""
    law: Law | None = None
    """``random``: what its numbers are drawn by."""
    plain: torch.Tensor | None = None
    """``float`` outputs of an operator that quantises: what comes out without it, as ``oracle`` is held."""
    contract: tuple[float, float, float] | None = None
    """What its outputs must keep to beside ``plain`` (``Tolerance.contract``); None: not even the oracle's do."""
    free: torch.Tensor | None = None
    """Where nothing is asked, because the reference makes NaN of an infinity there; None: nowhere."""
    kinks: tuple[torch.Tensor, torch.Tensor] | None = None
    """The smallest and the largest right number where the gradient jumps (``kinks.py``); infinity and its negative
    elsewhere. None: it jumps nowhere."""
    overflows: bool = False
    """Whether native overflows on its way: where it is not finite, nothing is asked of an output that is not either."""
    far: float = math.inf
    """``count``: bound on their rms distance from the oracle, where native itself gets more than a few otherwise (a
    fixed-point number has rounding errors too)."""
    undone: Callable[[torch.Tensor], Iterator[torch.Tensor]] | None = None
    """``float`` outputs of problem files: the output put right where it may fall to the other side of a step
    (``jumps.py``), again and again as more is known; asked when it is wrong."""
    fine: bool = False
    """Whether rounding is so fine that what exchanging a few elements of the inputs changes is far more than that."""

    def unasked(self, got: torch.Tensor) -> torch.Tensor | None:
        """Where nothing is asked of an output; None: nowhere."""
        found = [] if self.free is None else [self.free]
        if self.kinks is not None:
            least, most = self.kinks
            found.append((got >= least) & (got <= most))
        if self.overflows:
            found.append(~(got.isfinite() | self.native.isfinite()))
        return functools.reduce(torch.logical_or, found) if found else None

    def beside_interval(self, got: torch.Tensor) -> torch.Tensor:
        """The output, where the gradient jumps, at the distance from native at which it is from the nearest right
        number.
        """
        if self.kinks is None:
            return got
        least, most = self.kinks
        off = got - torch.clamp(got, least, most)
        return torch.where(least <= most, self.native + off, got).to(got.dtype)

    def with_free(self, more: torch.Tensor | None) -> Expected:
        """The same with nothing asked at these elements too."""
        if more is None:
            return self
        return replace(self, free=more if self.free is None else self.free | more)


@dataclass(frozen=True, kw_only=True)
class TimedBounds:
    """How far the outputs of a timed call may be from the trusted baseline's."""

    relative_rms: float
    """||candidate - baseline|| / ||baseline||; infinite: outputs are drawn, and have nothing to do with each other."""
    worst: float
    """max |candidate - baseline| / rms(baseline)."""
    scales: tuple[float, ...] = ()
    """Least rms by which the error of each output is divided; 0 for outputs with many elements, which have a scale of
    their own, and for those that are no numbers."""

    def scale(self, output: int) -> float:
        """That of one output; 0 where none is given."""
        return self.scales[output] if output < len(self.scales) else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Expectation:
    """What must come out of one call. Holds no graph."""

    outputs: tuple[Expected, ...]
    """One for each output: of the operator, or the gradients in the order of the differentiable arguments."""
    args: tuple[Any, ...]
    wider: Callable[[], Expectation] | None = None
    """The same with bounds by native outputs of other forms too, which is asked where outputs are wrong by these
    bounds; None: there are none, or these hold them already."""

    @property
    def widest(self) -> Expectation:
        """The last word on what is right."""
        return self if self.wider is None else self.wider()

    def mapped(self, change: Callable[[Sequence[Expected]], Sequence[Expected]]) -> Expectation:
        """The same with other outputs, by these bounds and by the wider ones."""
        wider = self.wider
        later = None if wider is None else lambda: wider().mapped(change)
        return replace(self, outputs=tuple(change(self.outputs)), wider=later)

    @property
    def native(self) -> tuple[torch.Tensor, ...]:
        """Outputs of the reference in the case's dtype."""
        return tuple(expected.native for expected in self.outputs)

    @property
    def oracle(self) -> tuple[torch.Tensor, ...]:
        """Outputs of the fp64 oracle (held in fp32 for half types)."""
        return tuple(expected.oracle for expected in self.outputs)

    @property
    def timed(self) -> TimedBounds:
        """How far outputs on other inputs of the same case may be from the native ones there, over all outputs.

        Both may be off by their bound in opposite directions. A quarter is added to the rms because other inputs have
        other scales; the largest error is doubled, because extremes scatter more.
        """
        few = [e.bounds if e.native.numel() < POOLED else None for e in self.outputs]
        scales = tuple(0.0 if b is None else b.typical / b.gain for b in few)
        if any(expected.law is not None for expected in self.outputs):
            return TimedBounds(relative_rms=math.inf, worst=math.inf, scales=scales)
        rms = worst = 0.0
        for b in (e.bounds for e in self.outputs if e.bounds is not None and e.bounds.typical > 0):
            rms = max(rms, 1.25 * (b.rms + b.scales.native_rms) / b.typical)
            largest = ELEMENT * b.scales.floor_max + float(b.slack.max()) + b.scales.native_max
            worst = max(worst, 2 * largest / b.typical)
        return TimedBounds(relative_rms=rms, worst=worst, scales=scales)


def opened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself; floating numbers of eight bits as fp32, because PyTorch does no arithmetic on them."""
    return tensor.float() if is_eight_bit(tensor) else tensor


def is_eight_bit(tensor: torch.Tensor) -> bool:
    """Whether it holds floating numbers of eight bits."""
    return tensor.is_floating_point() and tensor.itemsize == 1


_NAN_PLACE = 1 << 10


def steps(tensor: torch.Tensor) -> torch.Tensor:
    """Floating numbers of eight bits by their places among all that there are, zero at 0: neighbours differ by one.
    Every NaN is at the same place, which is next to none. Anything else as it is.
    """
    if not is_eight_bit(tensor):
        return tensor
    places = tensor.contiguous().view(torch.uint8).to(torch.int16)
    places = torch.where(places < 128, places, 128 - places)
    return places.masked_fill_(tensor.float().isnan(), _NAN_PLACE)


def same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors are equal; NaN is equal to NaN."""
    return (one == other) | (one.isnan() & other.isnan())


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, opened; a complex one as real and imaginary parts in a further last dim."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else opened(tensor)


def tiles(shape: tuple[int, int], device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Slices of rows, or of the columns of a single row, small enough for a core's cache or a GPU's temporaries."""
    size = _TILE.get(device.type, _TILE_DEVICE)
    rows, columns = shape
    if rows == 1:
        for start in range(0, columns, size):
            yield slice(0, 1), slice(start, min(start + size, columns))
        return
    step = max(1, size // max(columns, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows)), slice(0, columns)


def distance(values: torch.Tensor, oracle: torch.Tensor | None, gain: float) -> torch.Tensor:
    """|values - oracle| * gain in fp32, the difference taken in the oracle's type; without an oracle |values| * gain.

    In-place steps: on a CPU, fresh memory costs more than the arithmetic.
    """
    scaled = values * gain if oracle is None else values.to(oracle.dtype, copy=True).sub_(oracle).mul_(gain)
    return scaled.float().abs_()
