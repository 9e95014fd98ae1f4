"""KernelBench's published results: an ``eval_results.json``, with or without a ``baseline_time_torch.json``.

What they state is taken as stated: nothing here was judged by this program. Times are milliseconds, means over trials
rounded to three significant digits (KernelBench, ``src/kernelbench/timing.py``).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kerneleval.analysis import published
from kerneleval.analysis.published import Published, PublishedFiles, clean, register
from kerneleval.records import Failed, Machine, Origin, Protocol, Timing, UsageError, Verdict, digest
from kerneleval.store import Planned


@register
def _read(files: PublishedFiles) -> Published:
    """Results of KernelBench, with the problems of the baseline that have none."""
    from kerneleval.tasks import peers

    file, baseline, level = files.path, files.baseline, files.level
    samples = read(file)
    times = None if baseline is None else read_baseline(baseline, level)
    level = times.level if times is not None else level
    if level is None:
        raise UsageError(f"{file} does not say which level it is of; give --level, or --baseline with one level")
    if not 1 <= level < 1000:
        raise UsageError(f"--level {level}: KernelBench's levels begin with 1")
    hardware, remarks = hardware_of(samples, times, files.hardware)
    name = (
        files.name
        or clean(file.resolve().parent.name if file.stem == "eval_results" else file.stem, 200)
        or "published"
    )
    machine = published.machine_of(clean(hardware, 200), _named_baseline(samples, times))
    against = "compile" if baseline is not None and "compile" in baseline.stem else "eager"
    protocol = replace(published.PROTOCOL, baseline=against, dtypes=("float32",))
    results = digest(file.read_bytes())[:16]
    source = sources_in(files.solutions, level)
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
        planned = published.planned_of(task, level, "float32", origin, published.candidate_of(place, text, origin))
        timing, facts = _timed(one, times, hardware)
        facts |= {"system": "KernelBench", "metadata": one.metadata}
        outcome = published.outcome_of(one.passed, timing, facts, failure(one))
        made.append((planned, published.verdict_of(planned, outcome, machine, protocol)))
    if times is not None:
        made += _missing(samples, times, name, machine, protocol)
    return published.collected(made, name, machine, protocol, sources, remarks)


def _timed(one: Sample, times: Baseline | None, hardware: str) -> tuple[Timing | None, dict[str, Any]]:
    """Its timing, None where there is none that counts; and what was published of it."""
    base = one.reference if times is None else times.problems.get(one.problem, ("", None))[1]
    both = {name: time for name, time in (("candidate", one.time), ("baseline", base)) if time is not None}
    facts = {name: {"mean_ms": t.mean_ms, "std_ms": t.std_ms, "trials": t.trials} for name, t in both.items()}
    if not one.passed or one.time is None or base is None or {one.hardware, base.hardware} - {"", hardware}:
        return None, facts
    found = speedup(one.time, base)
    return None if found is None else published.timing_of(*found), facts


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
            planned = published.planned_of(task, times.level, "float32", origin, None)
            failed = Failed(stage="generate", reason="missing", message="the published results have none for it")
            yield planned, published.verdict_of(planned, failed, machine, protocol)


_MOST_NUMBER = 10**9
"""Numbers of problems and samples, and of trials, are below this."""

_MESSAGES = (
    *("compilation_error", "cuda_error", "runtime_error", "correctness_issue", "other_error", "error"),
    *("compilation_error_name", "cuda_error_name", "runtime_error_name", "other_error_name"),
)
"""Where KernelBench's metadata give the reason of a failure, the most precise first."""

