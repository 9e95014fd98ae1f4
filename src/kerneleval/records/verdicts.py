"""What the judge says of one candidate on one task and device, what a run gives, and the layers of judging.

A layer says which part of the judge a failure or a finding comes from. It is not stored: it follows from stage, reason
and check, so verdicts of the past have their layers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kerneleval.records.cells import Machine, Origin, Protocol
from kerneleval.records.outcomes import (
    TOLD_APART,
    Claim,
    ClockBound,
    Failed,
    Finding,
    Ghost,
    Outcome,
    Passed,
    Timing,
    TrackEvidence,
)
from kerneleval.records.plain import OPTIONAL
from kerneleval.records.tasks import Case
from kerneleval.records.vocabulary import Direction

__all__ = [
    "LAYERS",
    "CellResult",
    "Conditions",
    "Event",
    "OnEvent",
    "Pooled",
    "Result",
    "Score",
    "SpeedupSummary",
    "Trust",
    "Verdict",
    "caught_by",
    "layer_of",
    "layer_of_finding",
    "layers_of",
    "own_sizes_only",
    "pooled",
    "refusals",
    "tell",
]


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How well the untrusted side was really contained."""

    level: str
    """``strong``, ``standard``, ``weak`` (``docs/threat-model.md``)."""
    layers: tuple[str, ...] = ()
    """Layers in force: ``process``, ``rlimits``, ``no_new_privs``, ``uid``, ``netns``, ``landlock`` ..."""
    missing: tuple[str, ...] = ()
    """``layer: why`` for each layer that could not be had."""


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """What came out at one case."""

    case: Case
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class SpeedupSummary:
    """Geometric mean of the speedups of the timed cells of one direction, with its 95 % interval."""

    value: float
    """Baseline time over candidate time."""
    low: float
    high: float
    claim: Claim
    """As of a cell's timing."""
    cells: int
    direction: Direction = "forward"
    """``backward`` only where no forward cell was timed."""
    time: Literal["call", "device", "mixed"] = field(default="call", metadata=OPTIONAL)
    """Which time of a call the cells' speedups are of; ``mixed``: some have no device time."""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The geometric mean of the speedups of some cells, in logarithms. The cells are a fixed set: only their errors of
    measurement, independent of one another, make the mean uncertain.
    """

    centre: float
    halves: tuple[float, ...]
    """Half of each cell's 95 % interval without what could be forged, which has one sign in every cell and is no
    scatter."""
    own_half: float
    """The same of the mean."""
    margin: float
    """How far a candidate could have forged the mean: less than the mean of the cells' margins, as the clock's errors
    of windows average out."""
    noise: float
    """Mean noise floor, as a ratio minus 1."""

    @property
    def half(self) -> float:
        """Half the 95 % interval with what could be forged."""
        return self.own_half + self.margin


def pooled(timings: Sequence[Timing]) -> Pooled:
    """The mean of timings, of which there is one at least; each has an interval."""
    n = len(timings)
    margins, bounds = [math.log1p(t.margin) for t in timings], [t.clock for t in timings]
    clocked = ClockBound.mean(bounds).margin if any(bounds) else 0.0
    halves = tuple(
        math.log(t.high / t.low) / 2 - (margin if margin >= TOLD_APART else 0.0)
        for t, margin in zip(timings, margins, strict=True)
    )
    return Pooled(
        centre=sum(math.log(t.speedup) for t in timings) / n,
        halves=halves,
        own_half=math.hypot(*halves) / n,
        margin=clocked + sum(m for t, m in zip(timings, margins, strict=True) if t.clock is None) / n,
        noise=sum(t.noise for t in timings) / n,
    )


Reading = Mapping[str, Any]
"""What a device says of its state by name: numbers, texts or lists of texts; which names depends on the device."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Clocks, temperature, power, throttling and other work on the machine, as the device reports them."""

    first: Reading | None = field(default=None, metadata=OPTIONAL)
    """After the first timed cell; None: nothing was timed."""
    last: Reading | None = field(default=None, metadata=OPTIONAL)
    """After the last timed cell; None: nothing was timed."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Everything that the judge says of one candidate on one task and device."""

    verdict: Literal["passed", "failed", "not_judged"]
    """``passed``: right in every supported case, honest, on an allowed track; ``not_judged``: the task does not settle
    what is right, so nothing is said of the candidate (in runs only)."""
    stage: str
    """Stage of the first failure, or of the last stage passed."""
    reason: str
    """Slug of the first failure; ``ok`` when passed; of what is not judged :attr:`NotJudgedError.reason`."""
    message: str
    task: str
    candidate: str
    """Content hash of the candidate."""
    track: str
    """One of :data:`TRACKS`; empty: not decided, because it failed before."""
    trust: Trust
    """Containment that was really reached."""
    machine: Machine
    protocol: Protocol
    speedup: SpeedupSummary | None
    """Over the timed cells; None: nothing was timed."""
    cells: tuple[CellResult, ...]
    findings: tuple[Finding, ...] = ()
    replay: str = ""
    """Command line that judges the failing cell (or the candidate) again."""
    seconds: float = 0.0
    conditions: Conditions = field(default_factory=Conditions)
    """The state of the machine meanwhile."""


