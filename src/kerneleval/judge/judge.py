"""The judge: one candidate, one task, one device, one verdict. Reads top to bottom.

``Judge.check`` plans the cases, loads the candidate and the baseline, judges every case in commit-reveal windows, times
the right ones against the baseline, runs the honesty checks and puts the verdict together.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from kerneleval import devices, languages
from kerneleval.devices import Device
from kerneleval.devices.cpu import own_threads
from kerneleval.judge import causes, checks
from kerneleval.judge.binaries.uses import Uses
from kerneleval.judge.machine import peaks
from kerneleval.judge.probes.calls import BoundCase, Calls
from kerneleval.judge.probes.cells import CellJudge, Prefetch, far_offsets, opening, secret_shapes
from kerneleval.judge.probes.void import void
from kerneleval.judge.timing.timer import NoiseFigures, Timer, floor
from kerneleval.judge.verdicts import Job, Replay, barred, first_failure, verdict_of
from kerneleval.judge.windows.locks import judge_count, registered
from kerneleval.judge.windows.protocol import at_rest
from kerneleval.judge.windows.worker_pool import Baselines, BuildFailed, Loaded, LoadFailed, WorkerPool
from kerneleval.records import (
    DTYPES,
    Candidate,
    Case,
    Conditions,
    Finding,
    InfrastructureError,
    Limits,
    NotJudgedError,
    OnEvent,
    Outcome,
    Passed,
    Protocol,
    ReplaySource,
    Task,
    UsageError,
    Verdict,
    new_secret,
    tell,
)
from kerneleval.tasks import shapes
from kerneleval.tasks.far_offsets import is_far

_REAL_BYTES, _REAL_FLOPS = 32, 64
"""Times what a sampled case may take, the shape of a model may: on two cores 128 MiB and 9.6 GFLOP, a few tenths of a
second a call; on an H200 what the device has room for and 32 TFLOP."""

_INTERPRETED = "not timed: on the CPU Triton runs in its interpreter, whose time says nothing of the kernel"
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
        self._baselines = Baselines(self.pool)
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove every temporary file."""
        self._baselines.close()
        self._opened.close()
        self.pool.close()

    @functools.cached_property
    def _uses(self) -> Uses:
        """Reads compiled code; made for the first candidate that has some of its own."""
        return self._opened.enter_context(closing(Uses()))

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

    def noise(
        self, protocol: Protocol, on_event: OnEvent | None = None, before: Callable[[], None] | None = None
    ) -> NoiseFigures:
        """Noise figures of this machine in that tier, by :func:`floor`; ``before`` comes before a measurement."""

        def on_measure() -> None:
            tell(on_event, "noise", 0, 0, f"measuring the noise floor of this machine ({protocol.tier} tier)")
            if before is not None:
                before()

        return floor(self.pool, protocol.tier, on_measure)

    def _noise_without(self, loaded: Loaded, job: Job) -> NoiseFigures:
        """The noise figures. Where they are measured first, no process of the candidate runs meanwhile."""
        found = self.noise(job.protocol, job.on_event, loaded.runner.close)
        if not loaded.runner.worker.alive:
            loaded.renew()
        return found

    def limits(self) -> Limits | None:
        """What this machine can do at best, in every type; None: its peaks were not measured (``kerneleval peaks``)."""
        found = peaks.cached(self.machine, self.pool.cache_dir)
        return None if found is None else peaks.limits_of(found, self.device, (*DTYPES, "tf32"))

    def _better_limits(self) -> Limits:
        peaks.improve(self.device, self.machine, self.pool.cache_dir)
        found = self.limits()
        assert found is not None, "the peaks were removed meanwhile"
        return found

    def unsettled(self, task: Task, protocol: Protocol, cases: Sequence[Case]) -> NotJudgedError | None:
        """Why a problem file does not settle what is right at its own sizes, or is void there; None: it does, or these
        are not among the cases. No candidate is needed.

        Raises:
            UsageError: the file raises.
            InfrastructureError: the machine failed.
        """
        own = next((case for case in cases if task.module and _is_own(case)), None)
        if own is None or task.build is None:
            return None
        problem = task.build(own.dims_map, self.device.judge_device)
        bound = BoundCase(task, own, self.device, tf32=protocol.tf32, problem=problem)
        bound.weights = problem.weights(new_secret(), own.distribution)
        with registered(self.device.hardware()):
            try:
                bound.draw(new_secret())
                void(bound)
            except NotJudgedError as error:
                return error
            finally:
                del bound, problem
                self.device.trim()
        return None

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
        replay: ReplaySource | None = None,
        fail_fast: bool = False,
        trusted: bool = False,
        on_event: OnEvent | None = None,
    ) -> Verdict:
        """Judge a candidate.

        Args:
            cases: judge only these; None: the plan.
            replay: where the verdict's replay lines find candidate and task again.
            fail_fast: end at the first case that fails; later ones, and checks that call the candidate, are left out.
            trusted: the candidate is a task's own reference (A/A runs, self-tests) and may read the built-in tasks.

        Raises:
            UsageError: the shapes do not fit this machine, or the task cannot be judged here.
            NotJudgedError: a problem file does not settle what is right at its own sizes, or is void there.
            InfrastructureError: the machine failed, not the candidate.
        """
        started_s = time.perf_counter()
        only = cases[0] if cases is not None and len(cases) == 1 else None
        cases = self.plan(task, protocol) if cases is None else tuple(cases)
        if not cases:
            why = next((f"; {line}" for line in self.left_out(task, protocol)), "")
            raise UsageError(f"task {task.name!r}: no case is left; loosen --dtype, --direction or --category{why}")
        replay = replay or ReplaySource()
        source, task_source = replay.source or candidate.files[0][0], replay.task or task.name
        job = Job(
            candidate=candidate,
            task=task,
            protocol=protocol,
            cases=cases,
            begins=tuple(opening(task, cases)),
            replay=Replay(candidate, source, task_source, self.device.name, protocol, only, replay.store),
            machine=self.machine,
            fail_fast=fail_fast,
            rests=False,
            started_s=started_s,
            on_event=on_event,
        )
        tell(on_event, "load", 0, len(cases), task.name)
        with registered(self.device.hardware()):
            alone = protocol.timed and judge_count(self.device.hardware()) <= 1
            verdict = self._check(replace(job, rests=alone and at_rest(self.device)), trusted)
        lines = () if only is not None else self.left_out(task, protocol)
        left = [*task.findings, *(Finding(check="shapes", level="info", message=line) for line in lines)]
        if not self.device.on_hardware:
            text = f"the device {self.device.name} was not run on hardware by its authors: see docs/hardware.md"
            left.append(Finding(check="device", level="warn", message=text))
        return replace(verdict, findings=(*verdict.findings, *left))

    def _check(self, job: Job, trusted: bool) -> Verdict:
        """Load the candidate while its first cases are drawn, judge it, and end its worker."""
        prefetch = Prefetch(job.task, self.device, lambda case: self._bound(job, case))
        with prefetch.over(job.cases, job.begins):
            return self._load(job, trusted, prefetch)

    def _bound(self, job: Job, case: Case) -> BoundCase:
        return BoundCase(job.task, case, self.device, tf32=job.protocol.tf32)

    def _load(self, job: Job, trusted: bool, prefetch: Prefetch) -> Verdict:
        try:
            if not trusted:
                _refuse_on_host(job.candidate, self.device.name)
            loaded = Loaded(
                self.pool,
                job.candidate,
                (job.task.name,),
                trusted=trusted,
                tf32=job.protocol.tf32,
                patience_s=job.protocol.patience_s,
            )
        except BuildFailed as error:
            self.pool.make_spare()
            failed = replace(error.outcome(), replay=job.replay.line())
            return verdict_of(
                job, self.pool.trust, dict.fromkeys(job.cases, failed), checks.of_sources(job.candidate), Conditions()
            )
        try:
            return self._judge(job, loaded, prefetch)
        except torch.OutOfMemoryError as error:
            text = f"device {self.device.name!r} has too little memory left to judge {job.task.name}: {error}"
            raise InfrastructureError(text.splitlines()[0][:500]) from error
        finally:
            loaded.close()
            self.device.trim()
            self.pool.make_spare()

    def _judge(self, job: Job, loaded: Loaded, prefetch: Prefetch) -> Verdict:
        """The verdict on a candidate that is loaded: every case, then the checks, then times."""
        self.pool.make_spare()  # for the next candidate; ready long before anything is timed
        calls = Calls(loaded, job.task, job.protocol, self.device)
        judge = CellJudge(calls, prefetch)
        findings: list[Finding] = []
        outcomes = _outcomes(job, judge, findings)
        prefetch.end()
        if job.fail_fast and first_failure(outcomes.values()) is not None:
            findings += judge.native_failures(outcomes)
            findings += checks.run_all(calls, tuple(outcomes), outcomes, without_worker=True)
            return verdict_of(job, loaded.runner.worker.trust, outcomes, findings, Conditions())
        outcomes |= judge.missing_gradients(outcomes)
        native = loaded.candidate.language != "torch"  # then it may have compiled code of its own
        begun = self._uses.begin(loaded) if native else None
        findings += [*judge.native_failures(outcomes), *judge.weak]
        findings += secret_shapes(judge, outcomes, budget_of(self.device, job.task, job.protocol), job.replay.line_of)
        if not any(finding.level == "fail" for finding in findings):
            findings += far_offsets(judge, outcomes, job.replay.line_of)
        called = tuple(case for case in outcomes if not is_far(job.task, case))
        with own_threads(max((job.task.bytes(case.dims_map, case.dtype) for case in called), default=0)):
            findings += checks.run_all(calls, called, outcomes, without_worker=not called)
        tracked = checks.tracked(findings)
        if native:
            findings += self._uses.end(loaded, begun, tuple(tracked.launches) if tracked else ())
        conditions = Conditions()
        if job.protocol.timed and first_failure(outcomes.values()) is None and not barred(findings, job.protocol):
            if loaded.candidate.language == "triton" and self.device.name == "cpu":
                findings.append(Finding(check="timing", level="info", message=_INTERPRETED))
            else:
                conditions = self._time(job, calls, outcomes, findings)
        if first_failure(outcomes.values()) is not None:
            findings[:0] = causes.shared(job.task, outcomes)
        return verdict_of(job, loaded.runner.worker.trust, outcomes, findings, conditions)

    def _time(self, job: Job, calls: Calls, outcomes: dict[Case, Outcome], findings: list[Finding]) -> Conditions:
        """Time the cells that the protocol times. Their outcomes, and findings about the machine, are added."""
        readings: list[dict[str, Any]] = []
        right = [case for case in job.cases if isinstance(outcomes.get(case), Passed)]
        timed = {case: outcomes[case] for case in right if shapes.is_timed(case, job.task, job.protocol)}
        try:
            noise = self._noise_without(calls.loaded, job)
        except BuildFailed as error:  # it loaded once, and not again
            outcomes |= dict.fromkeys(timed, error.outcome())
            return Conditions()
        others = max(0, judge_count(self.device.hardware()) - 1)
        timer = Timer(
            calls,
            lambda fresh: self._baselines.get(job.task, job.protocol, fresh=fresh),
            noise,
            limits := self.limits(),
            self._better_limits,
            rests=job.rests,
        )

        def on_cell(done: int, total: int, case: Case) -> None:
            nonlocal others
            now = judge_count(self.device.hardware()) - 1
            others = max(others, now)
            if done in (1, total):
                readings.append(self.device.conditions() | ({"other_judges": now} if now >= 0 else {}))
            tell(job.on_event, "time", done, total, case.key)

        outcomes |= timer.time(timed, on_cell)
        findings += _without_device_time(outcomes[case] for case in timed)
        findings += _without_time(timer.untimed)
        findings += checks.once_timed(calls, [c for c in timed if isinstance(outcomes[c], Passed)], findings)
        if timed and limits is None:
            findings.append(Finding(check="limits", level="info", message=_NO_LIMITS))
        reasons = [self.device.unsteady(readings[0], readings[-1]) if readings else ""]
        if others > 0:
            reasons.append(f"{others} other judge{'s' * (others > 1)} built and checked on this hardware meanwhile")
        for why in filter(None, reasons):
            findings.append(Finding(check="conditions", level="warn", message=f"unsteady machine: {why}"))
        return Conditions(first=readings[0], last=readings[-1]) if readings else Conditions()


