"""Generators over a suite: plan, ask, judge, store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kerneleval.pipeline.asking import Kept, answers_of
from kerneleval.pipeline.caps import Caps
from kerneleval.pipeline.checking import borrowed, open_task
from kerneleval.pipeline.refining import UNANSWERED, Setting, Wanted, ask
from kerneleval.records import (
    Answer,
    Candidate,
    Case,
    CellResult,
    Failed,
    InfrastructureError,
    Limits,
    OnEvent,
    Protocol,
    ReplaySource,
    RunSpec,
    Task,
    ToolError,
    Verdict,
    digest,
    from_plain,
    tell,
    to_plain,
)

if TYPE_CHECKING:
    from kerneleval.generators import Asked, Generator
    from kerneleval.judge.judge import Judge
    from kerneleval.store.plan import Attempt, Planned
    from kerneleval.store.store import Store

ARCHETYPES = ("baseline", "fragile", "robust")
"""What ``run`` judges when no generator is named."""


def run_suite(spec: RunSpec, protocol: Protocol, *, judge: Judge | None = None, on_event: OnEvent | None = None) -> str:
    """Judge generators over a suite of tasks and store every outcome; see :func:`kerneleval.run`."""
    from kerneleval import generators as makers
    from kerneleval.store import for_replay, open_store

    protocol = in_float32(protocol)
    caps, cache = Caps(spec.max_usd, spec.max_tokens, spec.max_hours), Kept(spec.store_url)
    found = [makers.find(name, cache) for name in spec.generators or ARCHETYPES]
    suite = suite_of(spec, protocol)
    store = open_store(spec.store_url)
    with borrowed(judge, spec.device) as owner:
        work = _Work(
            store=store,
            judge=owner,
            protocol=protocol,
            suite={task.name: task for task in suite.values()},
            sources={task.name: source for source, task in suite.items()},
            limits=known_limits(store, owner, protocol),
            place=for_replay(spec.store_url),
            target=spec.target,
            caps=caps,
            on_event=on_event,
        )
        return work.run(found, spec.name, resume=spec.resume)


def suite_of(spec: RunSpec, protocol: Protocol) -> dict[str, Task]:
    """The tasks of a run, by what was given for each."""
    from kerneleval.generators import SUITE

    return {given: open_task(given, protocol) for given in spec.tasks or SUITE}


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What all attempts of a run share."""

    store: Store
    judge: Judge
    protocol: Protocol
    suite: Mapping[str, Task]
    """The tasks by name, in order."""
    sources: Mapping[str, str]
    """Task name -> what was given as ``--task``."""
    limits: Limits
    place: str
    """The store as replay lines name it."""
    target: float | None
    """Speedup from which on a draft is not refined any more."""
    caps: Caps
    on_event: OnEvent | None

    def run(self, makers: Sequence[Generator | Asked], name: str, *, resume: bool) -> str:
        """Plan, ask, judge; the run's identifier."""
        from kerneleval.generators import Asked
        from kerneleval.store import NewRun

        machine = self.judge.machine
        asked = {maker.name: maker for maker in makers if isinstance(maker, Asked)}
        answers = {
            (maker.name, task, sample): answer
            for maker in makers
            if not isinstance(maker, Asked)
            for task, found in answers_of(maker, list(self.suite.values()), machine.device).items()
            for sample, answer in enumerate(found)
        }
        for task in self.suite.values():
            for line in self.judge.left_out(task, self.protocol):
                tell(self.on_event, "note", 0, 0, f"{task.name}: {line}")
        names = [maker.name for maker in makers]
        plan = list(_plan(makers, answers, list(self.suite.values()), self.judge, self.protocol))
        run_id = self.store.begin_run(
            NewRun(
                name=name or "+".join(names),
                generators=tuple(names),
                machines=(machine,),
                protocol=self.protocol,
                plan=tuple(plan),
                tasks=self.sources,
                limits={machine.fingerprint: self.limits},
                identity=tuple([maker.identity for maker in asked.values()]),
            ),
            resume=resume,
        )
        attempts = self.store.unfinished(run_id)
        for maker in asked.values():
            answers |= self._asked(maker, run_id, [a for a in attempts if a.generator == maker.name])
        self._judge_all(run_id, attempts, answers, len(plan))
        return run_id

    def _asked(self, maker: Asked, run_id: str, attempts: Sequence[Attempt]) -> dict[tuple[str, str, int], Answer]:
        """Final answers of a generator to what is open; candidates are stored at once."""
        if not attempts:
            return {}
        known = {
            (maker.name, a.task, a.sample): Answer(candidate=candidate, origin=candidate.origin)
            for a in attempts
            if a.candidate and a.origin is not None
            for candidate in [_with_origin(self.store.candidate(a.candidate), a)]
        }
        setting = Setting(
            store=self.store,
            judge=self.judge,
            run=run_id,
            final=self.protocol,
            limits=self.limits,
            judged=self.judged,
            sources=self.sources,
            target=self.target,
            caps=self.caps,
            on_event=self.on_event,
        )
        wanted = [
            Wanted(task=self.suite[a.task], sample=a.sample)
            for a in attempts
            if (maker.name, a.task, a.sample) not in known
        ]
        found = {(maker.name, *key): answer for key, answer in ask(maker, wanted, setting).items()}
        for (generator, task, sample), answer in found.items():
            if answer.candidate is not None:
                self.store.put_candidate(run_id, generator, sample, task, answer.candidate)
        return known | found

    def _judge_all(
        self,
        run_id: str,
        attempts: Sequence[Attempt],
        answers: Mapping[tuple[str, str, int], Answer],
        total: int,
    ) -> None:
        """Judge what is open, and tell what stays so."""
        coming = {(a.generator, a.task, a.sample): answers[a.generator, a.task, a.sample] for a in attempts}
        unanswered = {key: answer for key, answer in coming.items() if answer.problem in UNANSWERED}
        self.judge.build_ahead([a.candidate for a in coming.values() if a.candidate is not None], self.on_event)
        done, late = total - len(attempts), ""
        refused: list[str] = []
        for attempt in attempts:
            key = attempt.generator, attempt.task, attempt.sample
            late = late or self.caps.out_of_time()
            if key in unanswered or late:
                continue
            tell(self.on_event, "run", done, total, f"{attempt.generator}: {attempt.task}")
            answer = coming[key]
            try:
                verdict = self.judged(answer, self.suite[attempt.task], self.protocol, attempt.cases)
            except ToolError as error:  # nothing of it is stored: candidates in other languages are judged meanwhile
                refused.append(f"{_named(key)}: {error}")
                continue
            self.store.put_verdict(
                run_id, attempt.generator, attempt.sample, answer.candidate, verdict, origin=answer.origin
            )
            done += 1
        tell(self.on_event, "run", done, total, "done" if done == total else "stopped")
        if done < total:
            _tell_open(unanswered, refused, late, total - done, run_id, self.on_event)

    def judged(self, answer: Answer, task: Task, protocol: Protocol, cases: Sequence[Case]) -> Verdict:
        """The verdict on one answer: from the store where it is known, else judged now."""
        candidate = answer.candidate
        if candidate is None:
            return self._missing(answer, task, protocol, cases)
        machine = self.judge.machine.fingerprint
        known = self.store.cached_verdict(candidate.hash, task.name, machine, protocol.key, cases)
        if known is not None:
            return known
        return self.judge.check(
            candidate,
            task,
            protocol,
            cases=cases,
            replay=ReplaySource(
                source=candidate.origin.path or candidate.stored_name,
                task=self.sources[task.name],
                store=self.place,
            ),
            on_event=self.on_event,
        )

    def _missing(self, answer: Answer, task: Task, protocol: Protocol, cases: Sequence[Case]) -> Verdict:
        message = answer.message or f"{answer.origin.generator} gave no candidate for {task.name}"
        failed = Failed(stage="generate", reason=answer.problem or "missing", message=message)
        return Verdict(
            verdict="failed",
            stage=failed.stage,
            reason=failed.reason,
            message=message,
            task=task.name,
            candidate="",
            track="",
            trust=self.judge.pool.trust,
            machine=self.judge.machine,
            protocol=protocol,
            speedup=None,
            cells=tuple(CellResult(case=case, outcome=failed) for case in cases),
        )


