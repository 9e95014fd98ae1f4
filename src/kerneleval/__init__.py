"""KernelEval judges kernels that machines write: right at every shape, honest, and how fast.

    >>> import kerneleval
    >>> verdict = kerneleval.check("my_gelu.py", "gelu")        # doctest: +SKIP
    >>> verdict.verdict, verdict.reason, verdict.speedup        # doctest: +SKIP

Public is what ``__all__`` says. Everything is imported on first use, so that ``import kerneleval`` costs milliseconds
and needs nothing but the standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from kerneleval.judge import Judge
    from kerneleval.pipeline import Rewarder, check, reward, run, score
    from kerneleval.records import (
        Candidate,
        Case,
        CellResult,
        Failed,
        InfrastructureError,
        KernelEvalError,
        Machine,
        Origin,
        Passed,
        Protocol,
        Result,
        Score,
        Task,
        Timing,
        Trust,
        UsageError,
        Verdict,
        to_plain,
    )
    from kerneleval.scores.common.rewards import Reward

__all__ = [
    "Candidate",
    "Case",
    "CellResult",
    "Failed",
    "InfrastructureError",
    "Judge",
    "KernelEvalError",
    "Machine",
    "Origin",
    "Passed",
    "Protocol",
    "Result",
    "Reward",
    "Rewarder",
    "Score",
    "Task",
    "Timing",
    "Trust",
    "UsageError",
    "Verdict",
    "__version__",
    "check",
    "reward",
    "run",
    "score",
    "to_plain",
]

_HOME = dict.fromkeys(__all__, "kerneleval.records") | {
    "Judge": "kerneleval.judge",
    "Reward": "kerneleval.scores.common.rewards",
    "Rewarder": "kerneleval.pipeline",
    "check": "kerneleval.pipeline",
    "reward": "kerneleval.pipeline",
    "run": "kerneleval.pipeline",
    "score": "kerneleval.pipeline",
}
"""Public name -> the module that defines it."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'kerneleval' has no attribute {name!r}; public are {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
