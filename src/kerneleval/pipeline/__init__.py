"""Joins the stages: tasks -> generators -> judge -> store -> scores -> reports; one module a job.

Only ``pipeline/audit.py`` joins them too: store -> judge -> store.
"""

from __future__ import annotations

from kerneleval.pipeline.checking import check, check_candidate
from kerneleval.pipeline.differential import differ
from kerneleval.pipeline.estimating import estimate
from kerneleval.pipeline.generating import generate, prompts
from kerneleval.pipeline.merging import merge
from kerneleval.pipeline.peaks import peaks
from kerneleval.pipeline.portability import matrix
from kerneleval.pipeline.results import analyse, compare, export, import_results, report, score, transitions
from kerneleval.pipeline.rewards import Rewarder, reward
from kerneleval.pipeline.running import run, run_suite
from kerneleval.pipeline.selftests import selftest

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
