"""Stored runs as one: what scores, analyses and reports of them need."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kerneleval.generators.common.feedback import feedback_of
from kerneleval.pipeline.checking import open_task
from kerneleval.records import DIRECTIONS, Candidate, Case, Origin, Result, Task, UsageError, Verdict, to_plain

if TYPE_CHECKING:
    from kerneleval.analysis.compiled import CompiledMetrics
    from kerneleval.analysis.rubric import Rating
    from kerneleval.analysis.sources import SourceMetrics
    from kerneleval.scores import Setting
    from kerneleval.scores.common.registry import AttemptKey
    from kerneleval.store.plan import Attempt, RunInfo
    from kerneleval.store.store import Store


_METRICS = ("maintainability", "complexity_sum", "complexity_mean", "complexity_max")


@contextlib.contextmanager
def collects_later() -> Iterator[None]:
    """Runs without Python's search for cyclic garbage what reads millions of records, none of them in a cycle: the
    search through them again and again takes a quarter of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class StoredRuns:
    """One or more runs of a store as one, each part read or computed on its first use. Raises UsageError where there
    is no such store or run, no run is named, or one twice, or their baselines or the rules of their times differ.
    """

    def __init__(self, store_url: str | None, run: str | Sequence[str]) -> None:
        from kerneleval.store import open_store

        self.store = open_store(store_url, create=False, write=False)
        self.info, self.ids = _joined(self.store, run)

    @functools.cached_property
    def results(self) -> list[Result]:
        """Every cell."""
        return list(self.store.results(self.ids))

    @functools.cached_property
    def verdicts(self) -> tuple[tuple[Attempt, Verdict], ...]:
        """Attempts with their verdicts, both without cells."""
        return tuple(both for one in self.ids for both in self.store.verdicts(one, cells=False))

    @functools.cached_property
    def candidates(self) -> Mapping[str, Candidate]:
        """Content hash -> source."""
        return {
            found: self.store.candidate(found) for found in dict.fromkeys(r.candidate for r in self.results) if found
        }

    @functools.cached_property
    def tasks(self) -> Mapping[str, Task]:
        """Name -> task, as far as it is built in, or its file still defines it."""
        from kerneleval.tasks import open_task

        found = {}
        for name in dict.fromkeys(r.task for r in self.results):
            with contextlib.suppress(UsageError):
                task = open_task(self.info.tasks.get(name, name))
                if task.name == name:
                    found[name] = task
        return found

    @functools.cached_property
    def _here(self) -> Mapping[AttemptKey, Verdict]:
        """Verdicts of the first machine of the results."""
        machine = self.results[0].machine if self.results else ""
        return {(a.generator, a.task, a.sample): verdict for a, verdict in self.verdicts if a.machine == machine}

    @functools.cached_property
    def ratings(self) -> Sequence[Rating]:
        """Each attempt on the axes of the Standard Kernel Rubric."""
        from kerneleval.analysis import rubric

        saw = {key: rubric.seen(verdict) for key, verdict in self._here.items()}
        return rubric.rate(self.results, self.tasks, self.candidates, saw) if self.results else ()

    @functools.cached_property
    def metrics(self) -> Mapping[str, SourceMetrics]:
        """Content hash -> measures of the source. Raises UsageError where a package is missing."""
        from kerneleval.analysis import sources

        return {found: sources.measure(candidate) for found, candidate in self.candidates.items()}

    @functools.cached_property
    def compiled(self) -> Mapping[AttemptKey, CompiledMetrics]:
        """Attempt -> what its compiled code is like, on the first machine of the results."""
        from kerneleval.analysis import compiled

        return {key: compiled.measure(verdict) for key, verdict in self._here.items()}

    @functools.cached_property
    def setting(self) -> Setting:
        """What the scores need to know beyond the results."""
        from kerneleval.scores import Setting
        from kerneleval.scores.common.cells import devices_of, primary

        measured: dict[str, dict[AttemptKey, float]] = {}
        unmeasured: dict[str, str] = {}
        made = {(r.generator, r.task, r.sample): r.candidate for r in primary(self.results, Setting()) if r.candidate}
        try:
            for name in _METRICS if self.metrics else ():
                measured[name] = {key: float(getattr(self.metrics[found], name)) for key, found in made.items()}
        except UsageError as error:  # a package is missing, which scores do not need otherwise
            unmeasured = dict.fromkeys(_METRICS, str(error))
        for rating in self.ratings:
            for axis, grade in rating.grades.items():
                if grade.level is not None:
                    measured.setdefault(axis, {})[rating.generator, rating.task, rating.sample] = float(grade.level)

        @functools.cache
        def work(case: Case) -> tuple[float, float] | None:
            """Floating-point operations of a forward call and the fewest bytes that it must move."""
            task, dims = self.tasks.get(case.task), case.dims_map
            return None if task is None else (float(task.flops(dims)), float(task.bytes(dims, case.dtype)))

        return Setting(
            not_evaluated=dict(self.info.not_evaluated),
            devices=devices_of(self.info.machines),
            limits=self.info.limits,
            work=work if self.info.limits else None,
            measured=measured,
            unmeasured=unmeasured,
        )

    @functools.cached_property
    def scores(self) -> dict[str, dict[str, Any]]:
        """Generator -> score name -> score, or table of scores."""
        from kerneleval.scores import score_all

        return score_all(self.results, self.setting)


