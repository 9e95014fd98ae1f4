"""C_op: operator coverage, the third factor of S."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kerneleval.records import CATEGORIES, DIRECTIONS, GROUPS, Result, Score
from kerneleval.scores.common.cells import Pair, checked, pairs, primary
from kerneleval.scores.common.intervals import Floats, in_order, notes, share
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import where


def coverage(pair: Pair) -> float:
    """What one pair counts: the share of its cells that the candidate supports, if it is right in all of these and
    none is slower than the baseline; else 0.
    """
    return pair.supported if pair.correct and not pair.regressing else 0.0


def counts(all_pairs: Sequence[Pair], tasks: Sequence[str]) -> Floats:
    """(tasks, 2): sum of coverage, and number of pairs."""
    table = np.zeros((len(tasks), 2))
    place = {task: t for t, task in enumerate(tasks)}
    for pair in all_pairs:
        table[place[pair.task]] += (coverage(pair), 1)
    return table


@register
def c_op(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Share of all (operator, direction) pairs of the suite that are correct in every supported case and not regressing
    (the pair as a whole slower than the baseline beyond noise), on the primary device. A pair that the candidate
    supports in part counts by the share of its cells that it supports.

    Declaring a case unsupported is honest and costs coverage; otherwise a kernel that supports one easy case would
    cover its operator. With several samples of a task the mean over them counts. Wilson's interval; n is the number of
    pairs, and the operators are the independent units: forward and backward of one are not.
    """
    return _share(pairs(primary(checked(results), setting), setting), where(results, setting))


@register
def c_op_by_category(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """C_op of each operator category and direction; ``all`` stands for every category or both directions.

    Keys are ``CATEGORY/DIRECTION``.
    """
    everything = pairs(primary(checked(results), setting), setting)
    return _by({pair.task: pair.category for pair in everything}, everything, CATEGORIES)


@register
def c_op_by_group(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """C_op of each of KernelBench-X's fifteen categories and each direction; ``all`` stands for every one of them that
    is there, or for both directions. Keys are ``GROUP/DIRECTION``; pairs of tasks without a group are left out.
    """
    mine = primary(checked(results), setting)
    groups = {r.task: r.group for r in mine if r.group}
    known = [pair for pair in pairs(mine, setting) if pair.task in groups]
    return _by(groups, known, GROUPS)


def _by(label_of: Mapping[str, str], everything: Sequence[Pair], order: Sequence[str]) -> Table:
    """Coverage by a label of each task, and by direction."""
    known = {label_of[pair.task] for pair in everything}
    table: Table = {}
    for label in (*in_order(known, order), "all"):
        for direction in (*DIRECTIONS, "all"):
            chosen = [p for p in everything if label in (label_of[p.task], "all") and direction in (p.direction, "all")]
            if chosen:
                table[f"{label}/{direction}"] = _share(chosen, "")
    return table


def _share(chosen: Sequence[Pair], note: str) -> Score:
    covered = sum(map(coverage, chosen))
    n = len({(p.task, p.direction) for p in chosen})
    value = covered / len(chosen) if chosen else 0.0
    return share(value, n, independent=len({p.task for p in chosen}), note=notes(note, _why(chosen)))


def _why(chosen: Sequence[Pair]) -> str:
    """Why pairs are not covered, or not in full."""
    reasons = {
        "wrong": sum(p.tried and not p.correct for p in chosen),
        "regressing": sum(p.correct and p.regressing for p in chosen),
        "supported in part": sum(p.correct and not p.regressing and p.supported < 1 for p in chosen),
        "not tried": sum(not p.tried for p in chosen),
    }
    return ", ".join(f"{count} {name}" for name, count in reasons.items() if count)