def _outcomes(job: Job, judge: CellJudge, findings: list[Finding]) -> dict[Case, Outcome]:
    """The cases with their outcomes in the order of the plan, whichever one the candidate's process began with; with
    ``fail_fast`` up to the first that fails. A process that was given up in its first call is called no more: that
    case comes first.
    """
    outcomes: dict[Case, Outcome] = {}
    begun = judge.begin(job.begins)
    order = [*begun, *(c for c in job.cases if c not in begun)] if judge.gave_up else job.cases
    for done, case in enumerate(order):
        needed = _is_own(case) or (case is job.cases[-1] and not outcomes)
        outcomes |= {case: begun[case]} if case in begun else _outcome(judge, case, findings, needed=needed)
        tell(job.on_event, "case", done + 1, len(job.cases), case.key)
        if job.fail_fast and first_failure(outcomes.values()) is not None:
            break
    first = next((case for case, outcome in begun.items() if isinstance(outcome, Passed)), None)
    if first is not None and first_failure(outcomes.values()) is not None:
        text = f"the candidate's process began with {first.key}: what its first call left may matter"
        findings.append(Finding(check="order", level="info", message=text))
    return outcomes


def _outcome(judge: CellJudge, case: Case, findings: list[Finding], *, needed: bool) -> dict[Case, Outcome]:
    """The case with its outcome; none, and a warning, where the task does not settle what is right. ``needed``: then
    the NotJudgedError is raised, because nothing would be left to judge by.
    """
    try:
        return {case: judge.judge(case)}
    except NotJudgedError as error:
        if needed:
            raise
        findings.append(Finding(check="reference", level="warn", message=f"left out: {error}"))
        return {}


def _is_own(case: Case) -> bool:
    """Whether it is what a problem file gives: its own sizes, values and strides."""
    return (case.shape_category, case.distribution, case.layout) == ("given", "standard", "contiguous")


def _without_time(untimed: Mapping[Case, str]) -> list[Finding]:
    """A warning for right cells that could not be timed."""
    if not untimed:
        return []
    why = f"no time in {len(untimed)} cells that are right: {next(iter(untimed.values()))}"
    todo = "End other programs that use it, then retry. Kernels that the candidate does not wait for do the same"
    return [Finding(check="timing", level="warn", message=f"{why}. {todo}")]


def _without_device_time(outcomes: Iterable[Outcome]) -> list[Finding]:
    """Why timed cells have call time alone, on a device that records calls; each reason once."""
    timings = [o.timing for o in outcomes if isinstance(o, Passed) and o.timing is not None]
    reasons = Counter(timing.no_device_time for timing in timings if timing.no_device_time)
    text = "call time alone in {} of {} timed cells: {}"
    return [
        Finding(check="timing", level="info", message=text.format(count, len(timings), reason))
        for reason, count in reasons.items()
    ]


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
