"""Candidates compiled for GPUs that are not there.

``targets.py`` lists them, ``program.py`` compiles a Triton candidate for each in a process of its own, which runs the
candidate's code and is to be confined, ``disguise.py`` lets that process look like one on the target; ``binaries.py``
reads what was made without trusting it.
"""

from __future__ import annotations

from kerneleval.languages.crosscompile.binaries import Kernel, read_binary
from kerneleval.languages.crosscompile.targets import TARGETS, Target, find_targets

__all__ = ["TARGETS", "Kernel", "Target", "find_targets", "read_binary"]
