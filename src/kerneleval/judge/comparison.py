"""Outputs against the expectation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kerneleval.judge.oracle import Expectation

__all__ = ["Match", "Mismatch", "compare"]


@dataclass(frozen=True, kw_only=True)
class Match:
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    reason: str
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)


def compare(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Match | Mismatch:
    for index, (got, native, oracle) in enumerate(zip(outputs, expectation.native, expectation.oracle, strict=True)):
        if not got.is_floating_point():
            if not torch.equal(got, native):
                return Mismatch(reason="wrong_output", message=f"output {index} differs")
            continue
        if not got.numel():
            continue
        c, n = got.double(), native.double()
        o = oracle
        same = (c == n) | (c.isnan() & o.isnan()) | (c == o.to(got.dtype).double())
        err = torch.where(same, 0.0, (c - o).abs())
        scale = torch.where(o.isfinite(), o, 0.0).square().mean().sqrt().clamp_min(1e-30)
        rel = float(torch.where(err.isnan(), torch.inf, err).square().mean().sqrt() / scale)
        if not rel <= expectation.timed_relative_rms:
            return Mismatch(reason="wrong_output", message=f"output {index}: relative error {rel:.3g}, bound {expectation.timed_relative_rms:.3g}", evidence={"relative": rel})
    return Match(evidence={})
