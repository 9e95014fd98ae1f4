"""Which other inputs and weights a problem file takes: each distribution is tried on a miniature of it."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kerneleval.records import DTYPES, FAR_MEANS, TensorSpec, UsageError
from kerneleval.tasks.formats.agreement import SEEN, Selections, agrees, agrees_on, limit_changes, selects_among_equals
from kerneleval.tasks.formats.changes import Vary, moved_biases
from kerneleval.tasks.formats.edges import Edges
from kerneleval.tasks.formats.memory import Slow, gates, makes_decays, saturated, slow
from kerneleval.tasks.formats.module_problem import DISTRIBUTIONS, SIGNED, ModuleProblem, hides
from kerneleval.tasks.formats.origins import dense, memory
from kerneleval.tasks.formats.outcomes import MOST, Way
from kerneleval.tasks.formats.redrawn import Family, different, families, is_mask, marks_are_told, repeated, says_sizes
from kerneleval.tasks.formats.scores import PRODUCTS, SAME_NUMBERS, Scores
from kerneleval.tasks.formats.soundness import DEPENDS, depends
from kerneleval.tasks.formats.survey import Survey
from kerneleval.tasks.formats.surveys import MINIATURE_BYTES, MINIATURE_FLOPS, Surveys
from kerneleval.tasks.formats.sweep import shrink
from kerneleval.tasks.formats.traits import Doubling, is_float, is_inexact, same_bits

_TRIED_BYTES = 64 << 20

_TRIED_FLOPS = 1_000_000_000
"""A miniature that takes more is not tried: where the file fixes its widths in the code of its layers."""

_TRIED = ("sorted", "skewed", "redrawn", "far_mean", "long_memory", "edges")
"""Distributions that no file has that was not tried."""

_OF_DRAWS = ("sorted", "skewed", "redrawn", "long_memory", "trained")
"""Those that leave floating arguments as ``get_inputs()`` gives them, or change what it draws."""

_REDRAWN = (1, 2)
"""Draws in which a file must take another argument than its own."""

_SAME = 1e-9
"""What does not change an output in fp64."""

_NEAR = 1 / 16
"""Part of themselves by which numbers move to see whether they are read."""

_MOST_SPARED = 8
"""Each of so many arguments is tried alone where a file does not take a distribution of all."""

_PARTLY: Way = "partly"

_ALONE: Way = "alone"
"""That of segments beside large scores: nothing but one such score is in many."""

_SKEWED: tuple[Way, ...] = ("closed", "whole", _PARTLY)
"""Ways in which draws of integers and masks are tried, in order."""

_CROWDED: Way = "crowded"
"""That of floating ones which integers follow: experts chosen by scores."""

_QUICK_FLOPS, _QUICK_STEPS = 20_000_000, 5000
"""Operations, and operators, of a miniature that may be run dozens of times."""

_OPTIONS = ("unsigned", "kept", "vary", "vary_weights", "bounded")
"""Fields of :class:`Safe` that are parameters of :class:`ModuleProblem`."""
_ATTRIBUTES = (
    "outcomes",
    "far",
    "slow",
    "gates",
    "sided",
    "spared",
    "related",
    "families",
    "padded",
    "filled",
    "flags",
    "shifted",
    "behind_layers",
    "saturated",
    "louder",
    "decays",
    "alike",
    "counters",
    "marked",
    "ordered",
    "edges",
    "twice",
)
"""Those that are attributes of it."""


@dataclass(frozen=True, kw_only=True)
class Safe:
    """How a problem's inputs and weights may be changed, so that it is still defined."""

    distributions: tuple[str, ...] = ()
    """Those beyond the file's own."""
    fell_out: tuple[str, ...] = ()
    """Others that the file might have had."""
    unsigned: frozenset[str] = frozenset()
    kept: frozenset[int] | None = None
    vary: Vary = "freely"
    vary_weights: Vary = "freely"
    bounded: bool = True
    """All five in :attr:`options`."""
    same: tuple[str, ...] = ()
    """Tensor arguments that come out the same in every draw, by name: nothing else is known to be valid, or the file
    takes nothing else, or gives the same outputs then."""
    outcomes: Mapping[str, Mapping[int, Way]] = field(default_factory=dict)
    far: float = FAR_MEANS[0]
    slow: Slow | None = None
    gates: frozenset[int] = frozenset()
    sided: bool = True
    spared: Mapping[str, frozenset[int]] = field(default_factory=dict)
    related: frozenset[int] = frozenset()
    families: tuple[Family, ...] = ()
    padded: frozenset[int] = frozenset()
    filled: frozenset[int] = frozenset()
    flags: frozenset[int | str] = frozenset()
    shifted: Mapping[str | int, str | int] = field(default_factory=dict)
    behind_layers: frozenset[int] = frozenset()
    saturated: Mapping[int, int | None] = field(default_factory=dict)
    louder: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    alike: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    counters: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    ordered: frozenset[int] = frozenset()
    edges: Edges = field(default_factory=Edges)
    twice: Mapping[int | str, Doubling] = field(default_factory=dict)
    decays: bool = False
    """All twenty-one for :class:`ModuleProblem` as well."""
    tame: tuple[str, ...] = ()
    """Integers and masks, by name, that come as the file draws them alone, and what else is not at its ends."""
    untried: str = ""
    """Why nothing but the file's own inputs was tried; empty: other inputs were."""

    @property
    def options(self) -> dict[str, Any]:
        """Parameters of :class:`ModuleProblem`."""
        return {name: getattr(self, name) for name in _OPTIONS}

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of :class:`ModuleProblem`."""
        return {name: getattr(self, name) for name in _ATTRIBUTES}


def safe_distributions(surveys: Surveys) -> Safe:
    """Distributions beyond the file's own at which the problem is still defined.

    A miniature of the problem runs on the CPU with inputs and weights of each of :data:`DISTRIBUTIONS`: outputs must be
    finite and near fp64. Where no miniature is small, all are given: the judge finds out on its device
    (``BoundCase.expect``). Raises UsageError: its own inputs cannot be judged.
    """
    dims = shrink(surveys, MINIATURE_BYTES, MINIATURE_FLOPS)
    made = surveys.at(dims)
    offered = [name for name in DISTRIBUTIONS if _may_have(made, name)]
    if made.bytes > _TRIED_BYTES or made.flops > _TRIED_FLOPS:
        if made.operators & _ASSERTING:  # not tried on a GPU, where this would end the judge
            return Safe(fell_out=tuple(offered), vary="inwards", vary_weights="inwards")
        return Safe(distributions=tuple(name for name in offered if name not in _TRIED))
    problem = ModuleProblem(surveys.file, dims, "cpu")
    problem.marked, problem.ordered = frozenset(problem.traits.marks), problem.traits.ordered
    problem.kept, problem.twice, problem.related = problem.redrawable, problem.find_twice(), problem.find_related()
    if problem.related and not any(is_float(a) and i not in problem.related for i, a in enumerate(problem.inputs(1))):
        offered = [name for name in offered if name in _OF_DRAWS]
    limit_changes(problem)
    problem.reference(problem.inputs(1, "standard"), problem.weights(0))
    _find_repeated(problem)
    same = _redraw(problem)
    problem.counters = _counters(problem, made)
    if problem.kept == problem.redrawable and not problem.counters:
        offered.remove("redrawn")
    if "sorted" in offered and not _reorders(problem):
        offered.remove("sorted")
    tame, partly = _skew(problem, made)
    offered = [name for name in offered if name != "skewed" or problem.outcomes.get("skewed")]
    offered = _with_edges(problem, _with_far_mean(problem, made, offered))
    if _is_quick(made):
        drawn = problem.inputs(1), problem.weights(0)
        problem.gates = gates(problem.oracle, *drawn)
        problem.saturated = saturated(problem.oracle, *drawn, problem.gates)
        if problem.saturated and not agrees(problem, problem.weights(0), "large_scale"):
            problem.saturated = {}
        problem.decays = not problem.gates and makes_decays(problem.oracle, *drawn, made.operators)
    louder = {} if problem.gates else _louder(problem, made)
    problem.louder = louder or {}
    if "long_memory" in offered:
        problem.slow = _slow(problem) if _is_quick(made) else None
        offered = [name for name in offered if name != "long_memory" or problem.slow is not None]
    as_drawn = {"large_scale"} if problem.decays and not problem.louder else set[str]()
    found = [name for name in offered if name not in as_drawn and _defined(problem, name)]
    if "large_scale" in found and "topk" in made.operators and selects_among_equals(problem):
        found.remove("large_scale")
    small = ["scores of its softmax"] if louder is None and "large_scale" in found else []
    small += _keep_single(problem, made, partly) if "large_scale" in found else []
    if "redrawn" not in found:  # each argument alone was taken, and not all of them
        problem.marked, problem.counters, problem.kept = frozenset(), frozenset(), problem.traits.frozen
        same = _unchanging(problem)
    problem.flags = _flags(problem)
    return Safe(
        distributions=tuple(found),
        fell_out=tuple(name for name in offered if name not in found),
        **{name: getattr(problem, name) for name in (*_OPTIONS, *_ATTRIBUTES)},
        same=tuple(made.arguments[index].name for index in same),
        tame=(*(made.arguments[index].name for index in tame), *small),
    )


_ASSERTING = frozenset(("binary_cross_entropy", "bernoulli", "multinomial", "_assert_async"))
"""Operators that assert in their kernels what their numbers are."""

_CHOICES = frozenset(
    ("topk", "sort", "argsort", "kthvalue", "argmax", "argmin", "nonzero", "bincount", "_unique2", "unique_dim",
     "unique_consecutive", "index_add", "index_put", "scatter", "scatter_add", "scatter_reduce")
)  # fmt: skip
"""Operators that send rows to places by what they are: nearly all may go to one."""

_STEPS = frozenset(("round", "floor", "ceil", "trunc", "sign", "bucketize", "searchsorted", "histc"))
"""Others whose outputs jump. Tiny inputs, beside which rounding is large, decide nothing there, but for quantisers."""

_ORDERS = frozenset(("median", "nanmedian", "mode", "cummax", "cummin", "searchsorted"))
"""Beside :data:`_CHOICES`, operators whose kernels may do otherwise where large numbers lie side by side."""

_RANGES = frozenset(("amax", "amin", "aminmax", "max", "min"))
"""Operators that a quantiser takes the range of numbers with."""

_EXTREMES = frozenset(("max", "min", "cummax", "cummin"))

_EXPONENTIALS = frozenset(("exp", "exp2", "logsumexp"))
"""Beside softmaxes and attention, operators that large scores are given to."""

_SORTS = frozenset(("sort", "argsort"))

_POSITIONS = _EXTREMES | frozenset(
    ("topk", "sort", "argsort", "kthvalue", "argmax", "argmin", "median", "nanmedian", "mode", "multinomial")
)
"""Operators that give positions, of which any is right where numbers are equal, as in rows that are masked whole."""

_WRITERS = frozenset(("scatter", "index_put", "_unsafe_index_put", "index_copy", "put"))
"""Operators that may write each place once, and say nothing of which of two writes counts."""

_INTO_SEGMENTS = frozenset(("index_add", "index_reduce", "scatter_add", "scatter_reduce", "segment_reduce"))
"""Operators that take elements together by the number of their segment."""

_PICKS = frozenset(("index", "gather", "index_select", "take", "embedding", "_embedding_bag"))
"""Operators that pick elements by places."""

_EPSILONS = frozenset(("div", "reciprocal", "sqrt", "rsqrt", "log", "log2", "log10"))
"""Operators that an epsilon may stand before, beside norms. Elsewhere tiny inputs would tell no more than that
``exp(x) - 1`` is no ``expm1(x)``."""

_COMPARISONS = frozenset(
    ("gt", "ge", "lt", "le", "eq", "ne", "sgn", "heaviside", "max", "amax", "log1p", "xlogy", "special_entr",
     "special_xlog1py")
)  # fmt: skip
"""Beside steps and what has an epsilon, operators for which 0, or the end of the range, is a number of its own."""

_STEPPED = frozenset(
    ("gt", "ge", "lt", "le", "eq", "ne", "sgn", "heaviside", "threshold", "hardshrink", "frac", "remainder", "fmod",
     "floor_divide", "div", "_to_copy")
) | _STEPS  # fmt: skip
"""Operators with steps that an argument may lie at."""

_CENTRED = re.compile(r"(batch|layer|group|instance)_norm|^(var|std)(_mean)?$|^(_batch_norm|cov|cdist|_cdist)|pairwise")

_DIFFERENCES = frozenset(("sub", "rsub", "addcdiv", "lerp"))

_SUMS = frozenset(("sum", "mean", "linalg_vector_norm", "norm"))
"""Operators that take a mean off, and those that together may: a mean far from 0 cancels there."""


def _named(made: Survey) -> set[str]:
    """Names of the operators that it runs; those that write into their argument without the mark of it."""
    return {name if name.startswith("_") else name.rstrip("_") for name in made.operators}


def _may_have(made: Survey, distribution: str) -> bool:
    """Whether a distribution may tell anything about a problem, by its inputs and the operators that it runs."""
    operators = _named(made)
    ranks = [len(a.shape) for a in made.arguments if isinstance(a, TensorSpec) and a.role == "data"]
    if distribution == "tiny_scale":
        epsilon = bool(operators & _EPSILONS) or any("norm" in name for name in operators)
        scaled = operators & _STEPS == {"round"} and bool(operators & _RANGES)  # by a scale of their own
        return bool(ranks) and epsilon and not operators & _CHOICES and (scaled or not operators & _STEPS)
    if distribution == "padded":
        told = operators & (_EPSILONS | _STEPS | _COMPARISONS) or any("norm" in name for name in operators)
        apart = bool(_CHOICES & operators) or _tells_equals_apart(made, operators)
        return bool(ranks) and (made.stable or (bool(told) and not apart))
    if distribution == "sorted":
        return bool(ranks) and bool(operators & (_CHOICES | _ORDERS))
    if distribution == "edges":
        return bool(ranks) and bool(operators & _STEPPED) and not _tells_equals_apart(made, operators)
    if distribution == "far_mean":
        floats = [a for a in made.arguments if isinstance(a, TensorSpec) and "float" in a.dtype] or made.weights
        wide = [a for a in floats if "float" in a.dtype and DTYPES[a.dtype] >= 4]
        centred = any(_CENTRED.search(name) for name in operators)
        return bool(wide) and (centred or bool(operators & _SUMS and operators & _DIFFERENCES))
    if distribution == "alike":
        return max(ranks, default=0) > 1 and bool(operators & _CHOICES)
    return distribution != "trained" or made.trainable


def _tells_equals_apart(made: Survey, operators: set[str]) -> bool:
    """Whether outputs may hang on the place of one of several equal numbers: any of them is right."""
    used = any(_whole(out) for out in made.outputs) or bool(_PICKS & operators)
    pools = ("max_pool", "adaptive_max_pool", "fractional_max_pool")
    extremes = bool(_EXTREMES & operators) or any(name.startswith(pools) for name in operators)
    return bool((_WRITERS | _POSITIONS - _EXTREMES) & operators) or (used and extremes)


def _redraw(problem: ModuleProblem) -> list[int]:
    """Have ``problem.kept`` hold every argument that ``redrawn`` is to leave alone, and ``problem.families`` those that
    change together; the positions of those that come out the same in every draw then.
    """
    frozen, weights = problem.traits.frozen, problem.weights(0)
    drawn = problem.outcome(1, lambda number: None)[0]
    problem.families = families(drawn, frozen, tree_leaves((problem.init_args, problem.init_keywords)))
    problem.padded = frozenset(index for index in frozen if _is_padded(problem, index, drawn, weights))
    plain = {seed: problem.inputs(seed) for seed in _REDRAWN}
    marked = {index for index in problem.traits.marks if _reads_mark(problem, index, drawn, weights)}

    @functools.cache
    def own(seed: int) -> tuple[torch.Tensor, ...]:
        return problem.oracle(plain[seed], weights)

    def takes(group: frozenset[int], seed: int) -> bool:
        """Whether the file takes other such arguments, and gives other outputs of the same form for them."""
        args = problem.inputs(seed, "redrawn")
        if all(same_bits(args[index], plain[seed][index]) for index in group) or not agrees_on(problem, args, weights):
            return False
        native, exact = problem.reference(args, weights), problem.oracle(args, weights)
        if [out.shape for out in exact] != [out.shape for out in own(seed)]:
            return False
        whole = [(a, b) for a, b in zip(native, exact, strict=True) if not a.is_floating_point() and not a.is_complex()]
        least = _SAME if group & marked else DEPENDS
        changed = any(depends(a, b, least) for a, b in zip(own(seed), exact, strict=True))
        return changed and all(torch.equal(a, b) for a, b in whole)

    found = set[int]()
    alone = [frozenset((index,)) for index in sorted(frozen - problem.kin | marked)]
    for group in (*alone, *(frozenset().union(*family) for family in problem.families)):
        problem.kept = problem.redrawable - group
        taken = all(takes(group, seed) for seed in _REDRAWN)
        segments = group <= problem.kin or any(problem.segments_end(index, drawn) for index in group)
        if not taken and (segments or group & marked):
            problem.filled |= group
            taken = all(takes(group, seed) for seed in _REDRAWN)
        if taken:
            found |= group
            for index in group - problem.kin:
                args = problem.inputs(1, "redrawn")
                _find_unread(problem, index, args[index], args, weights)
    problem.marked = frozenset(marked & found)
    problem.kept = problem.redrawable - found
    return _unchanging(problem)


def _reads_mark(problem: ModuleProblem, index: int, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> bool:
    """Whether outputs depend on the marks of an argument, and nothing beside it tells where they are."""
    marks = problem.traits.marks
    own, mark = args[index], marks[index]
    beside = tree_leaves((problem.init_args, problem.init_keywords))
    if marks_are_told(index, marks, [*args, *beside]):
        return False
    without = torch.where(own == mark, own.max(), own)
    try:
        outputs = (problem.oracle(given, weights) for given in (args, [*args[:index], without, *args[index + 1 :]]))
        return any(depends(a, b) for a, b in zip(*outputs, strict=True))
    except UsageError:
        return False


def _flags(problem: ModuleProblem) -> frozenset[int | str]:
    """What ``problem.flags`` is."""
    args, buffers = enumerate(problem.inputs(1)), problem.weights(0).keys() - problem.parameters
    tensors = [(i, arg) for i, arg in args if isinstance(arg, torch.Tensor)]
    found: set[int | str] = {name for name in buffers if is_mask(problem.weights(0)[name])}
    return frozenset(found | {i for i, arg in tensors if is_mask(arg) or problem.becomes_flags(i, arg)})


_COUNTER = re.compile(r"(^|_)(step|start|pos|position|offset|shift|past|t|timestep|iter|iteration|idx|index)(_|s?$)")
"""Names of plain integers that say how far something has come."""


def _counters(problem: ModuleProblem, made: Survey) -> frozenset[int]:
    """Plain integers that never vary, say how far something has come, by their name, and no size by their value: those
    of which the file takes the next one, and gives other outputs then.
    """
    plain, other = problem.inputs(1), problem.inputs(2)
    sizes = {size for one in plain if isinstance(one, torch.Tensor) for size in one.shape}
    found, weights = set[int](), problem.weights(0)
    picks = bool(_PICKS & {name.rstrip("_") for name in made.operators})
    for index, own in enumerate(plain):
        named = type(own) is int and own == other[index] and bool(_COUNTER.search(made.arguments[index].name.lower()))
        if not named or own < 0 or (own > 1 and (own in sizes or says_sizes(torch.tensor(own), plain))):
            continue
        if own <= 1 and picks:  # the next one may be beyond a table
            continue
        problem.counters = frozenset((index,))
        args = problem.inputs(1)
        args[index] = problem.inputs(1, "redrawn")[index]
        if agrees_on(problem, args, weights):
            pairs = list(zip(problem.oracle(plain, weights), problem.oracle(args, weights), strict=True))
            if all(a.shape == b.shape for a, b in pairs) and any(depends(a, b) for a, b in pairs):
                found.add(index)
    return frozenset(found)


def _find_unread(
    problem: ModuleProblem,
    index: int,
    other: torch.Tensor,
    args: Sequence[Any],
    weights: Mapping[str, torch.Tensor],
) -> None:
    """Have ``problem.alike`` hold the dims along which the file gives equal elements in an argument and reads the first
    alone: where they differ, ``other`` gives the same as one in which they are equal. A candidate may read any.
    """
    given = problem.find_repeated().get(index, ())

    def gives(value: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return problem.oracle([*args[:index], value, *args[index + 1 :]], weights)

    dims = [dim for dim in given if all(map(torch.equal, gives(other), gives(repeated(other, [dim]))))]
    if dims:
        problem.alike = {**problem.alike, index: tuple(dims)}


def _find_repeated(problem: ModuleProblem) -> None:
    """Have ``problem.alike`` hold floating arguments, too."""
    args, weights = problem.inputs(1), problem.weights(0)
    for index in problem.find_repeated():
        own = args[index]
        if is_float(own) and index not in problem.traits.labels:
            near = own * (1 + _NEAR * torch.rand(own.shape, generator=torch.Generator().manual_seed(1)))
            _find_unread(problem, index, near, args, weights)


def _is_padded(problem: ModuleProblem, index: int, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> bool:
    """Whether an argument holds equal lengths of which the first one, made shorter, changes the first item of each
    output alone: each sequence is padded. Beside packed sequences all later ones would begin elsewhere.
    """
    own = args[index]
    if own.dim() != 1 or not says_sizes(own, args) or int(own[0]) < 2 or len(own) < 2:
        return False
    shorter = own.clone()
    shorter[0] //= 2
    try:
        before = problem.oracle(args, weights)
        after = problem.oracle([*args[:index], shorter, *args[index + 1 :]], weights)
    except UsageError:
        return False
    rows = [(a, b) for a, b in zip(before, after, strict=True) if a.shape == b.shape and a.shape[:1] == own.shape]
    return (
        len(rows) == len(before)
        and all(torch.equal(a[1:], b[1:]) for a, b in rows)
        and not all(torch.equal(a, b) for a, b in rows)
    )


def _unchanging(problem: ModuleProblem) -> list[int]:
    """Positions of the arguments that ``redrawn`` leaves alone and that come out the same in every draw."""
    first, last = (problem.inputs(seed) for seed in _REDRAWN)
    return sorted(index for index in problem.kept or () if same_bits(first[index], last[index]))


def _reorders(problem: ModuleProblem) -> bool:
    """Whether other orders of what the file draws change an argument."""
    try:
        return bool(_changed(problem.inputs(1), problem.inputs(1, "sorted")))
    except UsageError:  # the file takes no such numbers
        return True


def _with_edges(problem: ModuleProblem, offered: Sequence[str]) -> list[str]:
    """What is offered, without ``edges`` where the file takes none. Has ``problem.edges`` say where it compares or
    rounds arguments as they are, of those that it takes there.
    """
    others = [name for name in offered if name != "edges"]
    if "edges" not in offered:
        return others
    try:
        found = problem.find_edges()
    except UsageError:
        return others
    kept = []
    for index in sorted(found.numbers.keys() | found.ties.keys()):
        problem.edges = found.only((index,))
        if _changed(problem.inputs(1), problem.inputs(1, "edges")) and agrees(problem, problem.weights(0), "edges"):
            kept.append(index)
    problem.edges = found.only(kept)
    return list(offered) if kept else others


def _changed(ones: Sequence[Any], others: Sequence[Any]) -> list[int]:
    """Positions of the tensors that differ."""
    pairs = enumerate(zip(ones, others, strict=True))
    return [i for i, (a, b) in pairs if isinstance(a, torch.Tensor) and not same_bits(a, b)]


def _skew(problem: ModuleProblem, made: Survey) -> tuple[list[int], dict[int, Way]]:
    """Have ``problem.outcomes`` say which draws make integers and masks alone, and how far the file takes them at the
    ends of their range. The positions of the arguments of which it takes none, and what to try beside large scores.
    """
    if not problem.traits.labels and not any(isinstance(a, TensorSpec) and _whole(a) for a in made.arguments):
        return [], {}
    operators = {name.rstrip("_") for name in made.operators}
    returned = any(_whole(out) for out in made.outputs)
    positions = _POSITIONS - _SORTS if made.stable else _POSITIONS
    equal = operators & (positions if returned else positions - _EXTREMES)
    plain, count = problem.outcome(1, lambda number: None)
    found, partly, tame = dict[int, Way](), dict[int, Way](), set[int]()
    for number in range(min(count, MOST)):
        try:
            changed = _changed(plain, problem.outcome(1, {number: _PARTLY}.get)[0])
        except UsageError:  # its sizes depend on them
            continue
        once = operators & _WRITERS and any(different(plain[i]) for i in changed)
        if not changed or once:
            continue
        if not all(_discrete(plain[i]) for i in changed):
            if not all(map(is_inexact, (plain[i] for i in changed))) and _takes(problem, number, _CROWDED):
                found[number] = _CROWDED
            continue
        flags = all(len(plain[i].unique()) <= 2 for i in changed)
        ways = () if equal - SEEN else _SKEWED if flags else _SKEWED[1:]
        way = next((way for way in ways if _takes(problem, number, way, equal)), None)
        if way is None:
            tame.update(changed)
            continue
        found[number] = way
        rows = made.outputs[0].shape[:1]
        if flags or all(plain[i].shape == rows for i in changed):  # masks and lengths; pages may repeat a key
            partly[number] = _PARTLY
        elif operators & _INTO_SEGMENTS:
            partly[number] = _ALONE
    problem.outcomes = {"skewed": found}
    return sorted(tame), partly


def _keep_single(problem: ModuleProblem, made: Survey, partly: Mapping[int, Way]) -> list[str]:
    """Have ``problem.outcomes`` leave few scores in a row beside large ones, and name the arguments of which the file
    does not take that.
    """
    operators = {name.rstrip("_") for name in made.operators}
    if not any("softmax" in name or "attention" in name or name in _EXPONENTIALS for name in operators):
        return []
    weights, own, taken, tame = problem.weights(0, "large_scale"), problem.outcomes, dict[int, Way](), list[str]()
    for number, way in partly.items():
        taken[number] = way
        problem.outcomes = {**own, "large_scale": taken}
        if not agrees(problem, weights, "large_scale") or ("topk" in operators and selects_among_equals(problem)):
            del taken[number]
            plain, changed = (problem.outcome(1, ways.get)[0] for ways in ({}, {number: way}))
            tame += [f"{made.arguments[index].name} beside large scores" for index in _changed(plain, changed)]
    problem.outcomes = {**own, "large_scale": taken} if taken else own
    return tame


def _takes(problem: ModuleProblem, number: int, way: Way, equal: Collection[str] = ()) -> bool:
    """Whether the file takes one of its draws so, gives the same whole numbers in fp64, and has no operator of some
    (``equal``) select among equal numbers. Sets ``problem.outcomes``.
    """
    problem.outcomes, weights = {"skewed": {number: way}}, problem.weights(0)
    if way == "closed" and not _takes(problem, number, "lowest", equal):
        return False
    problem.outcomes = {"skewed": {number: way}}
    for seed in _REDRAWN:
        try:
            args = problem.inputs(seed, "skewed")
        except UsageError:
            return False
        if not agrees_on(problem, args, weights):
            return False
        selections = Selections()
        with selections:
            native = problem.reference(args, weights)
        pairs = zip(native, problem.oracle(args, weights), strict=True)
        if selections.equal & set(equal) or not all(is_inexact(a) or torch.equal(a, b) for a, b in pairs):
            return False
    return True


def _whole(spec: TensorSpec) -> bool:
    return "float" not in spec.dtype and "complex" not in spec.dtype


def _discrete(tensor: torch.Tensor) -> bool:
    """Whether it holds integers or flags, or is a floating mask of two values at most."""
    return not is_inexact(tensor) or (tensor.is_floating_point() and len(tensor.unique()) <= 2)


def _is_quick(made: Survey) -> bool:
    return made.flops <= _QUICK_FLOPS and made.steps <= _QUICK_STEPS


def _slow(problem: ModuleProblem) -> Slow | None:
    """What makes the file remember, if it forgets."""
    return slow(
        problem.oracle,
        problem.inputs(1),
        problem.weights(0),
        problem.parameters,
        lambda args, weights: agrees_on(problem, args, weights),
    )


_SHIFT = 10.0
"""By how many deviations of what a layer makes its bias is moved to see whether outputs stay."""

_MOST_BIASES = 16
"""So many biases of a problem file are tried, by name: each takes a run of the reference in fp64."""


class _Layers(TorchDispatchMode):
    """While it is entered around a run of a problem, notes which parameters or arguments are biases beside the product
    of a matrix of such, or tables of which rows are picked, and what takes the arguments.
    """

    def __init__(self, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        self._names: dict[int, str | int] = {memory(weight): name for name, weight in weights.items() if dense(weight)}
        self._names |= {memory(arg): index for index, arg in enumerate(args) if dense(arg)}
        self._made: dict[int, list[str | int]] = {}
        self._kept: list[torch.Tensor] = []  # so that no memory is used again
        self.biases: dict[str | int, str | int] = {}
        """The matrix by its bias: names of parameters, or positions of arguments. A table is its own matrix."""
        self.takers: dict[str | int, set[bool]] = {}
        """Whether what takes an argument or weight is a product."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call."""
        out = func(*args, **(kwargs or {}))
        if func.is_view:
            return out
        name, given, made = func.overloadpacket.__name__, dense(args, kwargs), dense(out)
        named = [(self._names[memory(one)], one) for one in given if memory(one) in self._names]
        self._kept += made
        if name in SAME_NUMBERS:
            self._names |= {memory(one): named[-1][0] for one in made if named}
            return out
        wide = [one for one, tensor in named if _is_wide(tensor)]
        if name in _PICKS:
            self.biases.update((one, one) for one in wide if isinstance(one, str))
        layer = name in PRODUCTS and bool(wide)
        matrices = wide if layer else [one for tensor in given for one in self._made.get(memory(tensor), ())]
        if layer or name.rstrip("_") in ("add", "sub"):
            for bias in (one for one, tensor in named if not _is_wide(tensor)):
                alike = [one for one in matrices if type(one) is type(bias)]
                self.biases.update((bias, one) for one in alike[-1:])
            self._made |= {memory(one): matrices for one in made if matrices}
        for one, _ in named:
            self.takers.setdefault(one, set()).add(layer)
        return out


