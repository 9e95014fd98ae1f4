"""From outcomes and findings to a verdict: the failure, the speedup over all cells, the lines that judge again.

Nothing is judged or timed here: see ``judge.py`` for that, and ``docs/verdicts.md`` for the meaning of each field.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneleval import languages
from kerneleval.judge import checks
from kerneleval.judge.timing.statistics import claim_of, sure
from kerneleval.records import (
    DIRECTIONS,
    STORED,
    Candidate,
    Case,
    CellResult,
    Conditions,
    Failed,
    Finding,
    Machine,
    OnEvent,
    Outcome,
    Passed,
    Protocol,
    SpeedupSummary,
    TamperingEvidence,
    Task,
    Trust,
    UsageError,
    Verdict,
    pooled,
    refusals,
)
from kerneleval.records.outcomes import TOLD_APART


class Replay:
    """Makes the command lines that judge a candidate again.

    Args:
        source: the path that the user gave for it, or its name in the store (:attr:`Candidate.stored_name`).
        task: what the user gave as ``--task``.
        only: the one case that the user asked for; None: the plan.
        store: where a candidate from the store lies; empty: in the default store.
    """

    def __init__(
        self,
        candidate: Candidate,
        source: str,
        task: str,
        device: str,
        protocol: Protocol,
        only: Case | None = None,
        store: str = "",
    ) -> None:
        self._protocol, self._only = protocol, only
        self._words = ["kerneleval", "check", source, "--task", task, "--device", device]
        self._words += _options({"--store": store} if source.startswith(STORED) else _identity(candidate, source))
        self._words += _options(
            {
                "--shapes": "" if protocol.shapes == "default" else protocol.shapes,
                "--patience": "" if protocol.patience_s == Protocol().patience_s else f"{protocol.patience_s:g}",
                "--allow": "" if protocol.allow == Protocol().allow else ",".join(protocol.allow),
            }
        )
        if protocol.tf32:
            self._words.append("--tf32")

    def line(self) -> str:
        """The line that judges all of it again, under the same protocol."""
        protocol = self._protocol
        words = _options(
            {
                "--dtype": ",".join(protocol.dtypes),
                "--direction": ",".join(protocol.directions),
                "--distribution": ",".join(protocol.distributions),
                "--category": ",".join(protocol.categories),
                "--suite-seed": str(protocol.suite_seed) if protocol.suite_seed else "",
            }
        )
        if not protocol.timed:
            words.append("--no-timing")
        return self._join(words + self._timing(), self._only)

    def line_of(self, case: Case, stage: str) -> str:
        """The line that judges one case again, up to the stage at which it failed."""
        words = []
        if stage == "timing":
            words = self._timing()
            if self._protocol.dtypes or self._protocol.timed_dtypes:  # else another dtype is the one that is timed
                words += ["--dtype", case.dtype]
        return self._join(words, case)

    def attach(self, case: Case, outcome: Outcome) -> Outcome:
        """A failed outcome with its replay line."""
        if isinstance(outcome, Failed) and not outcome.replay and outcome.stage not in ("build", "load"):
            return replace(outcome, replay=self.line_of(case, outcome.stage))
        return outcome

    def _timing(self) -> list[str]:
        words = [] if self._protocol.tier == "standard" else [f"--{self._protocol.tier}"]
        standard = Protocol()
        given = {f"--{name}": getattr(self._protocol, name) for name in ("baseline", "time")}
        return words + _options({o: v for o, v in given.items() if v != getattr(standard, o[2:])})

    def _join(self, words: list[str], case: Case | None) -> str:
        return shlex.join([*self._words, *words, *([] if case is None else ["--case", case.key])])


def _options(values: dict[str, str]) -> list[str]:
    return [word for option, value in values.items() if value for word in (option, value)]


def _identity(candidate: Candidate, path: str) -> dict[str, str]:
    """What makes the file at that path this candidate; a stored one brings it along."""
    detected = ""
    with contextlib.suppress(UsageError):
        detected = languages.detect(path, candidate.main)
    return {
        "--entry": candidate.entry,
        "--backward-entry": candidate.backward_entry,
        "--language": "" if detected == candidate.language else candidate.language,
    }


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is judged, where, and how."""

    candidate: Candidate
    task: Task
    protocol: Protocol
    cases: tuple[Case, ...]
    begins: tuple[Case, ...]
    """Those of them, in this order, with which the candidate's process begins until it supports one."""
    replay: Replay
    """Makes the command lines that judge it again."""
    machine: Machine
    fail_fast: bool
    """Whether judging ends at the first case that fails."""
    rests: bool
    """Whether the device was at rest before the candidate was there."""
    started_s: float
    """When judging began, by ``time.perf_counter``."""
    on_event: OnEvent | None


