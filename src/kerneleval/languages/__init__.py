"""Stage 2, source -> callable: one module a language, found by discovery. See ``docs/candidates.md``.

:func:`read_candidate` reads a file, :func:`find` gives the language that builds and loads it. Importing this package
does not import torch; loading a candidate does.
"""

from __future__ import annotations

from kerneleval.languages.common.base import (
    BuildError,
    Language,
    Loaded,
    LoadError,
    OutputSpec,
    all_languages,
    detect,
    find,
    register,
    torch_device,
)
from kerneleval.languages.common.source import candidate_of, read_candidate

__all__ = [
    "BuildError",
    "Language",
    "LoadError",
    "Loaded",
    "OutputSpec",
    "all_languages",
    "candidate_of",
    "detect",
    "find",
    "read_candidate",
    "register",
    "torch_device",
]
