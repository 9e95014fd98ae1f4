"""Every frozen record that travels between the stages. Standard library only.

Records are values: frozen, keyword-only, comparable. Whatever is stored or sent is built from plain data
(``str``, ``int``, ``float``, ``bool``, ``None``, lists and dicts of them); :func:`to_plain` and each record's
``from_plain`` convert both ways and validate on the way in.

Units stand in the field names: ``_ns`` nanoseconds, ``_s`` seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

__all__ = [
    "CATEGORIES",
    "DIRECTIONS",
    "DISTRIBUTIONS",
    "DTYPES",
    "LAYOUTS",
    "SHAPE_CATEGORIES",
    "STAGES",
    "TRACKS",
    "Argument",
    "Candidate",
    "Case",
    "Cell",
    "CellResult",
    "Dim",
    "Event",
    "Evidence",
    "Failed",
    "InfrastructureError",
    "KernelEvalError",
    "Machine",
    "Origin",
    "Outcome",
    "Passed",
    "Protocol",
    "Relation",
    "Result",
    "Samples",
    "Scalar",
    "Score",
    "Task",
    "TensorSpec",
    "Timing",
    "Tolerance",
    "Trust",
    "UsageError",
    "Verdict",
    "digest",
    "near",
    "new_secret",
    "outcome_from_plain",
    "to_plain",
]

# --------------------------------------------------------------------------------------------------------------------
# Errors. The whole tree:
#
# KernelEvalError              anything this package raises on purpose
# ├── UsageError               the caller's input is wrong: the message names the value, the place and the fix (exit 2)
# └── InfrastructureError      the machine, not the candidate, is at fault (exit 2)
# --------------------------------------------------------------------------------------------------------------------


class KernelEvalError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(KernelEvalError):
    """The caller's input is wrong; the message names the bad value, where it stands and what would be right."""


class InfrastructureError(KernelEvalError):
    """The machine (device, disk, compiler, store) failed, not the candidate; the message says what to do."""


# --------------------------------------------------------------------------------------------------------------------
# Vocabulary
# --------------------------------------------------------------------------------------------------------------------

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")

CATEGORIES: tuple[str, ...] = (
    "elementwise",
    "reduction",
    "gemm",
    "convolution",
    "normalization",
    "attention",
    "fused",
)
"""The seven operator categories of KernelEval's coverage axis."""

SHAPE_CATEGORIES: tuple[str, ...] = (
    "tiny",
    "small",
    "medium",
    "large",
    "power_of_two",
    "non_power_of_two",
    "rectangular",
    "square",
)
"""The eight shape categories of KernelEval's robustness axis."""

DISTRIBUTIONS: tuple[str, ...] = (
    "standard",
    "outlier",
    "large_scale",
    "small_scale",
    "constant",
    "zeros",
    "nonfinite",
)
"""Input distributions; ``outlier`` multiplies 0.1 % of the elements by 50 (KernelBench-X)."""

LAYOUTS: tuple[str, ...] = ("contiguous", "transposed", "sliced", "offset", "expanded")
"""Memory layouts of the inputs."""

DTYPES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Element types by torch's name, with their size in bytes."""

TRACKS: tuple[str, ...] = ("custom", "mixed", "library")
"""What a candidate is, by what it does: all arithmetic in its own kernels, some of it, none of it."""

STAGES: tuple[str, ...] = ("generate", "build", "load", "call", "correctness", "honesty", "timing")
"""The stages of a verdict, in the order in which they can fail; ``generate``: there was no candidate at all."""


# --------------------------------------------------------------------------------------------------------------------
# Hashing and plain data
# --------------------------------------------------------------------------------------------------------------------


def digest(*parts: str | bytes) -> str:
    """SHA-256 (hex, 64 characters) over length-prefixed parts, so that no two lists of parts collide by joining."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def to_plain(value: Any) -> Any:
    """A record as JSON-ready plain data; NaN and infinities become the strings ``nan``, ``inf``, ``-inf``.

    Raises:
        TypeError: for a value that is no record and no plain data (a callable, a tensor).
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, (Passed, Failed)):
            plain["passed"] = isinstance(value, Passed)
        return plain
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [to_plain(v) for v in value]
    raise TypeError(f"no plain form for {type(value).__name__}: {value!r:.80}")


def _float(value: Any) -> float:
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"expected a number, got {value!r:.80}")
    return float(value)


