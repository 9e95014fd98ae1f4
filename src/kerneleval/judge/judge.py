"""The judge: one candidate, one task, one device, one verdict. Reads top to bottom.

``Judge.check`` plans the cases, loads the candidate and the baseline, judges every case in commit-reveal windows, times
the right ones against the baseline, runs the honesty checks and puts the verdict together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from kerneleval import devices, languages
from kerneleval.devices import Device
from kerneleval.judge import checks
from kerneleval.judge.binaries.uses import Uses
from kerneleval.judge.machine import peaks
from kerneleval.judge.machine.machine_limits import limits_of
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.probes.cells import CellJudge
from kerneleval.judge.probes.secret_shapes import secret_shapes
from kerneleval.judge.probes.variations import native_failures
from kerneleval.judge.replay import Replay
from kerneleval.judge.timing import noise
from kerneleval.judge.timing.statistics import claim_of
from kerneleval.judge.timing.timer import Timer
from kerneleval.judge.windows import baselines
from kerneleval.judge.windows.answers import without_gradient
from kerneleval.judge.windows.device_lock import judge_count, registered
from kerneleval.judge.windows.worker_pool import BuildFailed, Loaded, LoadFailed, WorkerPool
from kerneleval.records import (
    DIRECTIONS,
    DTYPES,
    Candidate,
    Case,
    CellResult,
    Conditions,
    Failed,
    Finding,
    InfrastructureError,
    Limits,
    OnEvent,
    Outcome,
    Passed,
    Protocol,
    SpeedupSummary,
    TamperingEvidence,
    Task,
    TrackEvidence,
    UsageError,
    Verdict,
    tell,
)
from kerneleval.tasks import shapes

__all__ = ["Judge", "budget_of"]

_REAL_BYTES, _REAL_FLOPS = 32, 64
"""Times what a sampled case may take, the shape of a model may: on two cores 128 MiB and 9.6 GFLOP, a few tenths of a
second a call; on an H200 what the device has room for and 32 TFLOP."""

_NO_LIMITS = (
    "the peaks of this machine were not measured: no time is set against a limit (kerneleval peaks measures them)"
)


class Judge:
    """The judge of one device, warm between candidates. A context manager.

    Args:
        device: name of the device; None: the GPU where there is one, else the CPU.
        cache_dir: where builds and noise figures are kept; None: the user's cache directory.
        worker_memory_bytes: host memory that a worker may take; 0: half of the machine's, at most 8 GiB (16 on a GPU).

    Raises:
        UsageError: no such device, or not usable here.
    """

    def __init__(
        self, device: str | None = None, cache_dir: str | Path | None = None, *, worker_memory_bytes: int = 0
    ) -> None:
        self.device = devices.find(device) if device else devices.default()
        why_not = self.device.available()
        if why_not:
            raise UsageError(f"device {self.device.name!r} cannot be used here: {why_not}")
        self.machine = self.device.machine()
        self._can = self.device.capabilities()
        self.pool = WorkerPool(self.device, self.machine, cache_dir, worker_memory_bytes)
        self._noise: dict[str, tuple[noise.Noise, ...]] = {}
        self._baselines = baselines.Baselines(self.pool)
        self._uses = Uses()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove every temporary file."""
        self._baselines.close()
        self._uses.close()
        self.pool.close()

    def plan(self, task: Task, protocol: Protocol) -> tuple[Case, ...]:
        """The cases at which a candidate for this task is judged here."""
        planned = shapes.plan(task, protocol, budget_of(self.device, task, protocol))
        return tuple(case for case in planned if self._can.computes(case.dtype))

    def left_out(self, task: Task, protocol: Protocol) -> tuple[str, ...]:
        """What the plan leaves out of the shapes that were asked for by name, and dtypes that the device lacks, a line
        each.
        """
        lacking = [d for d in protocol.dtypes or task.dtypes if not self._can.computes(d)]
        lines = [f"{dtype} is left out: {self.machine.name} ({self.device.name}) has none" for dtype in lacking]
        return (*shapes.left_out(task, protocol, budget_of(self.device, task, protocol)), *lines)

    def noise(self, protocol: Protocol, on_event: OnEvent | None = None) -> tuple[noise.Noise, ...]:
        """Noise figures of this machine in that tier; measured once, then cached."""
        if protocol.tier not in self._noise:

            def measuring() -> None:
                tell(on_event, "noise", 0, 0, f"measuring the noise floor of this machine ({protocol.tier} tier)")

            self._noise[protocol.tier] = noise.floor(self.pool, protocol.tier, measuring)
        return self._noise[protocol.tier]

    def limits(self) -> Limits | None:
        """What this machine can do at best, in every type; None: its peaks were not measured (``kerneleval peaks``)."""
        found = peaks.cached(self.machine, self.pool.cache_dir)
        return None if found is None else limits_of(found, self.device, (*DTYPES, "tf32"))

    def _better_limits(self) -> Limits:
        peaks.improve(self.device, self.machine, self.pool.cache_dir)
        found = self.limits()
        assert found is not None, "the peaks were removed meanwhile"
        return found

    def build_ahead(self, candidates: Sequence[Candidate], on_event: OnEvent | None = None) -> None:
        """Build these candidates, several at a time; never beside a measurement."""

        def built(done: int, total: int, candidate: Candidate) -> None:
            tell(on_event, "build", done, total, candidate.files[0][0])

        with registered(self.device.hardware()):
            self.pool.build_ahead(candidates, built)

    def check(
        self,
        candidate: Candidate,
        task: Task,
        protocol: Protocol,
        *,
        cases: Sequence[Case] | None = None,
        source: str = "",
        task_source: str = "",
        store: str = "",
        trusted: bool = False,
        on_event: OnEvent | None = None,
    ) -> Verdict:
        """Judge a candidate.

        Args:
            candidate: the source.
            task: what it claims to solve.
            protocol: how to judge.
            cases: judge only these; None: the plan.
            source: path of the candidate's file, or its name in the store, for replay lines.
            task_source: what to give as ``--task`` in replay lines; empty: the task's name.
            store: what to give as ``--store`` in replay lines of a candidate from the store; empty: nothing.
            trusted: the candidate is a task's own reference (A/A runs, self-tests) and may read the built-in tasks.
            on_event: called as the work proceeds.

        Raises:
            UsageError: the shapes do not fit this machine, or the task cannot be judged here.
            InfrastructureError: the machine failed, not the candidate.
        """
        started = time.perf_counter()
        only = cases[0] if cases is not None and len(cases) == 1 else None
        cases = self.plan(task, protocol) if cases is None else tuple(cases)
        source, task_source = source or candidate.files[0][0], task_source or task.name
        replay = Replay(candidate, source, task_source, self.device.name, protocol, only, store)
        if not cases:
            why = next((f"; {line}" for line in self.left_out(task, protocol)), "")
            raise UsageError(f"task {task.name!r}: no case is left; loosen --dtype, --direction or --category{why}")
        tell(on_event, "load", 0, len(cases), task.name)
        with registered(self.device.hardware()):
            try:
                if not trusted:
                    _refuse_on_host(candidate, self.device.name)
                loaded = Loaded(self.pool, candidate, (task.name,), trusted=trusted, tf32=protocol.tf32)
            except BuildFailed as error:
                return self._stillborn(error, candidate, task, protocol, cases, replay, started)
            try:
                verdict = self._judge(loaded, task, protocol, cases, replay, started, on_event)
            except torch.OutOfMemoryError as error:
                text = f"device {self.device.name!r} has too little memory left to judge {task.name}: {error}"
                raise InfrastructureError(text.splitlines()[0][:500]) from error
            finally:
                loaded.close()
                self.device.trim()
                self.pool.make_spare()
        left = [] if only is not None else _not_planned(self.left_out(task, protocol))
        if not self.device.on_hardware:
            text = f"the device {self.device.name} was not run on hardware by its authors: see docs/hardware.md"
            left.append(Finding(check="device", level="warn", message=text))
        return replace(verdict, findings=(*verdict.findings, *left))

    def _judge(
        self,
        loaded: Loaded,
        task: Task,
        protocol: Protocol,
        cases: tuple[Case, ...],
        replay: Replay,
        started: float,
        on_event: OnEvent | None,
    ) -> Verdict:
        self.pool.make_spare()  # for the next candidate; ready long before anything is timed
        calls = Calls(loaded, task, protocol, self.device)
        judge = CellJudge(calls)
        outcomes: dict[Case, Outcome] = {}
        with judge.prefetch.over(cases):
            for done, case in enumerate(cases):
                outcomes[case] = judge.judge(case)
                tell(on_event, "case", done + 1, len(cases), case.key)
        outcomes |= without_gradient(outcomes)
        uses = self._uses.begin(loaded)
        findings = native_failures(outcomes)
        findings += secret_shapes(judge, outcomes, budget_of(self.device, task, protocol), replay)
        findings += checks.run_all(calls, cases, outcomes)
        tracked = checks.tracked(findings)
        findings += self._uses.end(loaded, uses, tuple(tracked.launches) if tracked else ())
        track = tracked.track if tracked else ""
        readings: list[dict[str, Any]] = []
        others = max(0, judge_count(self.device.hardware()) - 1)
        if _first_failure(outcomes) is None and not _barred(track, findings, protocol) and protocol.timed:
            timer = Timer(
                calls,
                lambda fresh: self._baselines.get(task, protocol, fresh=fresh),
                self.noise(protocol, on_event),
                limits := self.limits(),
                self._better_limits,
            )
            timed = [c for c in cases if isinstance(outcomes[c], Passed) and shapes.is_timed(c, task, protocol)]
            untimed = checks.why_untimed(loaded.candidate, self.device)
            if untimed:
                findings.append(Finding(check="timing", level="info", message=untimed))
            else:

                def on_cell(done: int, total: int, case: Case) -> None:
                    nonlocal others
                    now = judge_count(self.device.hardware()) - 1
                    others = max(others, now)
                    if done in (1, total):
                        readings.append(self.device.conditions() | ({"other_judges": now} if now >= 0 else {}))
                    tell(on_event, "time", done, total, case.key)

                outcomes |= timer.time({case: outcomes[case] for case in timed}, on_cell)
                if timed and limits is None:
                    findings.append(Finding(check="limits", level="info", message=_NO_LIMITS))
                if readings and (why := self.device.unsteady(readings[0], readings[-1])):
                    findings.append(_unsteady(why))
                if others > 0:
                    text = f"{others} other judge{'s' * (others > 1)} built and checked on this hardware meanwhile"
                    findings.append(_unsteady(text))
        conditions = Conditions(first=readings[0], last=readings[-1]) if readings else Conditions()
        return self._verdict(loaded, task, protocol, outcomes, findings, track, conditions, replay, started)

    def _verdict(
        self,
        loaded: Loaded,
        task: Task,
        protocol: Protocol,
        outcomes: dict[Case, Outcome],
        findings: list[Finding],
        track: str,
        conditions: Conditions,
        replay: Replay,
        started: float,
    ) -> Verdict:
        results = tuple(CellResult(case=c, outcome=replay.attach(c, o)) for c, o in outcomes.items())
        failure = next(
            (r.outcome for r in results if isinstance(r.outcome, Failed) and r.outcome.reason != "unsupported"), None
        )
        tampered = [f for f in findings if f.reason == "tampering" and f.evidence == TamperingEvidence(when="load")]
        if tampered:  # before anything was computed
            failure = _held_against(tampered[0])
        barred = _barred(track, findings, protocol)
        passed = sum(isinstance(r.outcome, Passed) for r in results)
        if failure is None and barred is not None:
            failure = barred
        if failure is None and not passed:
            failure = next(r.outcome for r in results if isinstance(r.outcome, Failed))
        if failure is not None:
            stage, reason, message = failure.stage, failure.reason, failure.message
        else:
            unsupported = len(results) - passed
            stage, reason = ("timing" if protocol.timed else "correctness"), "ok"
            message = f"right in {passed} of {len(results)} cases" + (
                f"; {unsupported} declared unsupported" if unsupported else ""
            )
        return Verdict(
            verdict="failed" if failure is not None else "passed",
            stage=stage,
            reason=reason,
            message=message,
            task=task.name,
            candidate=loaded.candidate.hash,
            track=track,
            trust=loaded.runner.worker.trust,
            machine=self.machine,
            protocol=protocol,
            speedup=_summary(results),
            cells=results,
            findings=tuple(findings),
            replay=failure.replay if failure is not None and failure.replay else replay.line(),
            seconds=time.perf_counter() - started,
            conditions=conditions,
        )

    def _stillborn(
        self,
        error: BuildFailed,
        candidate: Candidate,
        task: Task,
        protocol: Protocol,
        cases: tuple[Case, ...],
        replay: Replay,
        started: float,
    ) -> Verdict:
        failed = Failed(
            stage=error.stage,
            reason=error.reason,
            message=str(error),
            evidence=error.evidence,
            replay=replay.line(),
        )
        self.pool.make_spare()
        return Verdict(
            verdict="failed",
            stage=failed.stage,
            reason=failed.reason,
            message=failed.message,
            task=task.name,
            candidate=candidate.hash,
            track="",
            trust=self.pool.trust,
            machine=self.machine,
            protocol=protocol,
            speedup=None,
            cells=tuple(CellResult(case=case, outcome=failed) for case in cases),
            findings=tuple(checks.of_sources(candidate)),
            replay=failed.replay,
            seconds=time.perf_counter() - started,
        )


