"""The rounds of refinement of stored runs, for a report: what became of drafts, what was told, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerneleval.generators.common.feedback import feedback_of
from kerneleval.pipeline.checking import open_task
from kerneleval.records import Candidate, Task, UsageError, Verdict, to_plain

if TYPE_CHECKING:
    from kerneleval.store.plan import Attempt, RunInfo
    from kerneleval.store.store import Store

CHAINS = 24
"""Samples whose drafts are shown; of more, those with the most rounds."""


def rounds_of(store: Store, runs: Sequence[str]) -> dict[str, Any]:
    """What a report shows of the rounds of runs; empty: nothing was refined.

    Returns:
        ``by_round``: for each generator and round ``asked``, ``built``, ``right``, ``usd``, ``tokens``; ``counts``,
        ``shares`` and ``repair_bias`` as :func:`kerneleval.pipeline.transitions` has them; ``chains``: some samples,
        each with ``generator``, ``task``, ``sample`` and ``rounds``, each with what it cost, what the judge said, what
        was told and the source; ``total``: how many samples there are.
    """
    from kerneleval.analysis import steps
    from kerneleval.analysis import transitions as between

    infos = [info for info in store.runs() if info.rounds_of in runs]
    if not infos:
        return {}
    chains: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    lines: list[Any] = []
    by_round: dict[tuple[str, int], dict[str, Any]] = {}
    for info in infos:
        found = list(store.verdicts(info.id))
        sources = {a.candidate: store.candidate(a.candidate) for a, _ in found if a.candidate}
        lines += steps.steps_of_run(iter(found), sources)
        opened = _Tasks(info)
        for attempt, verdict in found:
            if attempt.origin is None:
                continue
            number = attempt.origin.round
            row = _round(attempt, verdict, number, sources, opened, info)
            chains.setdefault((attempt.generator, attempt.task, attempt.origin.sample), []).append(row)
            _add(by_round, attempt, verdict, number)
    moves = between.transitions(lines)
    shown = sorted(chains.items(), key=lambda item: (-len(item[1]), item[0]))[:CHAINS]
    return {
        "by_round": list(by_round.values()),
        "transitions": len(moves),
        "counts": between.counts(moves),
        "shares": to_plain(between.shares(moves)),
        "repair_bias": to_plain(between.repair_bias(moves)),
        "chains": [
            {"generator": g, "task": t, "sample": s, "rounds": sorted(rows, key=lambda row: row["round"])}
            for (g, t, s), rows in shown
        ],
        "total": len(chains),
    }


def _round(
    attempt: Attempt,
    verdict: Verdict,
    number: int,
    sources: Mapping[str, Candidate],
    opened: _Tasks,
    info: RunInfo,
) -> dict[str, Any]:
    origin = attempt.origin
    task = opened.task(attempt.task)
    told = verdict.message if not attempt.candidate else ""
    if attempt.candidate and task is not None:
        told = feedback_of(verdict, task, info.limits.get(attempt.machine))
    return {
        "round": number,
        "verdict": verdict.verdict,
        "stage": verdict.stage,
        "reason": verdict.reason,
        "speedup": to_plain(verdict.speedup),
        "tokens_in": origin.tokens_in if origin else 0,
        "tokens_out": origin.tokens_out if origin else 0,
        "usd": origin.money_usd if origin else 0.0,
        "seconds": origin.seconds if origin else 0.0,
        "judged_s": verdict.seconds,
        "told": told,
        "source": sources[attempt.candidate].main if attempt.candidate else "",
    }


def _add(by_round: dict[tuple[str, int], dict[str, Any]], attempt: Attempt, verdict: Verdict, number: int) -> None:
    counts = {"asked": 0, "built": 0, "right": 0, "usd": 0.0, "tokens": 0}
    row = by_round.setdefault((attempt.generator, number), {"generator": attempt.generator, "round": number, **counts})
    row["asked"] += 1
    row["built"] += verdict.stage not in ("generate", "build", "load")
    row["right"] += verdict.verdict == "passed"
    if attempt.origin is not None:
        row["usd"] += attempt.origin.money_usd
        row["tokens"] += attempt.origin.tokens_in + attempt.origin.tokens_out


class _Tasks:
    """The tasks of a run, opened where they still can be: times then have the limits with them."""

    def __init__(self, info: RunInfo) -> None:
        self._info, self._known = info, dict[str, Task | None]()

    def task(self, name: str) -> Task | None:
        """The task; None: its file is not there any more."""
        if name not in self._known:
            try:
                self._known[name] = open_task(self._info.tasks.get(name, name), self._info.protocol)
            except UsageError:
                self._known[name] = None
        return self._known[name]