# --------------------------------------------------------------------------------------------------------------------
# Tasks: what to solve. Tasks hold callables and stay with the judge; they are never sent to a worker.
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One named dimension of a task and the values that it may take."""

    name: str
    """Upper-case letter or short word: ``M``, ``heads``."""
    low: int = 1
    """Smallest value (inclusive)."""
    high: int = 8192
    """Largest value (inclusive)."""
    multiple_of: int = 1
    """Every sampled value is a multiple of this."""
    scaled: bool = True
    """Whether the shape category sets this dim's range; False: sampled from ``low`` to ``high`` in every category."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor argument (or output) of a task at given dims and dtype."""

    name: str
    """Argument name, as in the operator's signature."""
    shape: tuple[int, ...]
    """Sizes, outermost first."""
    dtype: str
    """A key of :data:`DTYPES`."""
    role: Literal["data", "weight", "index", "mask", "output"] = "data"
    """``weight`` inputs follow the standard distribution scaled by ``scale`` whatever the case's distribution is."""
    values: Literal["normal", "positive", "uniform", "integers", "bool", "ones_normal", "variance"] = "normal"
    """How standard values are drawn: N(0, 1), |N(0, 1)| + 0.1, U[0, 1), integers in [low, high), fair coin,
    1 + N(0, 0.1), U[0.5, 1.5) (a positive running variance)."""
    low: int = 0
    """Lower bound of ``integers`` (inclusive)."""
    high: int = 2
    """Upper bound of ``integers`` (exclusive)."""
    scale: float = 1.0
    """Factor on the drawn values (e.g. fan-in ** -0.5 for weights, so that outputs stay near unit scale)."""
    differentiable: bool = False
    """Whether backward cases ask for this argument's gradient."""

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
    """Plain data."""


Argument = TensorSpec | Scalar


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How outputs are judged; see ``docs/correctness.md`` for the bounds that follow from it."""

    kind: Literal["float", "exact", "index"] = "float"
    """``float``: error against the fp64 oracle; ``exact``: equal; ``index``: an index is right when the element that it
    selects equals the one that the oracle selects (ties are free)."""
    reduction: Callable[[Mapping[str, int]], int] | None = None
    """dims -> number of terms summed into one output element; None: 1."""
    factor: float = 1.0
    """Multiplies the error floor, for operators with ill-conditioned steps; say why where it is set."""


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
    """(dtype, distribution) -> whether the relation is to be checked there; None: float32 and standard only."""


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
    tolerance: Tolerance = field(default_factory=Tolerance)
    """How outputs are judged."""
    relations: tuple[Relation, ...] = ()
    """Metamorphic relations."""
    constraint: Callable[[Mapping[str, int]], bool] | None = None
    """dims -> whether they are allowed together; None: all are."""
    distributions: tuple[str, ...] = ("standard", "outlier", "large_scale", "small_scale", "constant", "zeros")
    """The distributions that the operator defines (``nonfinite`` only where IEEE semantics say what comes out)."""
    layouts: tuple[str, ...] = LAYOUTS
    """The layouts in which its data arguments are given."""
    empty: bool = False
    """Whether the operator is defined when a dimension is 0."""
    in_place: tuple[str, ...] = ()
    """Names of arguments that the operator may change; empty: none."""
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
    layout: str = "contiguous"
    """One of :data:`LAYOUTS`."""
    distribution: str = "standard"
    """One of :data:`DISTRIBUTIONS`."""
    shape_category: str = "medium"
    """The category from which the dims were sampled, or ``edge`` / ``given``."""

    @property
    def dims_map(self) -> dict[str, int]:
        """The dims as a dict."""
        return dict(self.dims)

    @property
    def key(self) -> str:
        """Readable identity: ``gelu/forward/M=4,N=7/float32/contiguous/standard``."""
        dims = ",".join(f"{n}={v}" for n, v in self.dims)
        return "/".join((self.task, self.direction, dims, self.dtype, self.layout, self.distribution))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Case:
        """Inverse of :func:`to_plain`; raises UsageError when a field is missing, unknown or out of its vocabulary."""
        values = _fields(cls, plain)
        values["dims"] = tuple((str(n), int(v)) for n, v in values["dims"])
        for name, known in (("direction", DIRECTIONS), ("layout", LAYOUTS), ("distribution", DISTRIBUTIONS)):
            if name in values and values[name] not in known:
                raise UsageError(f"case: {name} {values[name]!r} is unknown; known are {', '.join(known)}")
        return cls(**values)


# --------------------------------------------------------------------------------------------------------------------
# Candidates
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a candidate came from and what it cost to make."""

    generator: str = "file"
    """Name of the generator."""
    model: str = ""
    """Model behind the generator, if any."""
    prompt_hash: str = ""
    """Hash of the rendered prompt, if any."""
    sample: int = 0
    """Index among the samples for the same task."""
    parent: str = ""
    """Content hash of the candidate that this one refines, if any."""
    tokens_in: int = 0
    """Prompt tokens."""
    tokens_out: int = 0
    """Completion tokens."""
    money_usd: float = 0.0
    """Price of making it, in US dollars."""
    seconds: float = 0.0
    """Wall time of making it."""
    human_edits: int = -1
    """Lines that a human changed; -1: not known."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Origin:
        """Inverse of :func:`to_plain`; raises UsageError for unknown fields or wrong types."""
        return _checked(cls, plain)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Source files that claim to solve a task. Identity is the content, the language and the entry point."""

    files: tuple[tuple[str, str], ...]
    """(relative path, text) pairs, the main file first."""
    language: str
    """A name under ``languages/``."""
    entry: str = ""
    """Name of the forward entry point; empty: found by convention (``docs/candidates.md``)."""
    backward_entry: str = ""
    """Name of the explicit backward entry point; empty: found by convention, else autograd through forward."""
    origin: Origin = field(default_factory=Origin)
    """Where it came from; not part of the identity."""

    @property
    def hash(self) -> str:
        """SHA-256 over language, entry points and files."""
        parts = [self.language, self.entry, self.backward_entry]
        for path, text in self.files:
            parts += [path, text]
        return digest(*parts)

    @property
    def main(self) -> str:
        """Text of the main file."""
        return self.files[0][1]

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Candidate:
        """Inverse of :func:`to_plain`."""
        values = _fields(cls, plain)
        values["files"] = tuple((str(p), str(t)) for p, t in values["files"])
        values["origin"] = Origin.from_plain(values.get("origin") or {})
        return cls(**values)


