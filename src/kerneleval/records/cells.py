"""The unit that is judged (candidate x case x machine x protocol), what a machine can do at best (measured peaks and
the two roofs of its roofline), and what a user wants.

The command line and the Python API build :class:`CandidateSpec`, :class:`RunSpec` and :class:`AuditSpec` from their
options, and everything below takes the records. An option is one field: of :class:`Protocol` where it changes the
meaning of a result, else of one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from kerneleval.records.errors import UsageError, near
from kerneleval.records.outcomes import TimeKind
from kerneleval.records.plain import OPTIONAL, FiniteFloat, OneOf, Within, digest, from_plain
from kerneleval.records.tasks import Case, Task

__all__ = [
    "GUIDANCE",
    "STORED",
    "AuditSpec",
    "Candidate",
    "CandidateSpec",
    "Cell",
    "Limits",
    "Machine",
    "Origin",
    "Peak",
    "Peaks",
    "Protocol",
    "ReplaySource",
    "RunSpec",
    "asked",
    "filled",
]

GUIDANCE = ("none", "strategy", "detailed")
"""``none``: the task alone; ``strategy``: the approach (tiling, parallelisation, techniques); ``detailed``: how to
implement it, step by step."""

STORED = "store:"
"""Begins the name of a candidate that is taken from the store, where a file's path could stand; its hash follows."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a candidate came from and what it cost to make."""

    generator: str = "file"
    model: str = ""
    prompt_hash: str = ""
    """Hash of the rendered prompt, if any."""
    sample: int = 0
    """Index among the samples for the same task."""
    parent: str = ""
    """Content hash of the candidate that this one refines, if any."""
    tokens_in: int = 0
    """Prompt tokens."""
    tokens_out: int = 0
    """Completion tokens, those of reasoning included."""
    tokens_cached: int = 0
    """Prompt tokens that the endpoint had in its cache, among ``tokens_in``."""
    tokens_reasoning: int = 0
    """Tokens of reasoning, among ``tokens_out``."""
    money_usd: FiniteFloat = 0.0
    """Price of making it, in US dollars."""
    prices: str = ""
    """List that the price is from, with its date; empty: it was not computed."""
    seconds: FiniteFloat = 0.0
    human_edits: int = -1
    """Lines that a human changed; -1: not known."""
    guidance: Annotated[str, OneOf(("", *GUIDANCE))] = ""
    """What guidance a human gave the generator beyond the task: one of :data:`GUIDANCE`; empty: not recorded."""
    licence: str = ""
    """Licence of the source, an SPDX identifier; empty: not known."""
    round: int = 0
    """Round of refinement in which it was made: 0 is the first answer."""
    path: str = ""
    """Where its file lay when it was read, for replay lines; empty: it was in no file of its own."""


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
    def stored_name(self) -> str:
        """How a command line names it when it is in a store."""
        return f"{STORED}{self.hash[:16]}"

    @property
    def main(self) -> str:
        """Text of the main file."""
        return self.files[0][1]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device and host on which a result holds."""

    device: str
    """Device kind: a name under ``devices/``."""
    name: str
    arch: str
    """Architecture: ``sm_90``, ``gfx942``, ``x86_64``."""
    memory_bytes: int
    cache_bytes: int
    """Last-level cache."""
    units: int
    """Multiprocessors, or cores."""
    driver: str
    """Driver or kernel version."""
    torch: str
    triton: str = ""
    """Triton version; empty: absent."""
    host: str = ""

    @property
    def fingerprint(self) -> str:
        """Short hash (16 hex digits) over every field."""
        return digest(*(str(getattr(self, f.name)) for f in dataclasses.fields(self)))[:16]


_LATER = ("time", "patience_s", "audit")
"""Fields of a protocol that the first ones did not have."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything the judge may vary; part of a result's identity, so results under different protocols never mix."""

    tier: Literal["quick", "standard", "precise"] = "standard"
    """Timing effort (``docs/timing.md``)."""
    baseline: str = "eager"
    """What speedup is measured against: ``eager`` or ``compile``."""
    shapes: Literal["default", "sweep", "real"] = "default"
    """``sweep`` varies a peer problem's own sizes too; ``real``: at the shapes of models alone."""
    dtypes: tuple[str, ...] = ()
    """Restrict to these dtypes; empty: the task's."""
    directions: tuple[str, ...] = ()
    """Restrict to these directions; empty: the task's."""
    categories: tuple[str, ...] = ()
    """Restrict to these shape categories; empty: all."""
    distributions: tuple[str, ...] = ()
    """Restrict to these distributions; empty: the planner's choice."""
    timed: bool = True
    time: TimeKind = field(default="device", metadata=OPTIONAL)
    """Which time of a call speedups are of, where both were measured."""
    timed_dtypes: tuple[str, ...] = ()
    """Dtypes in which cells are timed; empty: the first dtype judged."""
    allow: tuple[str, ...] = ("custom", "mixed")
    """Tracks that may pass."""
    tf32: bool = False
    """Whether TF32 is allowed in fp32 tasks, for the baseline and in the tolerance."""
    patience_s: Annotated[float, Within(1.0, 86400.0)] = field(default=60.0, metadata=OPTIONAL)
    """Seconds for which all calls of a candidate together may keep the judge waiting beyond what it needs itself."""
    suite_seed: int = 0
    """Public seed of the sampled shapes, so that all candidates of a run meet the same cells. Inputs use secrets."""
    version: int = 3
    """Raised whenever the meaning of a stored result changes. 2: a baseline's time of a gradient has a forward call in
    it only where the candidate's has. 3: speedups are of the device time where there is one."""
    audit: str = ""
    """Token of the audit that judges under it, so that what an audit finds neither meets nor replaces the outcomes that
    it is to check; empty: no audit."""

    @property
    def key(self) -> str:
        """Hash (16 hex digits) of every field; later ones count where they are given, so that older keys stay."""
        given = {f.name: getattr(self, f.name) != f.default for f in dataclasses.fields(self)}
        names = [name for name, is_given in given.items() if name not in _LATER or is_given]
        return digest(*(f"{name}={getattr(self, name)!r}" for name in names))[:16]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Candidate x case x machine x protocol: the unit that is judged, stored and cached."""

    candidate: str
    """Content hash of the candidate."""
    case: Case
    machine: str
    """Fingerprint of the machine."""
    protocol: str
    """Key of the protocol."""

    @property
    def key(self) -> str:
        """SHA-256 of all parts."""
        return digest(self.candidate, self.case.key, self.case.shape_category, self.machine, self.protocol)


@dataclass(frozen=True, kw_only=True)
class CandidateSpec:
    """Which candidate is judged, on which task and where."""

    source: str
    """Path of the candidate's file; or ``store:HASH``, the beginning of its hash in the store."""
    task: str | Task
    """Name of a built-in task, path of a problem file, or a task."""
    device: str | None = None
    """Device kind; None: the GPU where there is one, else the CPU."""
    language: str = ""
    """Language of the file; empty: found from its content."""
    entry: str = ""
    """Name of the entry point; empty: by convention (``docs/candidates.md``)."""
    backward_entry: str = ""
    """Name of the explicit backward entry point; empty: by convention."""
    case: str = ""
    """Key of the only case to judge; empty: every case of the plan."""
    fail_fast: bool = False
    """Whether judging ends at the first case that fails: the verdict is the same, and has no later case."""
    store_url: str | None = None
    """Path or URL of the store of a stored candidate; None: ``./kerneleval.db``."""

    @property
    def task_source(self) -> str:
        """What to give as ``--task`` to get the same task."""
        return self.task.name if isinstance(self.task, Task) else self.task


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Which generators run, for which tasks and where, and what that may cost."""

    generators: tuple[str, ...] = ()
    """Names, or paths: of directories with candidates, of files with settings; empty: the archetypes."""
    tasks: tuple[str, ...] = ()
    """Names or paths; empty: the archetypes' suite."""
    device: str | None = None
    """Device kind; None: the GPU where there is one, else the CPU."""
    store_url: str | None = None
    name: str = ""
    """Name of the run, for people; empty: the names of its generators."""
    resume: bool = True
    """Whether an interrupted run of the same plan goes on."""
    target: float | None = None
    """Speedup from which on a correct draft is not refined any more; None: all rounds are used."""
    max_usd: float | None = None
    """Most money that asking may cost, in US dollars, over all calls of this run; None: no limit."""
    max_tokens: int | None = None
    """Most tokens, of prompts and completions together; None: no limit."""
    max_hours: float | None = None
    """Longest time of this call, in hours, asking and judging; None: no limit."""