def own_sizes_only(verdict: Verdict) -> bool:
    """Whether a problem file was judged at its own sizes and at no others."""
    return verdict.task.startswith("kernelbench:") and len({cell.case.dims for cell in verdict.cells}) == 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """One step of a long job, for progress displays."""

    kind: str
    """The bar that it belongs to: ``generate``, ``build``, ``judge`` ...; ``note``: to none, its text is a line
    that stays."""
    done: int
    total: int
    """Steps in all; 0: not known."""
    text: str = ""
    """What is being done now, one line."""


OnEvent = Callable[[Event], None]
"""Called as a job proceeds."""


def tell(on_event: OnEvent | None, kind: str, done: int, total: int, text: str) -> None:
    """Report progress, if anyone listens."""
    if on_event is not None:
        on_event(Event(kind=kind, done=done, total=total, text=text))


@dataclass(frozen=True, kw_only=True)
class Result:
    """One stored outcome with all that scores group by."""

    run: str
    generator: str
    sample: int
    """Sample index of the candidate for its task."""
    candidate: str
    """Content hash; empty: the generator gave no candidate."""
    task: str
    category: str
    level: int
    device: str
    machine: str
    """Fingerprint of the machine."""
    case: Case
    outcome: Outcome
    group: str = ""
    """The task's category in KernelBench-X's taxonomy, one of :data:`GROUPS`; empty: none, or not known."""
    origin: Origin = field(default_factory=Origin)
    """Where the candidate came from and what it cost to make; of all cells of one sample the same."""
    judged_s: float = math.nan
    """Wall time of judging the whole sample, seconds; NaN: not judged."""
    protocol_version: int = Protocol.version
    """:attr:`Protocol.version` of its run: by which rule it was timed (``scores/common/rules.py``)."""


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


LAYERS: dict[str, str] = {
    "build": "it compiles, loads and has an entry point",
    "sandbox": "the limits of its process: crashes, time, memory, output",
    "wire": "the worker answers as the protocol says",
    "behavioural": "what calls do besides their outputs: exceptions, inputs changed, memory shared, sizes left out",
    "numerical": "outputs against the oracle, and relations between them",
    "launch": "operators dispatched and own kernels launched, from which the track follows",
    "ghost": "calls with own kernels made no-ops: what is right without them was computed elsewhere",
    "temporal": "outputs of the windows that are timed, and whether their times can be true",
    "tampering": "what it did to the worker, and to functions that everybody relies on",
    "static": "what its sources say; it warns, and fails only what must quantise and names no narrow arithmetic",
}
"""What each layer looks at, in the order in which they are shown."""

