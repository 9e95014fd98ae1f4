"""Rounds of refinement: ask, judge at other shapes than the final ones, tell what came out, ask again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kerneleval.generators.common.feedback import feedback_of
from kerneleval.pipeline.asking import ask_all
from kerneleval.records import (
    Answer,
    Candidate,
    Case,
    EarlierRound,
    Limits,
    OnEvent,
    Origin,
    Protocol,
    Request,
    Task,
    Verdict,
    tell,
)

if TYPE_CHECKING:
    from kerneleval.generators import Asked
    from kerneleval.judge.judge import Judge
    from kerneleval.pipeline.caps import Caps
    from kerneleval.store.store import Store

UNANSWERED = ("endpoint", "budget")
"""Problems that are not the generator's: its attempt stays open, and is asked again when the run goes on."""

SHARED = ("edge", "tiny")
"""Shape categories with so few sizes that any two suites share some."""

Judged = Callable[[Answer, Task, Protocol, Sequence[Case]], Verdict]
"""(answer, task, protocol, cases) -> the verdict, from the store where it is known."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One sample that is to be asked for."""

    task: Task
    sample: int


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all rounds of a run share."""

    store: Store
    judge: Judge
    run: str
    """Identifier of the run that the final answers belong to."""
    final: Protocol
    limits: Limits | None
    judged: Judged
    sources: Mapping[str, str]
    """Task name -> what was given as ``--task``."""
    target: float | None = None
    """Speedup from which on a draft is not refined any more; None: all rounds are used."""
    caps: Caps | None = None
    on_event: OnEvent | None = None


@dataclass(kw_only=True)
class _Chain:
    """The rounds of one sample so far."""

    wanted: Wanted
    turns: list[EarlierRound] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    stopped: Answer | None = None
    """An answer that never came: nothing goes on behind it."""
    done: bool = False


def feedback_protocol(final: Protocol) -> Protocol:
    """How drafts are judged: as the final answers are, at shapes of another seed. It follows from the final one, so
    that a run that goes on finds what it judged.
    """
    return replace(final, suite_seed=final.suite_seed + 1)


def feedback_cases(judge: Judge, task: Task, final: Protocol) -> tuple[Case, ...]:
    """Cases at which drafts are judged: none has the sizes of a case at which the final verdict is reached, so that no
    feedback tells such sizes. Tiny sizes and edges, of which there are too few for two suites, and a problem file's own
    sizes are the same.
    """
    planned = judge.plan(task, feedback_protocol(final))
    if task.case_dims:
        return planned
    held_back = {case.dims for case in judge.plan(task, final) if case.shape_category not in SHARED}
    return tuple(c for c in planned if c.shape_category in SHARED or c.dims not in held_back)


def ask(maker: Asked, wanted: Sequence[Wanted], setting: Setting) -> dict[tuple[str, int], Answer]:
    """The final answer to each sample, by (task name, sample): of one that is refined, the fastest right draft, or the
    last one where none is right. Its origin's costs are those of all its rounds.

    Verdicts on drafts are stored as a run of their own, ``rounds of RUN``; round r of sample s is its sample
    ``s * rounds + r``.

    Raises:
        UsageError: the generator's settings are wrong.
    """
    chains = [_Chain(wanted=one) for one in wanted]
    rounds = _Rounds(maker, setting)
    for number in range(maker.rounds):
        active = [chain for chain in chains if not chain.done]
        if not active:
            break
        requests = [_request(chain, setting) for chain in active]
        answers = ask_all(maker, requests, setting.on_event, caps=setting.caps, check=rounds.check)
        if maker.rounds == 1:
            return {(c.wanted.task.name, c.wanted.sample): a for c, a in zip(active, answers, strict=True)}
        _judge_round(maker, active, answers, rounds, setting, number)
    return {(c.wanted.task.name, c.wanted.sample): _final(c) for c in chains}


def _request(chain: _Chain, setting: Setting) -> Request:
    machine = setting.judge.machine
    return Request(
        task=chain.wanted.task,
        device=machine.device,
        machine=machine,
        limits=setting.limits,
        sample=chain.wanted.sample,
        history=tuple(chain.turns),
    )


def _judge_round(
    maker: Asked, active: Sequence[_Chain], answers: Sequence[Answer], rounds: _Rounds, setting: Setting, number: int
) -> None:
    came = [(c, a) for c, a in zip(active, answers, strict=True) if a.problem not in UNANSWERED]
    for chain, answer in zip(active, answers, strict=True):
        if answer.problem in UNANSWERED:
            chain.stopped, chain.done = answer, True
    rounds.plan([(chain.wanted, answer) for chain, answer in came], number)
    setting.judge.build_ahead([a.candidate for _, a in came if a.candidate is not None], setting.on_event)
    for position, (chain, answer) in enumerate(came):
        wanted = chain.wanted
        text = f"{maker.name}: {wanted.task.name}, round {number + 1} of {maker.rounds}"
        tell(setting.on_event, "run", position, len(came), text)
        if setting.caps is not None and (said := setting.caps.out_of_time()):
            origin = Origin(generator=maker.name, sample=wanted.sample, round=number)
            chain.stopped = Answer(candidate=None, origin=origin, problem="budget", message=said)
            chain.done = True
            continue
        verdict = rounds.verdict(wanted, answer, number)
        text = answer.message if answer.candidate is None else feedback_of(verdict, wanted.task, setting.limits)
        chain.turns.append(EarlierRound(answer=answer, feedback=text))
        chain.verdicts.append(verdict)
        chain.done = _reached(verdict, setting.target)


def _reached(verdict: Verdict, target: float | None) -> bool:
    return target is not None and _speed(verdict) >= target


def _speed(verdict: Verdict) -> float:
    """Its speedup; 0: it is wrong or was not timed."""
    if verdict.verdict != "passed" or verdict.speedup is None:
        return 0.0
    return verdict.speedup.value


def _final(chain: _Chain) -> Answer:
    if chain.stopped is not None:
        return chain.stopped
    ranked = [
        (v.verdict == "passed", _speed(v), number)
        for number, (turn, v) in enumerate(zip(chain.turns, chain.verdicts, strict=True))
        if turn.answer.candidate is not None
    ]
    right = [one for one in ranked if one[0]]
    number = max(right)[2] if right else max((one[2] for one in ranked), default=len(chain.turns) - 1)
    chosen = chain.turns[number].answer
    origins = [turn.answer.origin for turn in chain.turns]
    origin = replace(
        chosen.origin,
        tokens_in=sum(o.tokens_in for o in origins),
        tokens_out=sum(o.tokens_out for o in origins),
        tokens_cached=sum(o.tokens_cached for o in origins),
        tokens_reasoning=sum(o.tokens_reasoning for o in origins),
        money_usd=sum(o.money_usd for o in origins),
        seconds=sum(o.seconds for o in origins),
        prices=next((o.prices for o in reversed(origins) if o.prices), ""),
    )
    candidate = None if chosen.candidate is None else replace(chosen.candidate, origin=origin)
    return replace(chosen, candidate=candidate, origin=origin)


class _Rounds:
    """The run that holds the verdicts on drafts; it begins with the first of them."""

    def __init__(self, maker: Asked, setting: Setting) -> None:
        self._maker, self._setting = maker, setting
        self._run = ""
        self._protocol = feedback_protocol(setting.final)

    def _cases(self, task: Task) -> tuple[Case, ...]:
        return feedback_cases(self._setting.judge, task, self._setting.final)

    def plan(self, came: Sequence[tuple[Wanted, Answer]], number: int) -> None:
        """Store what is going to be judged in one round."""
        from kerneleval.store import NewRun, Planned

        setting, maker = self._setting, self._maker
        plan = [
            Planned(
                generator=maker.name,
                task=wanted.task.name,
                category=wanted.task.category,
                level=wanted.task.level,
                group=wanted.task.group,
                cases=self._cases(wanted.task),
                sample=self._sample(wanted, number),
                candidate=answer.candidate,
                origin=answer.origin,
            )
            for wanted, answer in came
        ]
        if not plan:
            return
        if not self._run:
            same = [i.id for i in setting.store.runs() if i.rounds_of == setting.run and maker.name in i.generators]
            self._run = same[0] if same else ""
        if self._run:
            setting.store.add_attempts(self._run, plan)
        else:
            machine = setting.judge.machine
            self._run = setting.store.begin_run(
                NewRun(
                    name=f"rounds of {setting.run}",
                    generators=(maker.name,),
                    machines=(machine,),
                    protocol=self._protocol,
                    plan=tuple(plan),
                    tasks=setting.sources,
                    limits={} if setting.limits is None else {machine.fingerprint: setting.limits},
                    rounds_of=setting.run,
                )
            )

    def verdict(self, wanted: Wanted, answer: Answer, number: int) -> Verdict:
        """The verdict on one draft, which is stored."""
        setting = self._setting
        verdict = setting.judged(answer, wanted.task, self._protocol, self._cases(wanted.task))
        setting.store.put_verdict(
            self._run,
            self._maker.name,
            self._sample(wanted, number),
            answer.candidate,
            verdict,
            origin=answer.origin,
        )
        return verdict

    def check(self, candidate: Candidate, task: Task) -> tuple[bool, str]:
        """Whether a draft passes that a generator tries before it answers, and the feedback on it; it is not stored."""
        setting = self._setting
        answer = Answer(candidate=candidate, origin=candidate.origin)
        verdict = setting.judged(answer, task, self._protocol, self._cases(task))
        return verdict.verdict == "passed", feedback_of(verdict, task, setting.limits)

    def _sample(self, wanted: Wanted, number: int) -> int:
        return wanted.sample * self._maker.rounds + number
