"""What each section of a report is made of, as plain data: curves, shapes, coverage, portability, cost, cells."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kerneleval.records import DIRECTIONS, REAL, SHAPE_CATEGORIES, Failed, Machine, Passed, Result
from kerneleval.reports.text import ends
from kerneleval.scores import Setting
from kerneleval.scores.common.cells import attempted, by_key, device_names, devices_of, pairs, primary, timing_of
from kerneleval.scores.common.intervals import SEED, share
from kerneleval.scores.p_hw import THRESHOLD

Plain = dict[str, Any]
Rows = Mapping[str, Sequence[Result]]
"""Generator -> its cells."""

CURVE_STEPS = 400
"""Steps drawn of one fast_p curve."""
FAILED_CELLS = 4000
PASSED_CELLS = 6000
"""Cells in the table of cells."""
SHAPE_POINTS = 20_000
"""Timed cells in the plots of shapes, all operators together."""


def curves(rows: Rows, setting: Setting) -> Plain:
    """fast_p at every p, from 0 to the largest speedup, on the primary device. ``curves``: generator -> ``p``,
    ``value``, ``low``, ``high`` (from each p to the next), ``tasks``, ``steps`` (all that there are) and ``drawn``;
    ``largest``: the largest speedup of a task, 0 where none was timed.
    """
    found = {name: _curve(primary(of, setting)) for name, of in rows.items()}
    largest = max((curve["p"][-1] for curve in found.values()), default=0.0)
    return {"curves": found, "largest": largest}


def _curve(mine: Sequence[Result]) -> Plain:
    tasks = attempted(mine)
    n = len(tasks)
    weights: Counter[float] = Counter()
    right = 0.0
    for samples in tasks.values():
        right += sum(of.correct for of in samples) / len(samples)
        for of in samples:
            if not math.isnan(of.speedup):
                weights[of.speedup] += 1 / len(samples)  # type: ignore[assignment]  # a count of shares of tasks
    above = math.fsum(weights.values())
    steps = [(0.0, right)]
    if weights and right - above > 1e-9:  # right and not timed: counted at p = 0 only
        steps.append((1e-9, above))
    for p in sorted(weights):
        above -= weights[p]
        steps.append((p, max(above, 0.0)))
    drawn = steps
    if len(steps) > CURVE_STEPS:
        drawn = [steps[round(i * (len(steps) - 1) / (CURVE_STEPS - 1))] for i in range(CURVE_STEPS)]
    scores = [share(min(1.0, value / n), n, independent=n) for _, value in drawn] if n else []
    return {
        "p": [p for p, _ in drawn],
        **{name: [getattr(s, name) for s in scores] for name in ("value", "low", "high")},
        "tasks": n,
        "steps": len(steps),
        "drawn": len(drawn),
    }


# -- Shapes -----------------------------------------------------------------------------------------------------------


def shapes(rows: Rows, setting: Setting) -> Plain:
    """Speedups of the timed cells by operator and shape category, on the primary device.

    Returns:
        ``categories``: in the order shown; ``operators``: for each task, the most uneven first, ``task``,
        ``unevenness`` (largest ratio of two shape categories' medians of one generator), ``timed``, ``shown`` and
        ``points`` (generator -> parallel lists ``c`` category index, ``s``, ``low``, ``high``, ``t`` text); ``timed``,
        ``shown``: all of them.
    """
    cells: dict[str, dict[str, list[Result]]] = {}
    for name, of in rows.items():
        for r in primary(of, setting):
            if timing_of(r) is not None:
                cells.setdefault(r.task, {}).setdefault(name, []).append(r)
    seen = {r.case.shape_category for of in cells.values() for mine in of.values() for r in mine}
    categories = [c for c in SHAPE_CATEGORIES if c in seen] + sorted(seen - set(SHAPE_CATEGORIES))
    place = {category: i for i, category in enumerate(categories)}
    most = max(20, min(600, SHAPE_POINTS // max(len(cells), 1)))
    draw = random.Random(SEED)
    operators = [_operator(task, of, place, most, draw) for task, of in cells.items()]
    operators.sort(key=lambda one: (-one["unevenness"], one["task"]))
    return {
        "categories": [c.removeprefix(REAL) for c in categories],
        "operators": operators,
        "timed": sum(one["timed"] for one in operators),
        "shown": sum(one["shown"] for one in operators),
    }


def _operator(
    task: str, of: Mapping[str, Sequence[Result]], place: Mapping[str, int], most: int, draw: random.Random
) -> Plain:
    timed = sum(map(len, of.values()))
    points: dict[str, Plain] = {}
    uneven = 1.0
    for name, mine in of.items():
        uneven = max(uneven, _unevenness(mine))
        room = max(1, most * len(mine) // timed)
        kept = list(mine) if timed <= most else [mine[i] for i in sorted(draw.sample(range(len(mine)), room))]
        timings = [t for r in kept if (t := timing_of(r)) is not None]
        figures = {"s": "speedup", "low": "low", "high": "high"}
        points[name] = {
            "c": [place[r.case.shape_category] for r in kept],
            **{key: [_rounded(getattr(t, field)) for t in timings] for key, field in figures.items()},
            "t": [_short(r) for r in kept],
        }
    shown = sum(len(one["c"]) for one in points.values())
    return {"task": task, "unevenness": uneven, "timed": timed, "shown": shown, "points": points}


def _unevenness(mine: Sequence[Result]) -> float:
    timed = ((r.case.shape_category, t.speedup) for r in mine if (t := timing_of(r)) is not None and t.speedup > 0)
    medians = [statistics.median(of) for of in by_key(timed).values()]
    return max(medians) / min(medians) if medians else 1.0


def _short(r: Result) -> str:
    dims = " ".join(r.case.dims_texts)
    return f"{dims} {r.case.dtype} {r.case.direction}"


def _rounded(value: float) -> float | None:
    """Four digits; None, which JSON has, for what is not finite."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


# -- Coverage and portability -----------------------------------------------------------------------------------------


def coverage(scores: Mapping[str, Plain]) -> list[Plain]:
    """C_op by category and direction: of each taxonomy that the tasks have ``name``, ``keys`` (``CATEGORY``, the last
    one ``all``), ``directions``, ``tables`` (generator -> the plain table of scores, keys ``CATEGORY/DIRECTION``).
    """
    known = {"Operator category": "c_op_by_category", "KernelBench-X group": "c_op_by_group"}
    found = [_taxonomy(name, {who: of.get(key, {}) for who, of in scores.items()}) for name, key in known.items()]
    return [one for one in found if one["keys"]]


def _taxonomy(name: str, tables: Mapping[str, Plain]) -> Plain:
    keys = dict.fromkeys(key.rpartition("/")[0] for of in tables.values() for key in of)
    directions = dict.fromkeys(key.rpartition("/")[2] for of in tables.values() for key in of)
    order = [d for d in ("forward", "backward", "all") if d in directions]
    categories = [key for key in keys if key != "all"] + (["all"] if "all" in keys else [])
    return {"name": name, "keys": categories, "directions": order, "tables": dict(tables)}


def portability(
    rows: Rows, scores: Mapping[str, Plain], machines: Sequence[Machine], not_evaluated: Mapping[str, str]
) -> list[Plain]:
    """For each device ``device``, ``name`` and ``by``: generator -> ``status`` (``pass``, ``fail``, ``not evaluated``),
    ``speedup`` (a plain score), ``directions`` (direction -> its own), ``why``, and of how many (operator, direction)
    pairs ``tried`` how many are ``right``.
    """
    names = device_names(r for of in rows.values() for r in of)
    products = {machine.fingerprint: machine.name for machine in machines}
    devices = {**names, **devices_of(machines)}
    found: list[Plain] = []
    for label in dict.fromkeys(devices[machine] for machine in names):
        here = [machine for machine in names if devices[machine] == label]
        by = {name: _on_device(label, here, of, scores[name]) for name, of in rows.items() if name in scores}
        found.append({"device": label, "name": products.get(here[0], ""), "by": by})
    kinds = {r.device for of in rows.values() for r in of}
    for kind, why in not_evaluated.items():
        if kind not in kinds:
            by = {name: {"status": "not evaluated", "why": why or "not available"} for name in rows}
            found.append({"device": kind, "name": "", "by": by})
    return found


def _on_device(label: str, machines: Sequence[str], of: Sequence[Result], scores: Plain) -> Plain:
    here = [[r for r in of if r.machine == machine] for machine in machines]
    if not any(here):
        return {"status": "not evaluated", "why": "nothing was planned there"}
    speedup = scores.get("device_speedup", {}).get(label)
    tried = [pair for on in here for pair in pairs(on, Setting()) if pair.tried]
    counts = {"tried": len(tried), "right": sum(pair.correct for pair in tried)}
    value, _, _ = ends(speedup)
    if math.isnan(value):
        why = (speedup or {}).get("note") or "nothing was timed"
        return {"status": "not evaluated", "why": why, **counts}
    status = "pass" if value >= THRESHOLD else "fail"
    of_directions = scores.get("device_speedup_by_direction", {})
    by = {d: of_directions[f"{label}/{d}"] for d in DIRECTIONS if f"{label}/{d}" in of_directions}
    return {"status": status, "speedup": speedup, "directions": by, "why": "", **counts}


# -- Cost -------------------------------------------------------------------------------------------------------------


def costs(rows: Rows, setting: Setting) -> Plain:
    """Generator -> what its samples took to make and to judge: ``samples``, ``right``, and each of ``tokens_in``,
    ``tokens_out``, ``money_usd``, ``seconds`` (sums; None: recorded of no sample), ``judged_s``, ``models``.
    """
    found: Plain = {}
    for name, of in rows.items():
        made = {(r.task, r.sample): r.origin for r in of if r.candidate or r.origin.model}  # refusals cost too
        judged = {(r.task, r.sample, r.machine): r.judged_s for r in of if not math.isnan(r.judged_s)}
        sums: Plain = {}
        for what in ("tokens_in", "tokens_out", "money_usd", "seconds"):
            total = math.fsum(getattr(origin, what) for origin in made.values())
            sums[what] = total if total > 0 else None
        right = sum(one.correct for samples in attempted(primary(of, setting)).values() for one in samples)
        models = sorted({origin.model for origin in made.values() if origin.model})
        judged_s = math.fsum(judged.values()) if judged else None
        found[name] = {"samples": len(made), "right": right, "models": models, "judged_s": judged_s, **sums}
    return found


# -- Cells ------------------------------------------------------------------------------------------------------------


def cells(rows: Rows) -> Plain:
    """The cells for the table of cells, as columns; of many, a part, drawn at random. ``total``, ``failed`` and
    ``passed`` as [shown, all], and ``columns``: each with ``name``, ``title`` and either ``words`` and ``codes``
    (indices into the words) or ``values`` (numbers, None where there is none).
    """
    everything = [r for of in rows.values() for r in of]
    names = device_names(everything)
    failed = [i for i, r in enumerate(everything) if not isinstance(r.outcome, Passed)]
    passed = [i for i, r in enumerate(everything) if isinstance(r.outcome, Passed)]
    draw = random.Random(SEED)
    kept = _some(failed, FAILED_CELLS, draw), _some(passed, PASSED_CELLS, draw)
    shown = [everything[i] for i in sorted([*kept[0], *kept[1]])]
    timings = [timing_of(r) for r in shown]
    columns = [
        _words("generator", "Generator", [r.generator for r in shown]),
        _words("task", "Task", [r.task for r in shown]),
        _words("direction", "Direction", [r.case.direction for r in shown]),
        _words("outcome", "Outcome", [_outcome(r) for r in shown]),
        {"name": "speedup", "title": "Speedup", "values": [t and _rounded(t.speedup) for t in timings]},
        _words("claim", "Claim", [t.claim if t else "" for t in timings]),
        _words("shape", "Shape", [r.case.shape_category.removeprefix(REAL) for r in shown]),
        _words("dims", "Dims", [" ".join(r.case.dims_texts) for r in shown]),
        _words("dtype", "Dtype", [r.case.dtype for r in shown]),
        _words("layout", "Layout", [r.case.layout for r in shown]),
        _words("distribution", "Distribution", [r.case.distribution for r in shown]),
        _words("device", "Device", [names[r.machine] for r in shown]),
        {"name": "sample", "title": "Sample", "values": [r.sample for r in shown]},
        {"name": "low", "title": "", "values": [t and _rounded(t.low) for t in timings]},
        {"name": "high", "title": "", "values": [t and _rounded(t.high) for t in timings]},
    ]
    return {
        "total": len(everything),
        "failed": [len(kept[0]), len(failed)],
        "passed": [len(kept[1]), len(passed)],
        "columns": columns,
    }


def _some(indices: list[int], most: int, draw: random.Random) -> list[int]:
    return indices if len(indices) <= most else draw.sample(indices, most)


def _outcome(r: Result) -> str:
    return f"{r.outcome.stage}/{r.outcome.reason}" if isinstance(r.outcome, Failed) else "right"


def _words(name: str, title: str, texts: Sequence[str]) -> Plain:
    place: dict[str, int] = {}
    codes = [place.setdefault(text, len(place)) for text in texts]
    return {"name": name, "title": title, "words": list(place), "codes": codes}