def _with_origin(candidate: Candidate, attempt: Attempt) -> Candidate:
    assert attempt.origin is not None
    return replace(candidate, origin=attempt.origin)


def _named(key: tuple[str, str, int]) -> str:
    generator, task, sample = key
    return f"{generator}, {task}, sample {sample}"


def _tell_open(
    unanswered: Mapping[tuple[str, str, int], Answer],
    refused: Sequence[str],
    late: str,
    left: int,
    run_id: str,
    on_event: OnEvent | None,
) -> None:
    """Say what was not asked or judged, and why.

    Raises:
        ToolError: candidates could not be judged with the tools that are here.
        InfrastructureError: an endpoint did not answer.
    """
    again = f"run {run_id} goes on when the same command is given again"
    broken = [(key, answer) for key, answer in unanswered.items() if answer.problem == "endpoint"]
    capped = sorted({answer.message for answer in unanswered.values() if answer.problem == "budget"} | {late} - {""})
    if refused:
        raise ToolError(
            f"{len(refused)} of the candidates cannot be judged here, the first of them {refused[0]}; "
            f"nothing of them is stored, all others are judged and stored, and {again}"
        )
    if broken:
        key, first = broken[0]
        raise InfrastructureError(
            f"{len(broken)} of the samples got no answer, the first of them {_named(key)}: "
            f"{first.message}; all others are judged and stored, and {again}"
        )
    if capped:
        tell(on_event, "note", 0, 0, f"{left} attempts are left: {'; '.join(capped)}; {again} with a higher one")