_REASONS = {
    "build": "build_error load_error missing",
    "sandbox": "crash device_error exit memory_limit output_flood timeout",
    "wire": "protocol",
    "behavioural": "exception hard_coded_shapes input_mutation output_alias output_overwritten output_reused"
    " refuses_values refuses_when_timed unjoined_work unsupported weights_mismatch",
    "numerical": "broken_relation dependent_draws missing_gradient not_reproducible wrong_count wrong_device"
    " wrong_dtype wrong_in_training wrong_output wrong_shape wrong_type",
    "launch": "track_not_allowed wrong_when_watched",
    "ghost": "decoy_kernel",
    "temporal": "impossible",
    "tampering": "tampering",
    "static": "not_quantised",
}
"""Layer -> the reasons of failures that come from it."""

_CHECKS = {
    "numerical": "drawing far_offsets order relations secret_shapes training",
    "launch": "track",
    "temporal": "conditions limits timing",
    "tampering": "tampering",
    "static": "low_precision resources static uses",
}
"""Layer -> the checks whose findings come from it."""

_BY_REASON = {reason: layer for layer, reasons in _REASONS.items() for reason in reasons.split()}
_BY_CHECK = {check: layer for layer, checks in _CHECKS.items() for check in checks.split()}

_GHOST: dict[Ghost, str] = {
    "decoy": "right without its kernels",
    "little": "nearly right without its kernels",
    "needed": "its kernels are needed",
}


def layer_of(stage: str, reason: str, check: str = "") -> str:
    """The layer that a failure (by stage and reason) or a finding (by check, where it has no reason) comes from.

    Empty where it comes from none: nothing failed, or a check or reason that this version does not know.
    """
    layer = _BY_REASON.get(reason) or _BY_CHECK.get(check, "")
    return "temporal" if stage == "timing" and layer == "numerical" else layer


def layer_of_finding(finding: Finding) -> str:
    """The layer of a finding of a verdict."""
    return layer_of(finding.stage, finding.reason, finding.check)


def caught_by(verdict: Verdict) -> str:
    """The layer that made the verdict fail; empty: it passed."""
    return "" if verdict.verdict != "failed" else layer_of(verdict.stage, verdict.reason)


def layers_of(verdict: Verdict) -> dict[str, str]:
    """What each layer found, in a few words; layers that had nothing to say are left out."""
    words = {layer: _words(verdict, layer) for layer in LAYERS}
    return {layer: ", ".join(said) for layer, said in words.items() if said}


def _words(verdict: Verdict, layer: str) -> list[str]:
    outcomes = [cell.outcome for cell in verdict.cells]
    failed = [o for o in outcomes if isinstance(o, Failed) and o.reason != "unsupported"]
    here = sum(layer_of(o.stage, o.reason) == layer for o in failed)
    said: list[str] = []
    if layer == "numerical":
        right = sum(isinstance(o, Passed) for o in outcomes)
        said += [f"{right}/{right + len(failed)} right"] if right or here else []
    elif here:
        said.append(_counted(here, "case") + " failed")
    if layer == "temporal":
        timed = sum(isinstance(o, Passed) and o.timing is not None for o in outcomes)
        said += [f"{timed} timed"] if timed else []
    elif layer == "launch" and verdict.track:
        said.append(verdict.track)
    elif layer == "ghost":
        tracked = (f.evidence for f in verdict.findings)
        said += [_GHOST[of.ghost] for of in tracked if isinstance(of, TrackEvidence) and of.ghost][:1]
    own = [f for f in verdict.findings if layer_of_finding(f) == layer]
    for level, noun in (("fail", "failure"), ("warn", "warning")):
        count = sum(f.level == level for f in own)
        said += [_counted(count, noun)] if count else []
    return said


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def refusals(outcomes: Iterable[Outcome]) -> str:
    """How many cases the candidate declares unsupported, and how many cannot be judged in its language; empty: none."""
    refused = [o for o in outcomes if isinstance(o, Failed) and o.reason == "unsupported"]
    missing = [o.message for o in refused if o.stage == "load"]
    parts = [f"{len(refused) - len(missing)} declared unsupported"] if len(missing) < len(refused) else []
    if missing:
        parts.append(f"{len(missing)} not judged ({'; '.join(dict.fromkeys(missing))})")
    return ", ".join(parts)