_SHAPE = re.compile(r"shape mismatch", re.IGNORECASE)
_TIMEOUT = re.compile(r"timed out|timeouterror", re.IGNORECASE)
_DEVICE = re.compile(r"cuda error|hip error|illegal memory access|misaligned address", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Time:
    """One published time."""

    mean_ms: float
    """Mean of the trials, milliseconds; positive and finite."""
    std_ms: float = math.nan
    """Standard deviation of the trials (divided by their number), milliseconds; NaN: not given."""
    trials: int = 0
    """Number of trials; 0: not given."""
    hardware: str = ""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One published sample of one problem."""

    problem: int
    """Number of the problem within its level."""
    sample: int
    compiled: bool
    correct: bool
    metadata: Any
    time: Time | None
    """Its time; None: there is none, or no positive, finite number."""
    reference: Time | None
    """Time of the reference that was taken along with it; None: none."""
    hardware: str

    @property
    def passed(self) -> bool:
        """Compiled and correct, as KernelBench counts its pass@k."""
        return self.compiled and self.correct


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The reference's times for one level."""

    level: int
    problems: Mapping[int, tuple[str, Time | None]]
    """Number of a problem -> its name (without ``.py``) and its time; None: no positive, finite number."""

    @property
    def hardware(self) -> tuple[str, ...]:
        """The devices named, in the order of the problems."""
        times = [time for _, time in self.problems.values() if time is not None]
        return tuple(dict.fromkeys(time.hardware for time in times if time.hardware))


def read(path: str | os.PathLike[str]) -> list[Sample]:
    """Every sample of an ``eval_results.json``, by problem and sample. Two forms are known: ``{problem: [sample,
    ...]}``, and the older ``{problem: sample}`` with one sample a problem (``sample_id`` 0 where it has none). Raises
    UsageError, naming file, problem and field, where it is no such file, or holds a sample twice.
    """
    file = Path(path)
    plain = _json(file, "give an eval_results.json of KernelBench")
    found: dict[tuple[int, int], Sample] = {}
    for key, of in plain.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise UsageError(f"{file}: key {key!r:.60} is no number of a problem; give an eval_results.json")
        number = int(key)
        where = f"{file}, problem {number}"
        if not isinstance(of, list | dict):
            raise UsageError(f"{where}: expected a list of samples, or one, got {of!r:.60}")
        for place, one in enumerate(of if isinstance(of, list) else [of]):
            sample = _sample(one, number, f"{where}, entry {place}")
            if (number, sample.sample) in found:
                raise UsageError(f"{where}: sample {sample.sample} is there twice; remove one of the two")
            found[number, sample.sample] = sample
    if not found:
        raise UsageError(f"{file} holds no sample")
    return [found[key] for key in sorted(found)]


def _sample(plain: Any, problem: int, where: str) -> Sample:
    if not isinstance(plain, Mapping):
        raise UsageError(f"{where}: a sample is an object, got {plain!r:.60}")
    for name in ("compiled", "correctness"):
        if not isinstance(plain.get(name), bool):
            raise UsageError(f"{where}: {name} must be true or false, got {plain.get(name)!r:.60}")
    sample = plain.get("sample_id", 0)
    if isinstance(sample, bool) or not isinstance(sample, int) or not 0 <= sample < _MOST_NUMBER:
        raise UsageError(f"{where}: sample_id must be a whole number from 0, got {sample!r:.60}")
    metadata = plain.get("metadata")
    stated = str(metadata.get("hardware") or "") if isinstance(metadata, Mapping) else ""
    time = _time(plain, "runtime", where)
    return Sample(
        problem=problem,
        sample=sample,
        compiled=plain["compiled"],
        correct=plain["correctness"],
        metadata=metadata,
        time=time,
        reference=_time(plain, "ref_runtime", where),
        hardware=stated or (time.hardware if time is not None else ""),
    )


def _time(plain: Mapping[str, Any], name: str, where: str) -> Time | None:
    stats = plain.get(f"{name}_stats")
    if stats is not None and not isinstance(stats, Mapping):
        raise UsageError(f"{where}: {name}_stats must be an object, got {stats!r:.60}")
    return _time_of(_real(plain, name, where), stats or {}, f"{where}, {name}_stats")


def failure(sample: Sample) -> tuple[str, str, str]:
    """Stage, reason and message of a sample that did not pass.

    The stage follows ``compiled`` and ``correctness``; only a timeout and an error of the device, which KernelBench
    records as not compiled, are distinguished by the metadata. The message is theirs, unchanged.
    """
    metadata = sample.metadata if isinstance(sample.metadata, Mapping) else {}
    said = ((str(metadata[key]).strip(), key) for key in _MESSAGES if isinstance(metadata.get(key), str))
    message, name = next((one for one in said if one[0]), ("", ""))
    if _TIMEOUT.search(message):
        return "call", "timeout", message
    if name == "cuda_error" or (name == "runtime_error" and _DEVICE.search(message)):
        return "call", "device_error", message
    if not sample.compiled:
        return "build", "build_error", message or "published as not compiled"
    if name.startswith("runtime_error"):
        return "call", "exception", message
    if _SHAPE.search(message):
        return "correctness", "wrong_shape", message
    return "correctness", "wrong_output", message or "published as not correct"


def read_baseline(path: str | os.PathLike[str], level: int | None = None) -> Baseline:
    """The times of one level of a ``baseline_time_torch.json``: ``{level: {file of the problem: times}}``; without a
    level those of the only one that it holds. Raises UsageError, naming file, level, problem and field, where it is no
    such file, or has no such level.
    """
    file = Path(path)
    plain = _json(file, "give a baseline_time_torch.json of KernelBench")
    levels = {_level(key, file): key for key in plain}
    if level is None and len(levels) == 1:
        level = next(iter(levels))
    known = ", ".join(map(str, sorted(levels)))
    if level is None:
        raise UsageError(f"{file} holds the levels {known}; say with --level which the results are of")
    if level not in levels:
        raise UsageError(f"{file} has no level {level}; it holds {known}")
    problems: dict[int, tuple[str, Time | None]] = {}
    of_level = plain[levels[level]]
    if not isinstance(of_level, Mapping):
        raise UsageError(f"{file}, level {level}: expected an object, got {of_level!r:.60}")
    for key, stats in of_level.items():
        where = f"{file}, level {level}, problem {key!r:.80}"
        name = key.removesuffix(".py")
        if not re.fullmatch(r"[0-9]{1,9}_[\w.+-]{1,200}", name, re.ASCII):
            raise UsageError(f"{where}: the name of a problem must be NUMBER_NAME.py")
        number = int(name.partition("_")[0])
        if number in problems:
            raise UsageError(f"{where}: problem {number} is {problems[number][0]!r} as well")
        if not isinstance(stats, Mapping):
            raise UsageError(f"{where}: expected an object, got {stats!r:.60}")
        problems[number] = (name, _time_of(_real(stats, "mean", where), stats, where))
    if not problems:
        raise UsageError(f"{file}, level {level}: no problem")
    return Baseline(level=level, problems=dict(sorted(problems.items())))


def _level(key: str, file: Path) -> int:
    if match := re.fullmatch(r"level_?([0-9]{1,3})", key, re.ASCII):
        return int(match[1])
    raise UsageError(f"{file}: key {key!r:.60} is no level (level1, level2 ...); give a baseline_time_torch.json")


def speedup(candidate: Time, baseline: Time) -> tuple[float, float, float] | None:
    """Baseline's mean over the candidate's, with a 95 % interval; None: no finite ratio.

    Delta method on the logarithm, the two independent: variance (s_c / m_c)^2 / (n_c - 1) + (s_b / m_b)^2 / (n_b - 1),
    as KernelBench divides by n for s; Student's t with the fewer trials; half a unit of the third digit of either mean
    on top, where it has no more. Without both spreads the interval is 0 to infinity: nothing is known of it.
    """
    ratio, both = baseline.mean_ms / candidate.mean_ms, (candidate, baseline)
    if not 0 < ratio < math.inf:
        return None
    if any(time.trials < 2 or math.isnan(time.std_ms) for time in both):
        return ratio, 0.0, math.inf
    from scipy import stats

    error = math.hypot(*(time.std_ms / time.mean_ms / math.sqrt(time.trials - 1) for time in both))
    half = float(stats.t.ppf(0.975, min(time.trials for time in both) - 1)) * error
    half = min(half + sum(_rounding(time.mean_ms) for time in both), 700.0)
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)


