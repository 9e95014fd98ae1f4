"""Every built-in task tested by itself: its reference passes in every dtype and direction, and planted bugs do not.

Small shapes, no worker and no candidate: the whole library takes some ten minutes on two cores. What is done is kept,
task by task, under a hash of the task's declaration and of the code that judges it: a run that was stopped, or that
comes after a change, does what is left. ``kerneleval selftest`` tests tasks at every planned case, with their
references through the whole judge.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kerneleval
from benchmarks.processes import Broken, work_through
from benchmarks.report import parser
from kerneleval import devices, tasks
from kerneleval.devices.cpu import processors
from kerneleval.records import (
    DIRECTIONS,
    SHAPE_CATEGORIES,
    Case,
    KernelEvalError,
    Machine,
    Protocol,
    Task,
    UsageError,
    digest,
    near,
    to_plain,
)

if TYPE_CHECKING:
    from kerneleval.judge.selftest.task_selftest import Examined

CATEGORIES = ("tiny", "small", "square", "rectangular", "edge")
"""Shape categories of the cases: bugs are planted in all but the edges; square inputs can be transposed."""

BUDGET_BYTES, BUDGET_FLOPS = 200_000, 10_000_000
"""Limits of a case: a few milliseconds on one core, with thousands of elements."""

SECONDS_EACH = 900.0
"""What a task may take: a hundred times as long as most."""

SHOWN_S = 15.0
"""Time between two lines of progress."""

FATES = ("killed", "survived", "equivalent")
SHORT_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

Found = dict[str, Any]


# --------------------------------------------------------------------------------------------------------------------
# One task, in a process of its own
# --------------------------------------------------------------------------------------------------------------------


def examine_task(job: Mapping[str, Any]) -> Found:
    """What the self-test of one task finds.

    Args:
        job: ``task`` (name), ``device``, ``dtypes`` and ``directions`` (empty: the task's).
    """
    import torch

    from kerneleval.tasks import sampling, shapes

    torch.set_num_threads(1)
    task, device = tasks.find(job["task"]), devices.find(job["device"])
    began = time.perf_counter()
    protocol = Protocol(
        tier="quick",
        dtypes=tuple(d for d in job["dtypes"] or task.dtypes if d in task.dtypes),
        directions=tuple(d for d in job["directions"] or task.directions if d in task.directions),
        categories=tuple(c for c in CATEGORIES if c not in SHAPE_CATEGORIES or sampling.exists(task, c)),
    )
    cases: tuple[Any, ...] = ()
    if protocol.dtypes and protocol.directions and _judged(task, protocol):
        cases = shapes.plan(task, protocol, shapes.Budget(memory_bytes=BUDGET_BYTES, flops=BUDGET_FLOPS))
    findings: list[Found] = []
    ends: dict[tuple[str, str, str, str], list[Any]] = {}
    for case in cases:
        found = _found_at(task, case, device.torch_device)
        findings += [{name: one[name] for name in ("test", "case", "message")} for one in found.findings]
        for end in found.mutants:
            ends.setdefault((found.case.direction, found.case.dtype, end.kind, end.name), []).append(end)
    return {
        "task": task.name,
        "category": task.category,
        "cases": len(cases),
        "seconds": round(time.perf_counter() - began, 3),
        "passed": not findings,
        "findings": findings,
        **_counted(ends),
    }


def _found_at(task: Task, case: Case, device: str) -> Examined:
    """What is found at one case; an error names it, unless it does itself.

    Raises:
        Broken: the device is beyond use in this process.
        UsageError: the reference raises.
    """
    from kerneleval.judge.selftest.task_selftest import examine

    try:
        (found,) = examine(task, device, (case,))
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        where = "" if case.key in text else f" at {case.key}"
        if "CUDA error" in str(error) or type(error).__name__ == "AcceleratorError":
            raise Broken(f"{type(error).__name__}{where}: {text}") from error
        raise UsageError(f"{type(error).__name__}{where}: {text}") from error
    return found


def _judged(task: Task, protocol: Protocol) -> bool:
    from kerneleval.tasks import shapes

    return any(shapes.judged_in(task, direction, protocol.dtypes) for direction in protocol.directions)


def _counted(ends: Mapping[tuple[str, str, str, str], Sequence[Any]]) -> Found:
    """Mutants by kind and fate, those that were not killed, and why others could not be planted.

    A mutant is one bug in one direction and dtype. It is killed if it is at any case; each case of one is a meeting.
    """
    kinds: dict[str, Counter[str]] = {}
    meetings: Counter[str] = Counter()
    survivors: list[Found] = []
    right: dict[tuple[str, str, str], list[str]] = {}
    nowhere: dict[str, Counter[str]] = {}
    for (direction, dtype, kind, name), met in ends.items():
        fates = [end.fate for end in met]
        fate = next((f for f in FATES if f in fates), "")
        meetings.update(f for f in fates if f in FATES)
        if not fate:
            nowhere.setdefault(kind, Counter())[met[0].why] += 1
            continue
        kinds.setdefault(kind, Counter())[fate] += 1
        why = next(end.why for end in met if end.fate == fate)
        if fate == "survived":
            survivors.append({"kind": kind, "name": name, "direction": direction, "dtype": dtype, "why": why})
        elif fate == "equivalent":
            right.setdefault((kind, name, why), []).append(f"{direction} {dtype}")
    return {
        "kinds": {kind: dict(counts) for kind, counts in sorted(kinds.items())},
        "meetings": dict(meetings),
        "survivors": survivors,
        "equivalent": [
            {"kind": kind, "name": name, "why": why, "in": places} for (kind, name, why), places in right.items()
        ],
        "not_planted": {kind: dict(why) for kind, why in sorted(nowhere.items())},
    }


# --------------------------------------------------------------------------------------------------------------------
# What is kept
# --------------------------------------------------------------------------------------------------------------------


def kept(path: Path) -> dict[str, Found]:
    """The last result of each key of a journal: JSON lines. One that a killed run left unfinished is none.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the journal {path}: {error}") from error
    found: dict[str, Found] = {}
    for line in text.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and "key" in one and "task" in one:
            found[one["key"]] = one
    return found


class Journal:
    """Where results are appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._torn = bool(path.stat().st_size) and not path.read_bytes().endswith(b"\n")
        except OSError as error:
            raise UsageError(f"cannot write to the journal {path}: {error}; name another with --journal") from error

    def add(self, result: Found) -> None:
        """Append one, whatever happens next."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._torn else "") + json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._torn = False


def _default_journal(device: str) -> Path:
    from kerneleval.judge.windows.worker_pool import default_cache_dir

    return default_cache_dir() / f"tasks_selftest-{device}.jsonl"


# --------------------------------------------------------------------------------------------------------------------
# The report
# --------------------------------------------------------------------------------------------------------------------


def score(killed: int, survived: int) -> float | None:
    """Mutation score: share killed of those that are no right answer; None: there are none."""
    return killed / (killed + survived) if killed + survived else None


def summarise(results: Sequence[Found]) -> Found:
    """Results of all tasks as numbers."""
    kinds: dict[str, Counter[str]] = {}
    meetings: Counter[str] = Counter()
    categories: dict[str, Counter[str]] = {}
    nowhere: dict[str, Counter[str]] = {}
    for one in results:
        meetings.update(one["meetings"])
        row = categories.setdefault(one["category"], Counter())
        row.update(tasks=1, cases=one["cases"], passed=int(one["passed"]))
        for kind, counts in one["kinds"].items():
            kinds.setdefault(kind, Counter()).update(counts)
            row.update(counts)
        for kind, why in one["not_planted"].items():
            if kind not in one["kinds"]:
                nowhere.setdefault(kind, Counter())[max(why, key=lambda reason: why[reason])] += 1
    total: Counter[str] = sum(kinds.values(), Counter())
    planted = sum(total[fate] for fate in FATES)
    return {
        "tasks": len(results),
        "passed": sum(one["passed"] for one in results),
        "cases": sum(one["cases"] for one in results),
        "seconds": sum(one["seconds"] for one in results),
        "planted": planted,
        **{fate: total[fate] for fate in FATES},
        "score": score(total["killed"], total["survived"]),
        "meetings": {fate: meetings[fate] for fate in FATES},
        "kinds": {kind: _scored(counts) for kind, counts in sorted(kinds.items())},
        "categories": {name: _scored(counts) for name, counts in sorted(categories.items())},
        "tasks_without": {kind: dict(why.most_common()) for kind, why in sorted(nowhere.items())},
    }


def _scored(counts: Mapping[str, int]) -> Found:
    return {**counts, "score": score(counts.get("killed", 0), counts.get("survived", 0))}


def written(results: Sequence[Found], heading: Mapping[str, str]) -> str:
    """The report as Markdown."""
    from kerneleval.judge.selftest.mutants import KINDS

    total = summarise(results)
    lines = ["# Self-test of the built-in tasks", "", *(f"- {name}: {text}" for name, text in heading.items()), ""]
    lines += [
        f"{total['passed']} of {total['tasks']} tasks passed with their reference, in {total['cases']} cases of three "
        "draws each. "
        f"{total['planted']} mutants were planted (a bug in one direction and dtype of a task): {total['killed']} were "
        f"killed, {total['survived']} survived, {total['equivalent']} are equivalent, that is right. "
        f"Mutation score {_percent(total['score'])}.",
        "",
        "A mutant is killed if the judge rejects it at one of the cases at least; in all, it met "
        f"{sum(total['meetings'].values())} cases, and was rejected in {total['meetings']['killed']}.",
        "",
    ]
    head = ("kind", "what it is", "killed", "survived", "equivalent", "score", "tasks without one: most often because")
    rows = []
    for kind, what in KINDS.items():
        counts = total["kinds"].get(kind, {})
        without = total["tasks_without"].get(kind, {})
        why = f"{sum(without.values())}: {next(iter(without))}" if without else ""
        rows.append((kind, what, *(counts.get(fate, 0) for fate in FATES), _percent(counts.get("score")), why))
    lines += _table(head, rows)
    counted = ("tasks", "passed", "cases", *FATES)
    lines += _table(
        ("category", *counted, "score"),
        [
            (name, *(of.get(field, 0) for field in counted), _percent(of["score"]))
            for name, of in total["categories"].items()
        ],
    )
    lines += _listed("Tasks that failed", _failures(results), "none")
    survivors = [f"`{one['task']}` {_told(mutant)}" for one in results for mutant in one["survivors"]]
    lines += _listed("Survivors", survivors, "none")
    lines += _listed("Equivalent mutants", _equivalents(results), "none")
    return "\n".join(lines) + "\n"


def _failures(results: Iterable[Found]) -> Iterator[str]:
    for one in results:
        if one.get("error"):
            yield f"`{one['task']}`: {one['error']}"
        for finding in one["findings"]:
            yield f"`{one['task']}` {finding['test']}: {finding['case']}: {finding['message']}"


def _equivalents(results: Iterable[Found]) -> Iterator[str]:
    """By kind, name and reason, with the tasks: commutative operators are many."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for one in results:
        for mutant in one["equivalent"]:
            found.setdefault((mutant["kind"], mutant["why"]), {})[one["task"]] = None
    for (kind, why), names in sorted(found.items(), key=lambda item: -len(item[1])):
        yield f"{kind}: {why}: {len(names)} tasks: {', '.join(names)}"


def _told(mutant: Mapping[str, str]) -> str:
    where = f"{mutant['direction']}, {mutant['dtype']}"
    return f"{mutant['kind']} ({where}): {mutant['name']}: {mutant['why']}"


def _listed(title: str, items: Iterable[str], nothing: str) -> list[str]:
    found = list(items)
    return [f"## {title}", "", *([f"- {item}" for item in found] or [nothing]), ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines] + [""]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def _stem(machine: Machine, date: str, suffix: str) -> str:
    name = re.sub(r"[^A-Za-z0-9.]+", "_", machine.name).strip("_")  # "Intel(R) Xeon(R) Processor"
    if machine.device == "cpu":
        name = f"CPU-{processors()}_cores_{name}"
    return f"tasks_selftest-{name}-{date}{suffix}"


# --------------------------------------------------------------------------------------------------------------------
# The program
# --------------------------------------------------------------------------------------------------------------------


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    made = parser((__doc__ or "").split("\n\n")[0])
    made.add_argument("--tasks", default="", help="names, comma separated; empty: every built-in task")
    made.add_argument("--dtype", default="", help="only these dtypes, comma separated; empty: every one of each task")
    made.add_argument("--direction", default="", help="only forward, or only backward; empty: both")
    made.add_argument("--jobs", type=int, default=processors(), help="processes; as many as processors otherwise")
    made.add_argument("--limit-seconds", type=float, default=0.0, help="begin no further task after this long; 0: none")
    made.add_argument("--shard", default="1/1", metavar="I/N", help="only the I-th of N parts of the tasks")
    made.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True, help="take what is in the journal"
    )
    made.add_argument("--fresh", dest="resume", action="store_false", help="the same as --no-resume")
    made.add_argument("--journal", type=Path, default=None, help="where results are kept; in the cache otherwise")
    made.add_argument("--least-score", type=float, default=0.999, help="mutation score below which the exit code is 1")
    made.add_argument("--with", dest="others", type=Path, nargs="*", default=[], help="journals of other shards")
    return made.parse_args(argv)


def _chosen(options: argparse.Namespace) -> list[str]:
    """Names of the tasks to test, in the order of the library."""
    known = tasks.all_tasks()
    names = [name.strip() for name in options.tasks.split(",") if name.strip()] or list(known)
    for name in names:
        tasks.find(name)
    part, _, of = options.shard.partition("/")
    if not (part.isdecimal() and of.isdecimal() and 1 <= int(part) <= int(of)):
        raise UsageError(f"--shard {options.shard!r} is no part; give I/N with I from 1 to N, such as 1/2")
    return names[int(part) - 1 :: int(of)]


def _words(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    words = tuple(SHORT_DTYPES.get(word.strip(), word.strip()) for word in text.split(",") if word.strip())
    for word in words:
        if word not in known:
            raise UsageError(f"{option} {word!r} is unknown; {near(word, known)}")
    return words


def _jobs(options: argparse.Namespace, device: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Jobs by key."""
    dtypes = sorted({dtype for task in tasks.all_tasks().values() for dtype in task.dtypes})
    asked = {
        "device": device,
        "dtypes": _words("--dtype", options.dtype, dtypes),
        "directions": _words("--direction", options.direction, DIRECTIONS),
    }
    if options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs} is no number of processes; give 1 or more")
    machine = devices.find(device).machine()
    settings = (machine.name, str(asked), str(CATEGORIES), str(BUDGET_BYTES), str(BUDGET_FLOPS))
    return {digest(*settings, name, *code_of(name))[:24]: {"task": name, **asked} for name in names}