def _is_wide(tensor: torch.Tensor) -> bool:
    """Whether it is no vector, nor one that is spread out."""
    return sum(size > 1 and bool(step) for size, step in zip(tensor.shape, tensor.stride(), strict=True)) > 1


def _with_far_mean(problem: ModuleProblem, made: Survey, offered: Sequence[str]) -> list[str]:
    """What is offered, without ``far_mean`` where half types have too few digits for it, or nothing would move. Says
    which biases and tables it moves, but where a softmax would be of scores that are as far from 0.
    """
    softmax = any("softmax" in name or "attention" in name for name in made.operators)
    if "far_mean" in offered and problem.inside is None and not softmax:
        _shift(problem)
    moves = problem.inside is None and (bool(problem.shifted) or any(map(is_float, problem.inputs(1))))
    return [name for name in offered if name != "far_mean" or moves]


def _shift(problem: ModuleProblem) -> None:
    """Have ``problem.shifted`` hold the biases that may be moved as a whole with no change of an output, because a mean
    is taken off behind, and ``problem.behind_layers`` the inputs that layers alone take then.
    """
    args, weights = problem.inputs(1), problem.weights(0)
    own, layers = problem.oracle(args, weights), _Layers(args, weights)
    with layers:
        problem.reference(args, weights)
    tables = {one for one, matrix in layers.biases.items() if one == matrix}
    known = [one for one in sorted(layers.biases, key=str) if isinstance(one, int) or one in problem.parameters]
    biases = [one for one in known if one not in tables or True not in layers.takers[one]]
    values: dict[Any, Any] = weights | dict(enumerate(args))
    for bias in [one for one in biases if is_float(values[one])][:_MOST_BIASES]:
        shifted, before = dict.fromkeys(problem.tied(bias), layers.biases[bias]), values[bias].double()
        moved = moved_biases(values | dict.fromkeys(shifted, before), shifted, _SHIFT)
        if moved[bias] is before:
            continue
        with contextlib.suppress(UsageError):  # the file takes no such numbers
            others = problem.oracle([moved[i] for i in range(len(args))], {name: moved[name] for name in weights})
            if not any(depends(a, b, _SAME) for a, b in zip(own, others, strict=True)):
                problem.shifted = {**problem.shifted, **shifted}
    if problem.shifted:
        behind = {one for one, takers in layers.takers.items() if takers == {True}} | problem.shifted.keys()
        problem.behind_layers = frozenset(one for one in behind if isinstance(one, int))