def _rounding(mean: float) -> float:
    """What rounding to three significant digits may have changed, relative; 0: it has more digits."""
    return 0.5 * 10.0 ** (math.floor(math.log10(mean)) - 2) / mean if mean == float(f"{mean:.3g}") else 0.0


def hardware_of(samples: Sequence[Sample], times: Baseline | None, wanted: str = "") -> tuple[str, list[str]]:
    """The device that counts, empty where nothing states it, and remarks on it. Raises UsageError where the
    results state others than the one wanted, or the baseline does.
    """
    stated = Counter(s.hardware for s in samples if s.hardware)
    if wanted and stated and wanted not in stated:
        raise UsageError(f"hardware {wanted!r:.80}: the results state {', '.join(map(repr, stated)):.300}")
    of_baseline = () if times is None else times.hardware
    found = wanted or (stated.most_common(1)[0][0] if stated else next(iter(of_baseline), ""))
    if of_baseline and found not in of_baseline:
        raise UsageError(
            f"the results were taken on {found!r:.80}, the baseline on {of_baseline[0]!r:.80}: their ratio is no "
            "speedup; give the baseline of that hardware"
        )
    others = sum(count for one, count in stated.items() if one != found)
    remarks = [f"samples on other hardware, which are not timed: {others}"] if others else []
    return found, remarks if stated else [*remarks, "the results do not state their hardware"]