def verdict_of(
    job: Job, trust: Trust, outcomes: Mapping[Case, Outcome], findings: Sequence[Finding], conditions: Conditions
) -> Verdict:
    """The verdict, from what came out at each case and what the checks saw."""
    results = tuple(CellResult(case=c, outcome=job.replay.attach(c, o)) for c, o in outcomes.items())
    failure = _failure([r.outcome for r in results], findings, job.protocol)
    tracked = checks.tracked(findings)
    if failure is not None:
        stage, reason, message = failure.stage, failure.reason, failure.message
    else:
        passed = sum(isinstance(r.outcome, Passed) for r in results)
        stage, reason = ("timing" if job.protocol.timed else "correctness"), "ok"
        message = f"right in {passed} of {len(results)} cases"
        if left_out := refusals(r.outcome for r in results):
            message += f"; {left_out}"
    return Verdict(
        verdict="failed" if failure is not None else "passed",
        stage=stage,
        reason=reason,
        message=message,
        task=job.task.name,
        candidate=job.candidate.hash,
        track=tracked.track if tracked else "",
        trust=trust,
        machine=job.machine,
        protocol=job.protocol,
        speedup=_summary(results),
        cells=results,
        findings=tuple(findings),
        replay=failure.replay if failure is not None and failure.replay else job.replay.line(),
        seconds=time.perf_counter() - job.started_s,
        conditions=conditions,
    )


def first_failure(outcomes: Iterable[Outcome]) -> Failed | None:
    """The first outcome that fails the verdict by itself; a case declared unsupported does not."""
    return next((o for o in outcomes if isinstance(o, Failed) and o.reason != "unsupported"), None)


def barred(findings: Sequence[Finding], protocol: Protocol) -> Failed | None:
    """What the checks hold against the candidate as a whole."""
    for finding in findings:
        if finding.level == "fail":
            return _held_against(finding)
    tracked = checks.tracked(findings)
    if tracked is None or tracked.track in protocol.allow:
        return None
    track, allowed = tracked.track, ", ".join(protocol.allow)
    message = f"the candidate is on the {track} track and only {allowed} may pass; --allow {track} admits it"
    seen = next(f.message for f in findings if f.evidence is tracked)
    return Failed(stage="honesty", reason="track_not_allowed", message=f"{message}. {seen}" if seen else message)


def _failure(outcomes: Sequence[Outcome], findings: Sequence[Finding], protocol: Protocol) -> Failed | None:
    """Why the candidate fails; None: it passes. What it did while it was loaded comes before all that was computed."""
    tampered = (f for f in findings if f.reason == "tampering" and f.evidence == TamperingEvidence(when="load"))
    if (finding := next(tampered, None)) is not None:
        return _held_against(finding)
    failure = first_failure(outcomes) or barred(findings, protocol)
    if failure is None and not any(isinstance(outcome, Passed) for outcome in outcomes):
        return next(outcome for outcome in outcomes if isinstance(outcome, Failed))
    return failure


def _held_against(finding: Finding) -> Failed:
    stage = finding.stage or "honesty"
    return Failed(stage=stage, reason=finding.reason, message=finding.message, replay=finding.replay)


def _summary(results: Sequence[CellResult]) -> SpeedupSummary | None:
    """Geometric mean of the timed cells' speedups: forward ones, or backward ones where no forward cell is timed."""
    timed = [
        (r.case.direction, r.outcome.timing)
        for r in results
        if isinstance(r.outcome, Passed) and r.outcome.timing is not None
    ]
    if not timed:
        return None
    direction = next(one for one in DIRECTIONS if one in dict(timed))
    timings = [timing for one, timing in timed if one == direction]
    mean = pooled(timings)
    wider = (h * sure(t.freedom, t.time) for h, t in zip(mean.halves, timings, strict=True))
    surer = math.hypot(*wider) / len(timings)
    claim = claim_of(mean.own_half, surer, mean.centre, mean.noise, mean.margin)
    half = mean.half if mean.margin >= TOLD_APART else mean.own_half
    kinds = {t.time for t in timings}
    return SpeedupSummary(
        value=math.exp(mean.centre),
        low=math.exp(mean.centre - half),
        high=math.exp(mean.centre + half),
        claim=claim,
        cells=len(timings),
        direction=direction,
        time=kinds.pop() if len(kinds) == 1 else "mixed",
    )
