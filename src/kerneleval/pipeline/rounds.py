"""The rounds of refinement of stored runs, for a report: what became of drafts, what was told, what it cost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kerneleval.generators.common.feedback import feedback_of
from kerneleval.pipeline.checking import open_task
from kerneleval.records import Origin, Task, UsageError, Verdict, to_plain

if TYPE_CHECKING:
    from kerneleval.store.plan import RunInfo
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
        task_of = _opened(info)
        for attempt, verdict in found:
            origin = attempt.origin
            if origin is None:
                continue
            told = verdict.message if not attempt.candidate else ""
            if attempt.candidate and (task := task_of(attempt.task)) is not None:
                told = feedback_of(verdict, task, info.limits.get(attempt.machine))
            source = sources[attempt.candidate].main if attempt.candidate else ""
            row = _round(origin, verdict) | {"told": told, "source": source}
            chains.setdefault((attempt.generator, attempt.task, origin.sample), []).append(row)
            _add(by_round, attempt.generator, origin, verdict)
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


def _round(origin: Origin, verdict: Verdict) -> dict[str, Any]:
    return {
        "round": origin.round,
        "verdict": verdict.verdict,
        "stage": verdict.stage,
        "reason": verdict.reason,
        "speedup": to_plain(verdict.speedup),
        "tokens_in": origin.tokens_in,
        "tokens_out": origin.tokens_out,
        "usd": origin.money_usd,
        "seconds": origin.seconds,
        "judged_s": verdict.seconds,
    }


def _add(by_round: dict[tuple[str, int], dict[str, Any]], generator: str, origin: Origin, verdict: Verdict) -> None:
    counts = {"asked": 0, "built": 0, "right": 0, "usd": 0.0, "tokens": 0}
    row = by_round.setdefault((generator, origin.round), {"generator": generator, "round": origin.round, **counts})
    row["asked"] += 1
    row["built"] += verdict.stage not in ("generate", "build", "load")
    row["right"] += verdict.verdict == "passed"
    row["usd"] += origin.money_usd
    row["tokens"] += origin.tokens_in + origin.tokens_out


def _opened(info: RunInfo) -> Callable[[str], Task | None]:
    """Opens the tasks of a run (times then have the limits with them); None: its file is not there any more."""

    @functools.cache
    def task(name: str) -> Task | None:
        try:
            return open_task(info.tasks.get(name, name), info.protocol)
        except UsageError:
            return None

    return task
