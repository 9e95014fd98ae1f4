"""Prompts for models: what a task, a device and the rules are, as text; and the candidate that an answer holds.

Templates are versioned files under ``templates/``; ``docs/prompts.md`` says what they have and how to write your own.
Nothing of what a model answers is executed here.
"""

from __future__ import annotations

from kerneleval.generators.common.prompts.extract import extract
from kerneleval.generators.common.prompts.render import TEMPLATES, Prompt, Template, render

__all__ = ["TEMPLATES", "Prompt", "Template", "extract", "render"]
