"""A verdict as one number for training, by rules that leave nothing to farm.

What is dishonest, does not build or does not run is worth nothing; being wrong is worth the same wherever and however
little; speed counts by the end of its interval that is nearer to 1, and what noise explains is no speed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kerneleval.records import Passed, Verdict

WRONG = 0.1
"""Reward of what builds, runs and gives wrong results."""

RIGHT = 0.4
"""Reward of what is right in every case, before speed."""

DISHONEST = 0.0
"""Reward of what the honesty checks reject, and of what does not build, load or run."""


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A verdict as a number."""

    value: float
    """The reward, from 0 to 1."""
    components: Mapping[str, float]
    """``runs``, ``honest``, ``right`` (1 or 0); ``cells`` (share of the cells that are right; it is not part of the
    value); ``speed`` (0 to 1, see :func:`of_verdict`); ``speedup`` (lower end of its interval; NaN: not timed)."""
    verdict: Verdict


def of_verdict(verdict: Verdict) -> Reward:
    """The reward of a verdict.

    0 where the candidate does not build, load or run, or is dishonest (also where it is on a track that was not
    allowed); 0.1 where it is wrong in any supported case; else 0.4 + 0.6 x speed, with speed = (1 + log2(s)) / 3 within
    0 and 1: 0 at half of the baseline's speed, 1/3 at the baseline's, 1 at four times that. ``s`` is that end of the
    95 % interval of the speedup which is nearer to 1; it is 1 where the judge finds no difference, and where the
    candidate was not timed.
    """
    right = verdict.verdict == "passed"
    honest = verdict.stage != "honesty"
    runs = right or verdict.stage not in ("generate", "build", "load", "call")
    passed = sum(isinstance(c.outcome, Passed) for c in verdict.cells)
    low, speed = math.nan, 0.0
    if right:
        counted = 1.0
        if (summary := verdict.speedup) is not None:
            low = summary.low
            counted = {"faster": summary.low, "slower": summary.high}.get(summary.claim, 1.0)
        speed = min(max((1 + math.log2(counted)) / 3, 0.0), 1.0) if counted > 0 else 0.0
    value = RIGHT + (1 - RIGHT) * speed if right else WRONG if honest and runs else DISHONEST
    components = {
        "runs": float(runs),
        "honest": float(honest),
        "right": float(right),
        "cells": passed / len(verdict.cells) if verdict.cells else 0.0,
        "speed": speed,
        "speedup": low,
    }
    return Reward(value=value, components=components, verdict=verdict)
