"""KernelBench's published results: an ``eval_results.json``, with or without the times of a baseline.

``common/kernelbench_results.py`` reads the files; here they become attempts and verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kerneleval.analysis.formats.common import kernelbench_results
from kerneleval.analysis.formats.common.kernelbench_results import Baseline, Sample
from kerneleval.analysis.formats.common.published import (
    PROTOCOL,
    Published,
    candidate_of,
    clean,
    collected,
    machine_of,
    outcome_of,
    planned_of,
    timing_of,
    verdict_of,
)
from kerneleval.analysis.formats.common.registry import PublishedFiles, register
from kerneleval.records import Failed, Machine, Origin, Protocol, Timing, UsageError, Verdict, digest
from kerneleval.store import Planned


@register
def _read(files: PublishedFiles) -> Published:
    """Results of KernelBench, with the problems of the baseline that have none."""
    from kerneleval.tasks import peers

    file, baseline, level = files.path, files.baseline, files.level
    samples = kernelbench_results.read(file)
    times = None if baseline is None else kernelbench_results.read_baseline(baseline, level)
    level = times.level if times is not None else level
    if level is None:
        raise UsageError(f"{file} does not say which level it is of; give --level, or --baseline with one level")
    if not 1 <= level < 1000:
        raise UsageError(f"--level {level}: KernelBench's levels begin with 1")
    hardware, remarks = kernelbench_results.hardware(samples, times, files.hardware)
    name = (
        files.name
        or clean(file.resolve().parent.name if file.stem == "eval_results" else file.stem, 200)
        or "published"
    )
    machine = machine_of(clean(hardware, 200), _named_baseline(samples, times))
    against = "compile" if baseline is not None and "compile" in baseline.stem else "eager"
    protocol = replace(PROTOCOL, baseline=against, dtypes=("float32",))
    results = digest(file.read_bytes())[:16]
    source = kernelbench_results.sources(files.solutions, level)
    known = [row.name for row in peers.names("KernelBench") if row.group == f"level{level}"]
    known += [] if times is None else [of for of, _ in times.problems.values()]
    names = {int(of.partition("_")[0]): of for of in known}
    made, sources = [], 0
    for one in samples:
        task = f"KernelBench/level{level}/{names.get(one.problem, one.problem)}"
        text = source(one.problem, one.sample)
        sources += text is not None
        if text is None:
            stated = f"level {level}, problem {one.problem}, sample {one.sample}"
            text = f"# KernelBench, results {results}: {stated}. Its source was not published with it.\n"
        origin = Origin(generator=name, sample=one.sample)
        place = f"{results}/level_{level}_problem_{one.problem}_sample_{one.sample}_kernel.py"
        planned = planned_of(task, level, "float32", origin, candidate_of(place, text, origin))
        timing, facts = _timed(one, times, hardware)
        facts |= {"system": "KernelBench", "metadata": one.metadata}
        outcome = outcome_of(one.passed, timing, facts, kernelbench_results.failure(one))
        made.append((planned, verdict_of(planned, outcome, machine, protocol)))
    if times is not None:
        made += _missing(samples, times, name, machine, protocol)
    return collected(made, name, machine, protocol, sources, remarks)


def _timed(one: Sample, times: Baseline | None, hardware: str) -> tuple[Timing | None, dict[str, Any]]:
    """Its timing, None where there is none that counts; and what was published of it."""
    base = one.reference if times is None else times.problems.get(one.problem, ("", None))[1]
    both = {name: time for name, time in (("candidate", one.time), ("baseline", base)) if time is not None}
    facts = {name: {"mean_ms": t.mean_ms, "std_ms": t.std_ms, "trials": t.trials} for name, t in both.items()}
    if not one.passed or one.time is None or base is None or {one.hardware, base.hardware} - {"", hardware}:
        return None, facts
    found = kernelbench_results.speedup(one.time, base)
    return None if found is None else timing_of(*found), facts


def _named_baseline(samples: Sequence[Sample], times: Baseline | None) -> str:
    """The baseline in a few words; results against different ones must not be taken for one another."""
    if times is not None:
        return f"level {times.level} of {digest(repr(sorted(times.problems.items())))[:12]}"
    return "measured with each sample" if any(s.reference is not None for s in samples) else "none"


def _missing(
    samples: Sequence[Sample], times: Baseline, name: str, machine: Machine, protocol: Protocol
) -> Iterator[tuple[Planned, Verdict]]:
    """Problems of the baseline without a result: they count as failed, as in KernelBench's own analysis."""
    most = max(Counter(s.problem for s in samples).values())
    tried = {s.problem for s in samples}
    for number, (of, _) in times.problems.items():
        for sample in range(most if number not in tried else 0):
            task = f"KernelBench/level{times.level}/{of}"
            origin = Origin(generator=name, sample=sample)
            planned = planned_of(task, times.level, "float32", origin, None)
            failed = Failed(stage="generate", reason="missing", message="the published results have none for it")
            yield planned, verdict_of(planned, failed, machine, protocol)
