"""Builds a CUDA or HIP candidate for a GPU that is not there: the program of a confined process.

Nothing of the candidate runs, but its compilers read what it includes and write where their options say, so they have
the rights of that process: its arguments are a specification in JSON and the only folder that it may write to, which
gets ``build`` with what was made and ``built.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneleval import languages
from kerneleval.languages.common.base import BuildError
from kerneleval.records import Candidate, InfrastructureError, from_plain


def main(arguments: Sequence[str]) -> int:
    """Build; ``built.json`` has ``error``, the compiler's words, and ``machine``, what is missing here."""
    spec, out = json.loads(Path(arguments[0]).read_text()), Path(arguments[1])
    outcome = {"error": "", "machine": ""}
    try:
        _build(spec, out / "build")
    except BuildError as error:
        outcome["error"] = str(error)
    except InfrastructureError as error:
        outcome["machine"] = str(error)
    (out / "built.json").write_text(json.dumps(outcome))
    return 0


def _build(spec: dict[str, Any], folder: Path) -> None:
    candidate = from_plain(Candidate, spec["candidate"])
    language: Any = languages.find(candidate.language)
    folder.mkdir()
    if spec["plain"]:
        if words := language.why_not_plain(candidate, spec["arch"]):
            raise BuildError(words)
    else:
        language.build(candidate, folder, spec["device"], spec["arch"])