@dataclass(frozen=True, kw_only=True)
class AuditSpec:
    """Which verdicts of a stored run are judged again, and how."""

    run: str = "latest"
    """Identifier, its beginning, name or ``latest``: the latest run that is no audit."""
    store_url: str | None = None
    device: str | None = None
    """Device kind, one of the run's; None: that of its first machine."""
    only: tuple[str, ...] = ()
    """Names of tasks; empty: all tasks of the run."""
    sample: int = 0
    """Judge this many verdicts, chosen in secret; 0: all."""
    tier: str = ""
    """``quick``, ``standard`` or ``precise``; empty: the run's own."""
    same_shapes: bool = False
    """Judge at the cases of the run; otherwise at those of another, secretly chosen seed, except for tasks that have
    sizes of their own."""
    resume: bool = True
    """Whether an interrupted audit of the same run with the same settings goes on."""


_R = TypeVar("_R")


def filled(kind: type[_R], options: Mapping[str, Any]) -> _R:
    """A record from options by name; lists become tuples. Raises UsageError: an option is no field of the record, or a
    protocol's has a bad value.
    """
    _refuse_unknown(options, _names(kind))
    if kind is Protocol:
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        return from_plain(kind, {field.name: field.default for field in dataclasses.fields(Protocol)} | plain)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