def budget_of(device: Device, task: Task, protocol: Protocol) -> shapes.Budget:
    """What one case may take on a device."""
    memory_bytes, flops = device.case_budget()
    if protocol.shapes == "real":  # they do not shrink
        memory_bytes = min(_REAL_BYTES * memory_bytes, device.largest_case_bytes())
        flops *= _REAL_FLOPS
    if task.case_dims:  # sizes that the user gave need only fit
        memory_bytes, flops = device.largest_case_bytes(), 1 << 62
    return shapes.Budget(memory_bytes=memory_bytes, flops=flops)


def _refuse_on_host(candidate: Candidate, device: str) -> None:
    """Raises LoadFailed where only baselines in the candidate's language run, beside the device."""
    language = languages.find(candidate.language)
    if device in language.baseline_devices:
        raise LoadFailed(
            "load_error",
            f"{language.name} candidates do not run on device {device!r}, where that language runs on the host and "
            f"only for baselines: they run on {', '.join(language.devices)}",
            {},
        )


def _first_failure(outcomes: dict[Case, Outcome]) -> Failed | None:
    return next((o for o in outcomes.values() if isinstance(o, Failed) and o.reason != "unsupported"), None)


def _barred(track: str, findings: Sequence[Finding], protocol: Protocol) -> Failed | None:
    """What the checks hold against the candidate as a whole."""
    for finding in findings:
        if finding.level == "fail":
            return _held_against(finding)
    if track and track not in protocol.allow:
        allowed = ", ".join(protocol.allow)
        message = f"the candidate is on the {track} track and only {allowed} may pass; --allow {track} admits it"
        seen = next((f.message for f in findings if isinstance(f.evidence, TrackEvidence)), "")
        return Failed(stage="honesty", reason="track_not_allowed", message=f"{message}. {seen}" if seen else message)
    return None


