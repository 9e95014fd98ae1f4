"""Operators that quantise: the integers, or the numbers of eight bits, must be in the sources.

What comes out shows that a quantisation took place, not in which units the products were made: numbers of eight bits
held in fp32 give the same ones. So a candidate in whose sources no narrow type, no conversion to one and no instruction
on them stands is told apart here. Sources that name them and do not use them are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.static_analysis.integers import narrow_words
from kerneleval.records import Case, Finding, Outcome, Passed


@register(needs_worker=False)
def _check(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    if calls.task.tolerance.exact_form is None or calls.loaded.trusted:
        return
    if not any(isinstance(outcomes.get(case), Passed) for case in cases):
        return
    found = narrow_words(calls.loaded.candidate)
    if found:
        yield Finding(
            level="info",
            message=f"the sources compute with {', '.join(found[:8])}",
            evidence={"words": list(found)},
        )
        return
    yield Finding(
        level="fail",
        reason="not_quantised",
        message="the outputs are those of a quantisation, but no integer or eight-bit type, conversion or "
        "instruction stands in the sources: the arithmetic is that of wide floating numbers",
    )