_HIDES_SMALL = 50.0
"""A file that has a number below minus this may hide scores with it that are small, as Swin does with -100."""


def _louder(problem: ModuleProblem, made: Survey) -> Mapping[str, tuple[float, float]] | None:
    """What ``problem.louder`` is; empty: no scores are small; None: the file does not take larger ones. Where a layer
    makes decays, inputs stay under ``large_scale``, and its steps are large in place of scores.
    """
    before, weights = problem.spared, problem.weights(0)
    if problem.decays:
        floats = frozenset(index for index, arg in enumerate(problem.inputs(1)) if is_float(arg))
        problem.spared = {**before, "large_scale": floats}
    scores = Scores({name: weights[name] for name in problem.parameters})
    with contextlib.suppress(UsageError):  # the file takes no large inputs
        args = problem.inputs(1, "large_scale")
        with scores:
            problem.reference(args, weights)
    wide = {
        name: change
        for name, change in (scores.steps() if problem.decays else scores.changes()).items()
        if weights[name].itemsize > 2
    }
    problem.louder = {str(one): change for name, change in wide.items() for one in problem.tied(name)}
    taken = bool(problem.louder) and problem.inside is None  # half types have too few digits
    taken = taken and not hides(problem.file.text, _HIDES_SMALL)
    taken = taken and agrees(problem, problem.weights(0, "large_scale"), "large_scale")
    if taken and not ("topk" in made.operators and selects_among_equals(problem)):
        return problem.louder
    wanted, problem.louder, problem.spared = problem.louder, {}, before
    return None if wanted and not problem.decays else {}


