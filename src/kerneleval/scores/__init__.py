"""Stage 9, outcomes to numbers with intervals: one file a score, found on first look-up (``docs/scores.md``).

>>> rows = by_generator(store.results())["robust"]  # doctest: +SKIP
>>> find("composite")(rows, Setting())  # doctest: +SKIP
>>> definition("composite")  # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import by_generator, checked
from kerneleval.scores.common.registry import (
    DEFAULT,
    Setting,
    Table,
    all_scores,
    definition,
    explanation,
    find,
    register,
)
from kerneleval.scores.common.rules import one_rule, timed_by

__all__ = ["Setting", "all_scores", "by_generator", "definition", "explanation", "find", "register", "score_all"]


def score_all(results: Iterable[Result], setting: Setting = DEFAULT) -> dict[str, dict[str, Score | Table]]:
    """Every score of every generator: generator -> score name -> score, or table of scores.

    The primary device is the same for all generators that were evaluated on it: that of the first result, unless the
    setting names one. Raises UsageError where a cell comes twice, the device was not evaluated, or times are by two
    rules.
    """
    groups = by_generator(results)
    one_rule({key: run for of in groups.values() for key, run in timed_by(of).items()})
    first = next(iter(groups.values()), None)
    found: dict[str, dict[str, Score | Table]] = {}
    for generator, rows in groups.items():
        own = setting
        if not setting.primary and first is not None and any(r.machine == first[0].machine for r in rows):
            own = dataclasses.replace(setting, primary=first[0].machine)
        once = checked(rows)
        found[generator] = {name: function(once, own) for name, function in all_scores().items()}
    return found
