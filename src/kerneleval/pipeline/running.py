"""Generators over a suite: plan, ask, judge, store.

A generator that refines is asked in rounds: its draft is judged at other shapes than the final answer, and the next
request has the result of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kerneleval.generators.common.feedback import feedback_of
from kerneleval.pipeline.asking import Caps, Kept, answers_of, ask_all
from kerneleval.pipeline.checking import borrowed, open_task, refused, unjudged
from kerneleval.records import (
    TRACKS,
    Answer,
    Candidate,
    Case,
    CellResult,
    EarlierRound,
    Failed,
    InfrastructureError,
    Limits,
    NotJudgedError,
    OnEvent,
    Origin,
    Protocol,
    ReplaySource,
    Request,
    RunSpec,
    Task,
    ToolError,
    Verdict,
    asked,
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

UNANSWERED = ("endpoint", "budget")
"""Problems that are not the generator's: its attempt stays open, and is requested again when the run continues."""

SHARED = ("edge", "tiny")
"""Shape categories with so few sizes that any two suites share some."""

_Key = tuple[str, str, int]
"""Generator, task, sample."""


def run(
    generators: Sequence[str] = (),
    tasks: Sequence[str] = (),
    *,
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> str:
    """Judge generators over a suite of tasks and store every outcome; gives the run's identifier.

    An interrupted run of the same plan is resumed; what is in the store for the same candidate, case, machine and
    protocol is not judged again, and what a model answered is not asked again. What a cap keeps from being asked or
    judged stays open: the run continues when it is begun again.

    Args:
        generators: names, or paths: of directories with candidates, of files with settings; empty: the archetypes.
        tasks: names or paths; empty: the archetypes' suite.
        judge: a warm judge to use.
        on_event: called as the work proceeds.
        options: any field of :class:`~kerneleval.records.RunSpec` and :class:`~kerneleval.records.Protocol`; all tracks
            may pass, and it is judged in float32, unless ``allow`` and ``dtypes`` say otherwise.

    Raises UsageError for an unknown generator, task, device or option, a cap that cannot be kept, or a store that
    cannot be used; InfrastructureError where the machine, the disk, the database or an endpoint failed: what is
    done is stored.
    """
    given = {"allow": TRACKS, **options, "generators": tuple(generators), "tasks": tuple(tasks)}
    spec, protocol = asked(RunSpec, given)
    return run_suite(spec, protocol, judge=judge, on_event=on_event)


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
    """How the final answers are judged."""
    suite: Mapping[str, Task]
    """The tasks by name, in order."""
    sources: Mapping[str, str]
    """Task name -> what was given as ``--task``."""
    limits: Limits
    place: str
    """The store as replay lines name it."""
    target: float | None
    """Speedup from which on a draft is not refined any more; None: all rounds are used."""
    caps: Caps
    on_event: OnEvent | None

    def run(self, makers: Sequence[Generator | Asked], name: str, *, resume: bool) -> str:
        """Plan, ask, judge; the run's identifier."""
        from kerneleval.generators import Asked
        from kerneleval.store import NewRun

        machine, suite = self.judge.machine, list(self.suite.values())
        on_demand = {maker.name: maker for maker in makers if isinstance(maker, Asked)}
        given = {m.name: answers_of(m, suite, machine.device) for m in makers if not isinstance(m, Asked)}
        for task in suite:
            for line in self.judge.left_out(task, self.protocol):
                tell(self.on_event, "note", 0, 0, f"{task.name}: {line}")
        names = [maker.name for maker in makers]
        plan = list(self._plan(makers, given))
        run_id = self.store.begin_run(
            NewRun(
                name=name or "+".join(names),
                generators=tuple(names),
                machines=(machine,),
                protocol=self.protocol,
                plan=tuple(plan),
                tasks=self.sources,
                limits={machine.fingerprint: self.limits},
                identity=tuple([maker.identity for maker in on_demand.values()]),
            ),
            resume=resume,
        )
        attempts = self._settled(run_id, self.store.unfinished(run_id))
        answers = {(g, t, s): one for g, of in given.items() for t, found in of.items() for s, one in enumerate(found)}
        for maker in on_demand.values():
            answers |= self._asked(maker, run_id, [a for a in attempts if a.generator == maker.name])
        self._judge_all(run_id, attempts, answers, len(plan))
        return run_id

    def _plan(
        self, makers: Sequence[Generator | Asked], given: Mapping[str, Mapping[str, Sequence[Answer]]]
    ) -> Iterator[Planned]:
        """Every attempt with its cases; candidates of generators that are asked are not known yet."""
        from kerneleval.generators import Asked

        for task in self.suite.values():
            cases = self.judge.plan(task, self.protocol)
            for maker in makers:
                if isinstance(maker, Asked):
                    yield from (_planned(task, maker.name, sample, cases) for sample in range(maker.samples))
                    continue
                for sample, answer in enumerate(given[maker.name][task.name]):
                    origin = answer.origin if answer.problem else None
                    yield _planned(task, maker.name, sample, cases, answer.candidate, origin)

    def _settled(self, run_id: str, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts without those at tasks that do not settle what is right, which are stored as not judged: no
        generator is asked for them.
        """
        why: dict[str, NotJudgedError] = {}
        for task, cases in {a.task: a.cases for a in attempts}.items():
            if (error := self.judge.unsettled(self.suite[task], self.protocol, cases)) is not None:
                why[task] = error
                tell(self.on_event, "note", 0, 0, f"{task} is not judged, and counts nowhere: {error}")
        for a in attempts:
            if a.task in why:
                verdict = unjudged(self.judge, self.suite[a.task], self.protocol, refused(why[a.task]))
                self.store.put_verdict(run_id, a.generator, a.sample, None, verdict)
        return [a for a in attempts if a.task not in why]

    def _asked(self, maker: Asked, run_id: str, attempts: Sequence[Attempt]) -> dict[_Key, Answer]:
        """Final answers of a generator to what is open; candidates are stored at once."""
        known: dict[_Key, Answer] = {}
        for a in attempts:
            if a.candidate and a.origin is not None:
                candidate = replace(self.store.candidate(a.candidate), origin=a.origin)
                known[_key(a)] = Answer(candidate=candidate, origin=a.origin)
        wanted = [(self.suite[a.task], a.sample) for a in attempts if _key(a) not in known]
        found = _Rounds(maker, self, run_id).ask(wanted)
        for (generator, task, sample), answer in found.items():
            if answer.candidate is not None:
                self.store.put_candidate(run_id, generator, sample, task, answer.candidate)
        return known | found

    def _judge_all(self, run_id: str, attempts: Sequence[Attempt], answers: Mapping[_Key, Answer], total: int) -> None:
        """Judge what is open, and report what stays open."""
        coming = {_key(a): answers[_key(a)] for a in attempts}
        unanswered = {key: answer for key, answer in coming.items() if answer.problem in UNANSWERED}
        self.judge.build_ahead([a.candidate for a in coming.values() if a.candidate is not None], self.on_event)
        done, late = total - len(attempts), ""
        refused: list[str] = []
        for attempt in attempts:
            key = _key(attempt)
            late = late or self.caps.out_of_time()
            if key in unanswered or late:
                continue
            tell(self.on_event, "run", done, total, f"{attempt.generator}: {attempt.task}")
            answer = coming[key]
            try:
                verdict = self.judged(answer, self.suite[attempt.task], self.protocol, attempt.cases)
            except ToolError as error:  # nothing of it is stored: others are judged meanwhile
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
        source = candidate.origin.path or candidate.stored_name
        replay = ReplaySource(source=source, task=self.sources[task.name], store=self.place)
        try:
            return self.judge.check(candidate, task, protocol, cases=cases, replay=replay, on_event=self.on_event)
        except NotJudgedError as error:
            return unjudged(self.judge, task, protocol, refused(error), candidate.hash)

    def _missing(self, answer: Answer, task: Task, protocol: Protocol, cases: Sequence[Case]) -> Verdict:
        message = answer.message or f"{answer.origin.generator} gave no candidate for {task.name}"
        failed = Failed(stage="generate", reason=answer.problem or "missing", message=message)
        cells = tuple(CellResult(case=case, outcome=failed) for case in cases)
        return replace(unjudged(self.judge, task, protocol, failed), verdict="failed", cells=cells)


def _key(attempt: Attempt) -> _Key:
    return attempt.generator, attempt.task, attempt.sample


def _named(key: _Key) -> str:
    generator, task, sample = key
    return f"{generator}, {task}, sample {sample}"


def _planned(
    task: Task,
    generator: str,
    sample: int,
    cases: tuple[Case, ...],
    candidate: Candidate | None = None,
    origin: Origin | None = None,
) -> Planned:
    from kerneleval.store import Planned

    return Planned(
        generator=generator,
        task=task.name,
        category=task.category,
        level=task.level,
        group=task.group,
        cases=cases,
        sample=sample,
        candidate=candidate,
        origin=origin,
    )


def _tell_open(
    unanswered: Mapping[_Key, Answer],
    refused: Sequence[str],
    late: str,
    left: int,
    run_id: str,
    on_event: OnEvent | None,
) -> None:
    """Say what was not asked or judged, and why. Raises ToolError where candidates could not be judged with the tools
    that are here, InfrastructureError where an endpoint did not answer.
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


def in_float32(protocol: Protocol) -> Protocol:
    """How a run judges: in float32 where no dtype is given."""
    return protocol if protocol.dtypes else replace(protocol, dtypes=("float32",))


def known_limits(store: Store | None, judge: Judge, protocol: Protocol, keep: Kept | None = None) -> Limits:
    """The machine's limits: those that an earlier run of the store measured, so that runs have the same scale and
    prompts the same text; else those of the cache, or measured now where there are none. They are known for the data
    types of the protocol, and kept in ``keep`` for what comes later (a run keeps its own).
    """
    from kerneleval.judge.machine import peaks

    wanted = peaks.computed(protocol.dtypes)
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
    found = peaks.measure_limits(judge.device, judge.machine, judge.pool.cache_dir, protocol.dtypes)
    if keep is not None:
        keep.put_response(key, to_plain(found))
    return found


def _feedback_protocol(final: Protocol) -> Protocol:
    """How drafts are judged: as the final answers are, at shapes of another seed. It follows from the final one, so
    that a continued run finds what it judged.
    """
    return replace(final, suite_seed=final.suite_seed + 1)


def feedback_cases(judge: Judge, task: Task, final: Protocol) -> tuple[Case, ...]:
    """Cases at which drafts are judged: none has the sizes of a case at which the final verdict is reached, so that no
    feedback shows such sizes. Tiny sizes and edges, of which there are too few for two suites, and a problem file's own
    sizes are the same.
    """
    planned = judge.plan(task, _feedback_protocol(final))
    if task.case_dims:
        return planned
    held_back = {case.dims for case in judge.plan(task, final) if case.shape_category not in SHARED}
    return tuple(c for c in planned if c.shape_category in SHARED or c.dims not in held_back)


@dataclass(kw_only=True)
class _Chain:
    """The rounds of one sample so far."""

    task: Task
    sample: int
    turns: list[EarlierRound] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    stopped: Answer | None = None
    """An answer that never arrived: no round follows it."""
    done: bool = False

    def final(self) -> Answer:
        """The fastest right draft, or the last one where none is right; its costs are those of all rounds."""
        if self.stopped is not None:
            return self.stopped
        ranked = [
            (v.verdict == "passed", _speed(v), number)
            for number, (turn, v) in enumerate(zip(self.turns, self.verdicts, strict=True))
            if turn.answer.candidate is not None
        ]
        right = [one for one in ranked if one[0]]
        number = max(right)[2] if right else max((one[2] for one in ranked), default=len(self.turns) - 1)
        chosen = self.turns[number].answer
        origins = [turn.answer.origin for turn in self.turns]
        summed = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "money_usd", "seconds")
        costs: dict[str, Any] = {name: sum(getattr(o, name) for o in origins) for name in summed}
        prices = next((o.prices for o in reversed(origins) if o.prices), "")
        origin = replace(chosen.origin, prices=prices, **costs)
        candidate = None if chosen.candidate is None else replace(chosen.candidate, origin=origin)
        return replace(chosen, candidate=candidate, origin=origin)


def _speed(verdict: Verdict) -> float:
    """Its speedup; 0: it is wrong or was not timed."""
    return verdict.speedup.value if verdict.verdict == "passed" and verdict.speedup is not None else 0.0


class _Rounds:
    """The rounds of one generator. Verdicts on drafts are stored as a run of their own, ``rounds of RUN``, which begins
    with the first of them; round r of sample s is its sample ``s * rounds + r``.
    """

    def __init__(self, maker: Asked, work: _Work, final_run: str) -> None:
        self._maker, self._work, self._final_run = maker, work, final_run
        self._run = ""
        self._protocol = _feedback_protocol(work.protocol)

    def ask(self, wanted: Sequence[tuple[Task, int]]) -> dict[_Key, Answer]:
        """The final answer to each (task, sample). Raises UsageError where the generator's settings are wrong."""
        work, maker, machine = self._work, self._maker, self._work.judge.machine
        chains = [_Chain(task=task, sample=sample) for task, sample in wanted]
        for number in range(maker.rounds):
            active = [chain for chain in chains if not chain.done]
            if not active:
                break
            requests = [
                Request(
                    task=chain.task,
                    device=machine.device,
                    machine=machine,
                    limits=work.limits,
                    sample=chain.sample,
                    history=tuple(chain.turns),
                )
                for chain in active
            ]
            answers = ask_all(maker, requests, work.on_event, caps=work.caps, check=self._check)
            if maker.rounds == 1:
                return {(maker.name, c.task.name, c.sample): a for c, a in zip(active, answers, strict=True)}
            self._judge(active, answers, number)
        return {(maker.name, c.task.name, c.sample): c.final() for c in chains}

    def _judge(self, active: Sequence[_Chain], answers: Sequence[Answer], number: int) -> None:
        """Judge one round, and add its results to the chains."""
        work, maker = self._work, self._maker
        came = []
        for chain, answer in zip(active, answers, strict=True):
            if answer.problem in UNANSWERED:
                chain.stopped, chain.done = answer, True
            else:
                came.append((chain, answer))
        self._plan(came, number)
        work.judge.build_ahead([a.candidate for _, a in came if a.candidate is not None], work.on_event)
        for position, (chain, answer) in enumerate(came):
            task = chain.task
            tell(
                work.on_event,
                "run",
                position,
                len(came),
                f"{maker.name}: {task.name}, round {number + 1} of {maker.rounds}",
            )
            if said := work.caps.out_of_time():
                origin = Origin(generator=maker.name, sample=chain.sample, round=number)
                chain.stopped = Answer(candidate=None, origin=origin, problem="budget", message=said)
                chain.done = True
                continue
            verdict = work.judged(answer, task, self._protocol, self._cases(task))
            sample = self._sample(chain, number)
            work.store.put_verdict(self._run, maker.name, sample, answer.candidate, verdict, origin=answer.origin)
            text = answer.message if answer.candidate is None else feedback_of(verdict, task, work.limits)
            chain.turns.append(EarlierRound(answer=answer, feedback=text))
            chain.verdicts.append(verdict)
            chain.done = work.target is not None and _speed(verdict) >= work.target

    def _plan(self, came: Sequence[tuple[_Chain, Answer]], number: int) -> None:
        """Store what is going to be judged in one round."""
        from kerneleval.store import NewRun

        work, maker, machine = self._work, self._maker, self._work.judge.machine
        plan = [
            _planned(c.task, maker.name, self._sample(c, number), self._cases(c.task), answer.candidate, answer.origin)
            for c, answer in came
        ]
        if not plan:
            return
        if not self._run:
            same = [i.id for i in work.store.runs() if i.rounds_of == self._final_run and maker.name in i.generators]
            self._run = same[0] if same else ""
        if self._run:
            work.store.add_attempts(self._run, plan)
            return
        self._run = work.store.begin_run(
            NewRun(
                name=f"rounds of {self._final_run}",
                generators=(maker.name,),
                machines=(machine,),
                protocol=self._protocol,
                plan=tuple(plan),
                tasks=work.sources,
                limits={machine.fingerprint: work.limits},
                rounds_of=self._final_run,
            )
        )

    def _check(self, candidate: Candidate, task: Task) -> tuple[bool, str]:
        """Whether a draft passes that a generator tries before it answers, and the feedback on it; it is not stored."""
        answer = Answer(candidate=candidate, origin=candidate.origin)
        verdict = self._work.judged(answer, task, self._protocol, self._cases(task))
        return verdict.verdict == "passed", feedback_of(verdict, task, self._work.limits)

    def _cases(self, task: Task) -> tuple[Case, ...]:
        return feedback_cases(self._work.judge, task, self._work.protocol)

    def _sample(self, chain: _Chain, number: int) -> int:
        return chain.sample * self._maker.rounds + number