# --------------------------------------------------------------------------------------------------------------------
# Machines, protocols and results
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device and host on which a result holds."""

    device: str
    """Device kind: a name under ``devices/``."""
    name: str
    """Product name of the device."""
    arch: str
    """Architecture: ``sm_90``, ``gfx942``, ``x86_64``."""
    memory_bytes: int
    """Device memory."""
    cache_bytes: int
    """Last-level cache."""
    units: int
    """Multiprocessors, or cores."""
    driver: str
    """Driver or kernel version."""
    torch: str
    """PyTorch version."""
    triton: str = ""
    """Triton version; empty: absent."""
    host: str = ""
    """Host processor."""

    @property
    def fingerprint(self) -> str:
        """Short hash (16 hex digits) over every field."""
        return digest(*(str(getattr(self, f.name)) for f in dataclasses.fields(self)))[:16]

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Machine:
        """Inverse of :func:`to_plain`."""
        return _checked(cls, plain)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything the judge may vary; part of a result's identity, so results under different protocols never mix."""

    tier: Literal["quick", "standard", "precise"] = "standard"
    """Timing effort (``docs/timing.md``)."""
    baseline: str = "eager"
    """What speedup is measured against: ``eager`` or ``compile``."""
    shapes: Literal["default", "sweep"] = "default"
    """``sweep`` varies a peer problem's own sizes too."""
    dtypes: tuple[str, ...] = ()
    """Restrict to these dtypes; empty: the task's."""
    directions: tuple[str, ...] = ()
    """Restrict to these directions; empty: the task's."""
    categories: tuple[str, ...] = ()
    """Restrict to these shape categories; empty: all."""
    distributions: tuple[str, ...] = ()
    """Restrict to these distributions; empty: the planner's choice."""
    timed: bool = True
    """Whether correct candidates are timed."""
    timed_dtypes: tuple[str, ...] = ()
    """Dtypes in which cells are timed; empty: the first dtype judged."""
    allow: tuple[str, ...] = ("custom", "mixed")
    """Tracks that may pass."""
    tf32: bool = False
    """Whether TF32 is allowed in fp32 tasks, for the baseline and in the tolerance."""
    suite_seed: int = 0
    """Public seed of the sampled shapes, so that all candidates of a run meet the same cells. Inputs use secrets."""
    version: int = 1
    """Raised whenever the meaning of a stored result changes."""

    @property
    def key(self) -> str:
        """Hash (16 hex digits) of every field."""
        return digest(*(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self)))[:16]

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Protocol:
        """Inverse of :func:`to_plain`; raises UsageError for unknown fields or wrong types."""
        return _checked(cls, plain)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Candidate x case x machine x protocol: the unit that is judged, stored and cached."""

    candidate: str
    """Content hash of the candidate."""
    case: Case
    """The point."""
    machine: str
    """Fingerprint of the machine."""
    protocol: str
    """Key of the protocol."""

    @property
    def key(self) -> str:
        """SHA-256 of all parts."""
        return digest(self.candidate, self.case.key, self.case.shape_category, self.machine, self.protocol)


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Raw timing samples of one cell; statistics are computed on reading.

    The i-th entries of all tuples belong to the same window pair: two windows over inputs of equal content, one in the
    candidate's worker, one in the baseline's.
    """

    candidate_ns: tuple[float, ...] = ()
    """Verified time of one call, by the judge's clock, empty-window time taken off."""
    baseline_ns: tuple[float, ...] = ()
    """The same of the baseline."""
    candidate_event_ns: tuple[float, ...] = ()
    """Device time of one call as the candidate's worker claims it; empty where the device has no events."""
    baseline_event_ns: tuple[float, ...] = ()
    """The same of the baseline's worker."""
    calls: int = 0
    """Calls in one window."""
    sessions: tuple[int, ...] = ()
    """Session index of each pair (a session is a fresh pair of processes)."""
    empty_ns: float = 0.0
    """What a window costs beyond its calls (median, measured on the baseline), taken off each window."""
    empty_spread_ns: float = 0.0
    """How far that cost scattered over the baseline's windows (standard deviation)."""
    cache: str = "cold"
    """``cold``: a window's inputs exceed three times the last-level cache; ``warm`` otherwise."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Samples:
        """Inverse of :func:`to_plain`."""
        values = _fields(cls, plain)
        for name in ("candidate_ns", "baseline_ns", "candidate_event_ns", "baseline_event_ns"):
            values[name] = tuple(_float(v) for v in values.get(name, ()))
        values["sessions"] = tuple(int(v) for v in values.get("sessions", ()))
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A cell's time: the raw samples and what is claimed from them."""

    samples: Samples
    """Raw samples."""
    speedup: float
    """Geometric mean of baseline over candidate time."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    noise: float
    """Noise floor of this machine and duration class, as a ratio minus 1 (0.01 is 1 %)."""
    claim: Literal["faster", "slower", "equal", "inconclusive"]
    """``faster``/``slower``: the interval excludes 1 and the effect exceeds the noise floor; ``equal``: the interval
    lies within the noise floor around 1; else ``inconclusive``."""
    device_time: str = "none"
    """What became of the worker's own device time: ``accepted``, ``rejected: why`` or ``none``."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Timing:
        """Inverse of :func:`to_plain`."""
        values = _fields(cls, plain)
        values["samples"] = Samples.from_plain(values["samples"])
        for name in ("speedup", "low", "high", "noise"):
            values[name] = _float(values[name])
        return cls(**values)


