"""Joins the stages: tasks -> generators -> judge -> store -> scores -> reports; one module a job.

Only ``audit.py`` joins them too: store -> judge -> store.
"""

from __future__ import annotations

from kerneleval.pipeline.checking import check
from kerneleval.pipeline.results import analyse, compare, export, import_results, report, score, transitions
from kerneleval.pipeline.rewards import Rewarder, reward
from kerneleval.pipeline.running import run
from kerneleval.pipeline.selftests import selftest

__all__ = [
    "Rewarder",
    "analyse",
    "check",
    "compare",
    "export",
    "import_results",
    "report",
    "reward",
    "run",
    "score",
    "selftest",
    "transitions",
]
