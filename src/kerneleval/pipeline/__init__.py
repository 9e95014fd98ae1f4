"""Joins the stages: tasks -> generators -> judge -> store -> scores -> reports; one module a job.

Only ``pipeline/audit.py`` joins them too: store -> judge -> store.
"""

from __future__ import annotations

from kerneleval.pipeline.checking import check, check_candidate, selftest
from kerneleval.pipeline.doctor import peaks
from kerneleval.pipeline.generating import estimate, generate, prompts
from kerneleval.pipeline.portability import differ, matrix
from kerneleval.pipeline.results import analyse, compare, export, import_results, merge, report, score, transitions
from kerneleval.pipeline.rewards import Rewarder, reward
from kerneleval.pipeline.running import run, run_suite

__all__ = [
    "Rewarder",
    "analyse",
    "check",
    "check_candidate",
    "compare",
    "differ",
    "estimate",
    "export",
    "generate",
    "import_results",
    "matrix",
    "merge",
    "peaks",
    "prompts",
    "report",
    "reward",
    "run",
    "run_suite",
    "score",
    "selftest",
    "transitions",
]