def _joined(store: Store, run: str | Sequence[str]) -> tuple[RunInfo, list[str]]:
    """The runs as one, the first one's machines first; and their identifiers. The protocol's version and directions are
    those of a run that is timed by an old rule, where there is one.
    """
    from kerneleval.scores.common.rules import old_rule, one_rule

    infos = [store.run(one) for one in ([run] if isinstance(run, str) else run)]
    if not infos:
        raise UsageError("no run is named; give one, or 'latest'")
    ids = [info.id for info in infos]
    if len(set(ids)) < len(ids):
        raise UsageError(f"run {max(ids, key=ids.count)} is named twice; name each run once")
    same_baseline(infos)
    timed = [info for info in infos if info.protocol.timed]
    one_rule({(d, info.protocol.version): info.id for info in timed for d in info.protocol.directions or DIRECTIONS})
    shown = next((info.protocol for info in infos if old_rule(to_plain(info.protocol))), infos[0].protocol)
    machines = {machine.fingerprint: machine for info in infos for machine in info.machines}
    kinds = {machine.device for machine in machines.values()}
    absent = {kind: why for info in infos for kind, why in info.not_evaluated.items() if kind not in kinds}
    found = replace(
        infos[0],
        id="+".join(ids),
        protocol=replace(infos[0].protocol, version=shown.version, directions=shown.directions),
        name=" + ".join(dict.fromkeys(info.name for info in infos)),
        generators=tuple(dict.fromkeys(name for info in infos for name in info.generators)),
        machines=tuple(machines.values()),
        planned=sum(info.planned for info in infos),
        finished=sum(info.finished for info in infos),
        not_evaluated=absent,
        tasks={name: source for info in reversed(infos) for name, source in info.tasks.items()},
        groups={name: group for info in reversed(infos) for name, group in info.groups.items()},
        limits={machine: of for info in reversed(infos) for machine, of in info.limits.items()},
        not_judged={task: why for info in reversed(infos) for task, why in info.not_judged.items()},
    )
    return found, ids


def same_baseline(infos: Sequence[RunInfo]) -> None:
    """Raise UsageError where runs are judged against different baselines."""
    other = next((info for info in infos if info.protocol.baseline != infos[0].protocol.baseline), None)
    if other is not None:
        raise UsageError(
            f"{infos[0].id} is judged against {infos[0].protocol.baseline}, {other.id} against "
            f"{other.protocol.baseline}: their speedups cannot be compared; give runs with the same baseline"
        )


CHAINS = 24
"""Samples whose drafts are shown; of more, those with the most rounds."""


def rounds_of(store: Store, runs: Sequence[str]) -> dict[str, Any]:
    """What a report shows of the rounds of runs; empty: nothing was refined. ``by_round``: for each generator and round
    ``asked``, ``built``, ``right``, ``usd``, ``tokens``; ``counts``, ``shares`` and ``repair_bias`` as
    :func:`kerneleval.pipeline.transitions` has them; ``chains``: some samples, each with ``generator``, ``task``,
    ``sample`` and ``rounds``, each with its cost, verdict, feedback (``told``) and source; ``total``: how many samples.
    """
    from kerneleval.analysis import transitions as between

    infos = [info for info in store.runs() if info.rounds_of in runs]
    if not infos:
        return {}
    chains: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    lines: list[Any] = []
    by_round: dict[tuple[str, int], dict[str, Any]] = {}
    for info in infos:
        found = [both for both in store.verdicts(info.id) if both[1].verdict != "not_judged"]
        sources = {a.candidate: store.candidate(a.candidate) for a, _ in found if a.candidate}
        lines += between.steps_of_run(iter(found), sources)
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
        **{name: getattr(verdict, name) for name in ("verdict", "stage", "reason")},
        **{name: getattr(origin, name) for name in ("round", "tokens_in", "tokens_out", "seconds")},
        "usd": origin.money_usd,
        "judged_s": verdict.seconds,
        "speedup": to_plain(verdict.speedup),
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