def _plan(
    makers: Sequence[Generator | Asked],
    answers: Mapping[tuple[str, str, int], Answer],
    suite: Sequence[Task],
    judge: Judge,
    protocol: Protocol,
) -> Iterator[Planned]:
    """Every attempt with its cases; candidates of generators that are asked are not known yet."""
    from kerneleval.generators import Asked
    from kerneleval.store import Planned

    given: dict[tuple[str, str], list[Answer | None]] = {}
    for (generator, task_name, _), one in answers.items():
        given.setdefault((generator, task_name), []).append(one)
    for task in suite:
        cases = judge.plan(task, protocol)
        for maker in makers:
            nothing: list[Answer | None] = [None] * maker.samples if isinstance(maker, Asked) else []
            found = given.get((maker.name, task.name), nothing)
            for sample, answer in enumerate(found):
                yield Planned(
                    generator=maker.name,
                    task=task.name,
                    category=task.category,
                    level=task.level,
                    group=task.group,
                    cases=cases,
                    sample=sample,
                    candidate=answer.candidate if answer is not None else None,
                    origin=answer.origin if answer is not None and answer.problem else None,
                )


def in_float32(protocol: Protocol) -> Protocol:
    """How a run judges: in float32 where no dtype is asked for."""
    return protocol if protocol.dtypes else replace(protocol, dtypes=("float32",))


def known_limits(store: Store | None, judge: Judge, protocol: Protocol, keep: Kept | None = None) -> Limits:
    """The machine's limits: those that an earlier run of the store measured, so that runs have the same scale and
    prompts the same text; else those of the cache, or measured now where there are none.

    Args:
        store: where they may be known; None: nowhere.
        judge: of the machine.
        protocol: its data types are those that must be known.
        keep: where they are kept for what comes later; None: nowhere, because a run keeps its own.
    """
    from kerneleval.judge.machine import machine_limits

    wanted = machine_limits.computed(protocol.dtypes)
    machine = judge.machine.fingerprint
    for info in store.runs() if store is not None else ():
        known = info.limits.get(machine)
        if known is not None and wanted <= {dtype for dtype, _ in known.flop_per_s}:
            return known
    key = digest("limits/2", machine, *sorted(wanted))
    kept = store.response(key) if store is not None else None
    if kept is not None:
        return from_plain(Limits, kept)
    judge.pool.quiet()
    found = machine_limits.measure(judge.device, judge.machine, judge.pool.cache_dir, protocol.dtypes)
    if keep is not None:
        keep.put_response(key, to_plain(found))
    return found