def asked(kind: type[_R], options: Mapping[str, Any]) -> tuple[_R, Protocol]:
    """A record of that kind and a protocol from options by name. Raises UsageError: an option is a field of neither."""
    names = _names(kind)
    _refuse_unknown(options, names | _names(Protocol))
    mine = {name: value for name, value in options.items() if name in names}
    return filled(kind, mine), filled(Protocol, {name: v for name, v in options.items() if name not in names})


def _names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _refuse_unknown(options: Mapping[str, Any], known: set[str]) -> None:
    for name in options:
        if name not in known:
            raise UsageError(f"there is no option {name!r}; {near(name, known)}")


@dataclass(frozen=True, kw_only=True)
class ReplaySource:
    """Where a replay line finds candidate and task again."""

    source: str = ""
    """Path of the candidate's file, or its name in the store; empty: the name of its first file."""
    task: str = ""
    """What to give as ``--task``; empty: the task's name."""
    store: str = ""
    """What to give as ``--store`` for a candidate from the store; empty: nothing."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One measured peak of a machine; ``why_not`` says why there is none."""

    name: str
    """``copy``, ``read``, ``write``, ``triad``, ``cache``; ``matrix/`` or ``vector/`` and a data type."""
    unit: str
    """``B/s``, ``FLOP/s`` or, for integers, ``OP/s``."""
    best: FiniteFloat = 0.0
    """The highest rate that was seen; 0: not available."""
    median: FiniteFloat = 0.0
    """Median rate of the samples at the size where the highest was seen."""
    n: int = 0
    """How many samples there were at that size."""
    how: str = ""
    """What was measured, in a few words, with the size."""
    date: str = ""
    """Day of the measurement, ISO 8601."""
    why_not: str = ""
    """Why this machine has none; empty: it has."""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """The peaks of one machine as far as they were measured."""

    machine: str
    """Fingerprint of the machine; it holds the versions of driver, PyTorch and Triton."""
    peaks: tuple[Peak, ...] = ()

    def find(self, name: str) -> Peak | None:
        """The peak of that name; None: it was not measured yet."""
        return next((peak for peak in self.peaks if peak.name == name), None)

    def rate(self, *names: str) -> float:
        """The highest of these, 0 where there is none."""
        return max((peak.best for peak in self.peaks if peak.name in names), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Measured limits of one machine (Williams, Waterman, Patterson 2009, CACM 52(4):65), none of a data sheet."""

    bandwidth_bytes_per_s: float
    """Bytes that come from and go to the device's memory in a second, at best of copying, reading, writing, adding."""
    flop_per_s: tuple[tuple[str, float], ...]
    """(data type, operations a second) at best of large matrix products and of chains of multiply-adds in that type."""
    cache_bytes_per_s: float = 0.0
    """The same bytes where they are in a cache; 0: not measured."""
    cache_bytes: int = 0
    """All caches together; 0: not known, and everything counts as coming from memory."""

    def rate(self, dtype: str, *, tf32: bool = False) -> float:
        """Operations a second that a kernel may reach in a type, with TF32 or without; 0: not measured."""
        rates = dict(self.flop_per_s)
        return max(rates.get(dtype, 0.0), rates.get("tf32", 0.0) if tf32 and dtype == "float32" else 0.0)

    def memory_s(self, nbytes: float, calls: int = 0) -> float:
        """The least time of a call that moves so many bytes, one of ``calls`` that run one after another.

        When they begin, the first inputs may be in the caches; when they end, the last outputs may still be there. So
        up to twice the caches' size moves at the caches' speed (in no time, where that was not measured), and the rest
        at the memory's. 0 calls: everything comes from memory, as on a machine without caches.
        """
        moved = nbytes * max(calls, 1)
        near = min(moved, 2.0 * self.cache_bytes) if calls else 0.0
        near_s = near / self.cache_bytes_per_s if self.cache_bytes_per_s else 0.0
        return ((moved - near) / self.bandwidth_bytes_per_s + near_s) / max(calls, 1)

    def least_s(self, flops: float, nbytes: float, dtype: str, *, calls: int = 0, tf32: bool = False) -> float:
        """The least time in which a call can do so many operations and move so many bytes, whichever takes longer; in a
        data type whose operations were not measured the bytes alone count. ``calls``: see :meth:`memory_s`.
        """
        rate = self.rate(dtype, tf32=tf32)
        return max(self.memory_s(nbytes, calls), flops / rate if rate else 0.0)