Evidence = dict[str, Any]
"""Plain data that supports an outcome: error figures, bounds, the worst element, findings."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The candidate was right here."""

    timing: Timing | None = None
    """None: this cell is not timed."""
    evidence: Evidence = field(default_factory=dict)
    """Error against the oracle, the native error, the bound."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The candidate failed here."""

    stage: str
    """One of :data:`STAGES`."""
    reason: str
    """Slug: ``wrong_output``, ``timeout``, ``crash`` ... (``docs/verdicts.md``)."""
    message: str = ""
    """One sentence for people: what, where, how much."""
    evidence: Evidence = field(default_factory=dict)
    """What supports it."""
    replay: str = ""
    """The command line that judges just this cell again."""


Outcome = Passed | Failed


def outcome_from_plain(plain: Mapping[str, Any]) -> Outcome:
    """Inverse of :func:`to_plain` for outcomes; raises UsageError for what is neither."""
    values = dict(plain)
    passed = values.pop("passed", None)
    if passed is True:
        values = _fields(Passed, values)
        timing = values.get("timing")
        values["timing"] = None if timing is None else Timing.from_plain(timing)
        return Passed(**values)
    if passed is False:
        return Failed(**_fields(Failed, values))
    raise UsageError(f"outcome: field 'passed' must be true or false, got {passed!r:.80}")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How well the untrusted side was really contained."""

    level: str
    """``strong``, ``standard``, ``weak`` (``docs/threat-model.md``)."""
    layers: tuple[str, ...] = ()
    """Layers in force: ``process``, ``rlimits``, ``no_new_privs``, ``uid``, ``netns``, ``landlock`` ..."""
    missing: tuple[str, ...] = ()
    """``layer: why`` for each layer that could not be had."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Trust:
        """Inverse of :func:`to_plain`; raises UsageError for unknown fields or wrong types."""
        return _checked(cls, plain)


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came out at one case."""

    case: Case
    """The point."""
    outcome: Outcome
    """What came out."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Everything that the judge says of one candidate on one task and device."""

    verdict: Literal["passed", "failed"]
    """``passed``: right in every supported case, honest, on an allowed track."""
    stage: str
    """Stage of the first failure, or of the last stage passed."""
    reason: str
    """Slug of the first failure; ``ok`` when passed."""
    message: str
    """One sentence for people."""
    task: str
    """Task name."""
    candidate: str
    """Content hash of the candidate."""
    track: str
    """One of :data:`TRACKS`; empty: not decided, because it failed before."""
    trust: Trust
    """Containment that was really reached."""
    machine: Machine
    """Where it was judged."""
    protocol: Protocol
    """How it was judged."""
    speedup: dict[str, Any] | None
    """``value``, ``low``, ``high``, ``claim``, ``cells`` over the timed forward cells; None: nothing was timed."""
    cells: tuple[CellResult, ...]
    """Every case judged."""
    findings: tuple[Evidence, ...] = ()
    """Warnings and evidence of the honesty checks, each with ``check``, ``level`` (``info``, ``warn``, ``fail``) and
    ``message``."""
    replay: str = ""
    """Command line that judges the failing cell (or the candidate) again."""
    seconds: float = 0.0
    """Wall time of judging."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """``first`` and ``last``: what the device told of clocks, temperature, throttling and other work after the first
    and after the last timed cell; empty: nothing was timed."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Verdict:
        """Inverse of :func:`to_plain`; raises UsageError when a field is missing or unknown."""
        values = _fields(cls, plain)
        values["trust"] = Trust.from_plain(values["trust"])
        values["machine"] = Machine.from_plain(values["machine"])
        values["protocol"] = Protocol.from_plain(values["protocol"])
        if values["speedup"] is not None:
            values["speedup"] = {
                k: _float(v) if k in ("value", "low", "high") else v for k, v in values["speedup"].items()
            }
        values["cells"] = tuple(
            CellResult(case=Case.from_plain(c["case"]), outcome=outcome_from_plain(c["outcome"]))
            for c in values["cells"]
        )
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Result:
    """One stored outcome with all that scores group by."""

    run: str
    """Run identifier."""
    generator: str
    """Generator name."""
    sample: int
    """Sample index of the candidate for its task."""
    candidate: str
    """Content hash; empty: the generator gave no candidate."""
    task: str
    """Task name."""
    category: str
    """Operator category of the task."""
    level: int
    """Level of the task."""
    device: str
    """Device kind."""
    machine: str
    """Fingerprint of the machine."""
    case: Case
    """The point."""
    outcome: Outcome
    """What came out."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One step of a long job, for progress displays."""

    kind: str
    """The bar that it belongs to: ``generate``, ``build``, ``judge`` ..."""
    done: int
    """Steps done so far."""
    total: int
    """Steps in all; 0: not known."""
    text: str = ""
    """What is being done now, one line."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number with its uncertainty."""

    value: float
    """The estimate; NaN where there is too little data."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    n: int
    """Number of units (cells, groups, tasks) it rests on."""
    note: str = ""
    """What the reader must know: which devices were not evaluated, what was left out."""


# --------------------------------------------------------------------------------------------------------------------
# Reading records back
# --------------------------------------------------------------------------------------------------------------------


def _fields(cls: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise UsageError(f"{cls.__name__}: expected an object, got {plain!r:.80}")
    known = {f.name: f for f in dataclasses.fields(cls)}
    unknown = [str(k) for k in plain if k not in known]
    if unknown:
        raise UsageError(f"{cls.__name__}: unknown field {unknown[0]!r:.80}; known are {', '.join(known)}")
    required = [
        n
        for n, f in known.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and n not in plain
    ]
    if required:
        raise UsageError(f"{cls.__name__}: field {required[0]!r} is missing")
    return {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}


_R = TypeVar("_R")

_SIMPLE: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}


def _checked(cls: type[_R], plain: Mapping[str, Any]) -> _R:
    values = _fields(cls, plain)
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        allowed = _SIMPLE.get(str(f.type))
        if allowed and f.name in values:
            value = values[f.name]
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                raise UsageError(f"{cls.__name__}: field {f.name!r} must be {f.type}, got {value!r:.80}")
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{cls.__name__}: field {f.name!r} must be finite, got {value!r}")
    return cls(**values)


def new_secret() -> int:
    """A fresh 63-bit secret (torch generators take 64-bit signed seeds); never stored before its use, never sent."""
    return secrets.randbits(63)


def near(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the three nearest known ones."""
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    return f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(names)}"
