"""Further names of built-in tasks: the same operator, as PyTorch or a peer calls it too."""

from __future__ import annotations

__all__ = ["ALIASES"]

ALIASES: dict[str, str] = {}
"""Alias -> task. A name is an alias where its reference, arguments and shapes are the task's own."""