def code_of(name: str) -> tuple[str, ...]:
    """What a task's result depends on, as hashes: the interpreter, PyTorch, all that plans, draws, runs and judges
    cases, and the family that has the task, with the families that it takes functions from.
    """
    todo, families = [tasks.home(name)], dict[str, str]()
    while todo:
        if (module := todo.pop()) not in families:
            families[module] = _source(module)
            todo += re.findall(r"^from (kerneleval\.tasks\.operators\.\S+) import", families[module], re.MULTILINE)
    return (_judging(), digest(*(families[module] for module in sorted(families))))


@functools.cache
def _judging() -> str:
    import torch

    root = Path(kerneleval.__file__).parent
    files = [Path(__file__)]
    for folder in ("devices", "judge", "records", "tasks"):
        found = sorted((root / folder).rglob("*.py"))
        files += [file for file in found if not {"operators", "formats", "models"} & set(file.relative_to(root).parts)]
    return digest(sys.version, torch.__version__, *(file.read_text(encoding="utf-8") for file in files))


@functools.cache
def _source(module: str) -> str:
    file = Path(kerneleval.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return file.read_text(encoding="utf-8")


def _failed(job: Mapping[str, Any], error: str) -> Found:
    """A task of which nothing is known but why."""
    task = tasks.find(job["task"])
    empty: Found = {"cases": 0, "seconds": 0.0, "passed": False, "findings": [], **_counted({})}
    return {"task": task.name, "category": task.category, **empty, "error": error}


def run(options: argparse.Namespace) -> int:
    """Test what was asked for, and write the report."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before the processes load PyTorch
    device = devices.find(options.device) if options.device else devices.default()
    if why_not := device.available():
        raise UsageError(f"device {device.name!r} cannot be used here: {why_not}")
    machine, names = device.machine(), _chosen(options)
    jobs = _jobs(options, device.name, names)
    journal = Journal(options.journal or _default_journal(device.name))
    known = kept(journal.path) if options.resume else {}
    for place in options.others:
        known |= kept(place)
    done = {key: known[key] for key in jobs if key in known}
    left = [(key, job) for key, job in jobs.items() if key not in done]
    print(f"{len(names)} tasks on {machine.name}, {len(done)} of them in {journal.path}; {options.jobs} processes")
    began = shown = time.monotonic()
    in_time = functools.partial(_in_time, began, options.limit_seconds)
    try:
        for (key, job), result, error in work_through(
            left, _examined, options.jobs, seconds_each=SECONDS_EACH, go_on=in_time
        ):
            one = {"key": key, **(result or _failed(job, error))}
            if not error:
                journal.add(one)  # a crash may be the machine's: it is tried again
            done[key] = one
            _show(one)
            if time.monotonic() - shown > SHOWN_S:
                shown = time.monotonic()
                print(f"{len(done)} of {len(jobs)} tasks, {shown - began:.0f} s", flush=True)
    except KeyboardInterrupt:
        print(
            f"interrupted; {len(done)} of {len(jobs)} tasks are in {journal.path}, the same command goes on from there",
            file=sys.stderr,
        )
        return 130
    results = [done[key] for key in jobs if key in done]
    return _finish(options, machine, results, len(jobs), time.monotonic() - began)


def _examined(job: tuple[str, dict[str, Any]]) -> Found:
    return examine_task(job[1])


def _in_time(began: float, limit: float) -> bool:
    return not limit or time.monotonic() - began < limit


def _show(one: Found) -> None:
    """A task that is not as it should be, as soon as it is known."""
    lines = [*_failures([one]), *(f"`{one['task']}` survived: {_told(mutant)}" for mutant in one["survivors"])]
    for line in lines:
        print(line, flush=True)


def _finish(options: argparse.Namespace, machine: Machine, results: list[Found], asked: int, seconds: float) -> int:
    if not results:
        raise UsageError("no task was tested; give --limit-seconds more time")
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    total = summarise(results)
    heading = {
        "date": date,
        "machine": f"{machine.name} ({machine.arch}), {machine.host}, torch {machine.torch}",
        "tasks": f"{len(results)} of {asked}" + (f", {options.tasks}" if options.tasks else ""),
        "part": options.shard,
        "dtypes": options.dtype or "every one of each task",
        "directions": options.direction or "both",
        "cases": f"quick tier, shape categories {', '.join(CATEGORIES)}, {BUDGET_BYTES} bytes and {BUDGET_FLOPS:.0e} "
        "operations at most",
        "took": f"{total['seconds']:.0f} s of single processes; {seconds:.0f} s now, with {options.jobs}",
    }
    suffix = "-some" if options.tasks or options.dtype or options.direction else ""
    suffix += f"-shard_{options.shard.replace('/', '_of_')}" if options.shard != "1/1" and not options.others else ""
    suffix += "-unfinished" if len(results) < asked else ""
    stem = _stem(machine, date, suffix)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{stem}.md").write_text(written(results, heading), encoding="utf-8")
    body = {"machine": to_plain(machine), "heading": heading, "total": total}
    lines = ",\n".join(json.dumps(one) for one in results)
    text = json.dumps(body, indent=1)[:-2] + f',\n "tasks": [\n{lines}\n]\n}}\n'
    (options.out / f"{stem}.json").write_text(text, encoding="utf-8")
    print(
        f"{total['passed']} of {len(results)} tasks passed, {total['cases']} cases; {total['planted']} mutants: "
        f"{total['killed']} killed, {total['survived']} survived, {total['equivalent']} equivalent; mutation score "
        f"{_percent(total['score'])}; {seconds:.0f} s; written to {options.out / stem}.md and .json"
    )
    if len(results) < asked:
        print(f"{asked - len(results)} tasks were not begun in {options.limit_seconds:g} s; the same command goes on")
    good = total["score"] is None or total["score"] >= options.least_score
    return 0 if good and total["passed"] == len(results) == asked else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 0 where all passed and hardly a mutant survived, 1 where not, 2 for wrong usage."""
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(_options(argv))
    except KernelEvalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