def sources_in(folder: str | os.PathLike[str] | None, level: int) -> Callable[[int, int], str | None]:
    """(problem, sample) -> source, from files ``level_L_problem_P_sample_S_kernel.py``; None: there is none. Raises
    UsageError for no such folder, none of these files in it, or (when called) one that is too large.
    """
    if folder is None:
        return lambda problem, sample: None
    place = Path(folder)
    if not place.is_dir():
        raise UsageError(f"{place}: no such folder of solutions")
    if not any(place.glob(f"level_{level}_problem_*_sample_*_kernel.py")):
        raise UsageError(f"{place}: no file level_{level}_problem_P_sample_S_kernel.py is in it")
    return lambda problem, sample: _source(place / f"level_{level}_problem_{problem}_sample_{sample}_kernel.py")


def _source(file: Path) -> str | None:
    from kerneleval.languages.common.source import SIZE_LIMIT_BYTES

    try:
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            data = stream.read(SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}") from error
    if len(data) > SIZE_LIMIT_BYTES:
        raise UsageError(f"{file}: larger than {SIZE_LIMIT_BYTES} bytes, the limit")
    return data.decode("utf-8", errors="replace")


def _json(file: Path, fix: str) -> dict[str, Any]:
    try:
        plain = json.loads(published.text_of(file, fix), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}; {fix}") from error
    if not isinstance(plain, dict):
        raise UsageError(f"{file} holds {plain!r:.60}, not an object; {fix}")
    return plain


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key comes twice: of two, JSON's reader would silently drop one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r:.60} comes twice in one object")
    return found


def _real(plain: Mapping[str, Any], name: str, where: str) -> float:
    """A number; NaN where there is none."""
    value = plain.get(name)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{where}: {name} must be a number, got {value!r:.60}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _time_of(mean: float, stats: Mapping[str, Any], where: str) -> Time | None:
    """The time; None where the mean is no positive, finite number (KernelBench writes -1 for none)."""
    std, trials, hardware = _real(stats, "std", where), stats.get("num_trials", 0), stats.get("hardware", "")
    if isinstance(trials, bool) or not isinstance(trials, int) or not 0 <= trials < _MOST_NUMBER:
        raise UsageError(f"{where}: num_trials must be a whole number from 0, got {trials!r:.60}")
    if not isinstance(hardware, str):
        raise UsageError(f"{where}: hardware must be a text, got {hardware!r:.60}")
    if not 0 < mean < math.inf:
        return None
    return Time(mean_ms=mean, std_ms=std if 0 <= std < math.inf else math.nan, trials=trials, hardware=hardware)