def _is_near_far_from_zero(problem: ModuleProblem) -> bool:
    """Whether the problem is near fp64 at one of the far means, with its biases moved or else, where other numbers move
    too, without.
    """
    found = (problem.shifted, problem.behind_layers)
    none: tuple[Mapping[str | int, str | int], frozenset[int]] = ({}, frozenset())
    others = problem.shifted and any(map(is_float, problem.inputs(1)))
    for shifted, behind in (found, none) if others else (found,):
        problem.shifted, problem.behind_layers = shifted, behind
        for far in FAR_MEANS:
            problem.far = far
            if agrees(problem, problem.weights(0, "far_mean"), "far_mean"):
                return True
    return False


def _defined(problem: ModuleProblem, distribution: str) -> bool:
    """Whether the problem is defined there, if need be with a positive factor (``problem.unsigned``), or at the smaller
    of the far means (``problem.far``), or with both signs in every tensor (``problem.sided``).
    """
    weights = problem.weights(1 if distribution == "trained" else 0, distribution)
    if distribution == "negative":
        problem.sided = False
        problem.sided = all(agrees_on(problem, args, weights, distribution) for args in problem.of_one_sign(1))
    if agrees(problem, weights, distribution):
        return True
    if distribution == "far_mean":
        return _is_near_far_from_zero(problem)
    if distribution == "negative":
        problem.sided = False
        return agrees(problem, weights, distribution) or _takes_some(problem, weights, distribution)
    if distribution not in SIGNED:
        return _takes_some(problem, weights, distribution)
    problem.unsigned |= {distribution}
    if not agrees(problem, weights, distribution):
        problem.unsigned -= {distribution}
    return distribution in problem.unsigned or _takes_some(problem, weights, distribution)


def _takes_some(problem: ModuleProblem, weights: Mapping[str, torch.Tensor], distribution: str) -> bool:
    """Whether the problem is defined there if some arguments stay as they are drawn (``problem.spared``), as
    probabilities do beside logits.
    """
    if distribution in _OF_DRAWS:
        return False
    try:
        plain, others = problem.inputs(1), problem.inputs(1, distribution)
    except UsageError:
        return False
    changed = frozenset(i for i in _changed(plain, others) if is_float(plain[i]))
    before, takers = problem.spared, set[int]()
    for index in sorted(changed) if 1 < len(changed) <= _MOST_SPARED else ():
        problem.spared = {**before, distribution: changed - {index}}
        takers |= {index} if agrees(problem, weights, distribution) else set()
    problem.spared = {**before, distribution: changed - takers}
    if takers and takers != changed and agrees(problem, weights, distribution):
        return True
    problem.spared = before
    return False
