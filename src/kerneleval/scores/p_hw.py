"""P_hw: portability over devices, the fourth factor of S."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from kerneleval.records import DIRECTIONS, Result, Score
from kerneleval.scores.common.cells import Pair, by_key, checked, device_names, pairs
from kerneleval.scores.common.intervals import (
    NOTHING,
    Draw,
    Floats,
    Nested,
    interval,
    median,
    median_over_cells,
    nested,
    notes,
    scored,
)
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register

THRESHOLD = 0.8
"""Fraction of the baseline's speed that a portable kernel reaches at least (KernelEval, section 3.3)."""


def by_device(results: Sequence[Result], tasks: Sequence[str], setting: Setting) -> dict[str, Nested | None]:
    """Speedups by task and pair on each device; a pair that is wrong in a supported case holds a single 0. A pair that
    was judged on several machines of one device comes once for each.

    Pairs without candidate, or declared unsupported throughout, are left out: they count against coverage. None: there
    are correct pairs, and nothing was timed there.
    """
    rows: dict[str, list[tuple[str, object, float]] | None] = {}
    for machine, device in _devices(results, setting).items():
        tried = [p for p in pairs([r for r in results if r.machine == machine], DEFAULT) if p.tried]
        untimed = not any(p.timings for p in tried) and any(p.correct for p in tried)
        if untimed:
            rows.setdefault(device, None)
        else:
            rows[device] = [*(rows.get(device) or ()), *(row for p in tried for row in _rows(p, machine))]
    return {device: None if of is None else nested(tasks, of) for device, of in rows.items()}


def _devices(results: Sequence[Result], setting: Setting) -> dict[str, str]:
    """Machine of the results -> device."""
    return {machine: setting.devices.get(machine, name) for machine, name in device_names(results).items()}


def _rows(pair: Pair, machine: str) -> list[tuple[str, object, float]]:
    group = (pair.direction, pair.sample, machine)
    if not pair.correct:
        return [(pair.task, group, 0.0)]
    return [(pair.task, group, timing.speedup) for timing in pair.timings]


def on_device(of: Nested, draw: Draw) -> Floats:
    """(resamples,): median over the pairs of the median over each pair's cells."""
    if draw.whole:
        return draw.median(_of_pairs(of))
    by_pair = median(draw.cells(of))
    return median(by_pair.reshape(len(by_pair), -1))


def _of_pairs(of: Nested) -> Nested:
    """The median of each pair in place of its cells."""
    return Nested(median(of.values)[..., None], np.minimum(of.counts, 1))


def over_devices(table: Mapping[str, Nested | None], draw: Draw) -> Floats:
    """(resamples,): share of the evaluated devices that are portable; NaN where none was evaluated."""
    portable = [on_device(of, draw) >= THRESHOLD for of in table.values() if of is not None]
    if not portable:
        return np.full(len(draw.tasks), math.nan)
    out: Floats = np.mean(np.array(portable, dtype=np.float64), axis=0)
    return out


@register
def p_hw(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Share of the evaluated devices on which the generator is correct and reaches at least 0.8 times the baseline: the
    median speedup over the (operator, direction) pairs that it tries is at least 0.8, where a pair that is wrong in any
    supported case counts as speedup 0.

    Thus a device fails when half of its pairs are wrong or slow. Machines of one product are one device. A device that
    was not available, or on which nothing was timed, is neither a pass nor a failure: the note names it, and every
    device that saw but a part of the tasks. The interval is a hierarchical bootstrap (whole
    tasks) on these devices; n is the number of devices evaluated.
    """
    tasks = tuple(dict.fromkeys(r.task for r in checked(results)))
    table = by_device(results, tasks, setting)
    evaluated = {device: of for device, of in table.items() if of is not None}
    note = _note(results, setting, tasks, table)
    if not evaluated:
        return NOTHING(note or "no device was evaluated")
    size = sum(of.values.size for of in evaluated.values())
    *found, _ = interval(lambda draw: over_devices(evaluated, draw), len(tasks), size, never_outside=(0.0, 1.0))
    return scored(found, len(evaluated), note)


@register
def device_speedup(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """The median speedup by which P_hw judges each device: over the pairs tried, a wrong one counting as 0.

    n is the number of pairs.
    """
    tasks = tuple(dict.fromkeys(r.task for r in checked(results)))
    devices = _devices(results, setting)
    found = {}
    for device, of in by_device(results, tasks, setting).items():
        if of is None:
            found[device] = NOTHING("nothing was timed")
            continue
        n = int((of.counts > 0).sum())
        several = sum(name == device for name in devices.values())
        note = f"{several} machines as one" if several > 1 else ""
        note = note if n else "no candidate that supports anything"
        found[device] = scored(median_over_cells(_of_pairs(of), never_outside=(0.0, math.inf)), n, note)
    return found


@register
def device_speedup_by_direction(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """``device_speedup`` over the pairs of each direction. Keys are ``DEVICE/DIRECTION``; n is the number of pairs."""
    groups = by_key((r.case.direction, r) for r in checked(results))
    found = {d: device_speedup(groups[d], setting) for d in DIRECTIONS if d in groups}
    devices = dict.fromkeys(device for of in found.values() for device in of)
    return {f"{device}/{d}": of[device] for device in devices for d, of in found.items() if device in of}


def _note(results: Sequence[Result], setting: Setting, tasks: Sequence[str], table: Mapping[str, Nested | None]) -> str:
    """Which devices were not evaluated, which on a part of the tasks, and which are several machines."""
    kinds = {r.device for r in results}
    absent = [f"{kind} ({why})" if why else kind for kind, why in setting.not_evaluated.items() if kind not in kinds]
    absent += [f"{name} (no attempt)" for name in dict.fromkeys(setting.devices.values()) if name not in table]
    absent += [f"{device} (nothing was timed)" for device, of in table.items() if of is None]
    devices = _devices(results, setting)
    seen: dict[str, set[str]] = {}
    for machine, task in {(r.machine, r.task) for r in results}:
        seen.setdefault(devices[machine], set()).add(task)
    part = [f"{name} ({len(seen[name])} of {len(tasks)})" for name in table if len(seen[name]) < len(tasks)]
    several = [name for name in table if sum(other == name for other in devices.values()) > 1]
    return notes(
        f"not evaluated: {', '.join(absent)}" if absent else "",
        f"on a part of the tasks: {', '.join(part)}" if part else "",
        f"several machines as one device: {', '.join(several)}" if several else "",
    )
