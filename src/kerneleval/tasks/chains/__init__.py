"""Fusions as rows of names: a base operator (``bases.py``) and the steps behind it (``steps.py``)."""

from kerneleval.tasks.chains.bases import BASES
from kerneleval.tasks.chains.chain import chain
from kerneleval.tasks.chains.steps import STEPS

__all__ = ["BASES", "STEPS", "chain"]
