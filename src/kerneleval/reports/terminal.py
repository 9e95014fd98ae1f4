"""Verdicts, scores and progress in a terminal, a pipe or a log. Needs Rich."""

from __future__ import annotations

from kerneleval.reports.audit_view import render_audit
from kerneleval.reports.progress import progress
from kerneleval.reports.scores_view import render_scores
from kerneleval.reports.verdict_view import render_verdict

__all__ = ["progress", "render_audit", "render_scores", "render_verdict"]