def _not_planned(lines: Sequence[str]) -> list[Finding]:
    return [Finding(check="shapes", level="info", message=line) for line in lines]


def _unsteady(why: str) -> Finding:
    return Finding(check="conditions", level="warn", message=f"unsteady machine: {why}")


def _held_against(finding: Finding) -> Failed:
    stage = finding.stage or "honesty"
    return Failed(stage=stage, reason=finding.reason, message=finding.message, replay=finding.replay)


def _summary(results: Sequence[CellResult]) -> SpeedupSummary | None:
    """Geometric mean of the timed cells' speedups: forward ones, or backward ones where no forward cell is timed."""
    for direction in DIRECTIONS:
        timings = [
            r.outcome.timing
            for r in results
            if isinstance(r.outcome, Passed) and r.outcome.timing is not None and r.case.direction == direction
        ]
        if timings:
            break
    else:
        return None
    n = len(timings)
    centre = sum(math.log(t.speedup) for t in timings) / n
    # the cells are a fixed set: only their measurement errors, independent of one another, make the mean uncertain
    half = math.sqrt(sum((math.log(t.high / t.low) / 2) ** 2 for t in timings)) / n
    noise_floor = sum(t.noise for t in timings) / n
    value, low, high = math.exp(centre), math.exp(centre - half), math.exp(centre + half)
    claim = claim_of(low, high, value, noise_floor)
    return SpeedupSummary(value=value, low=low, high=high, claim=claim, cells=n, direction=direction)
