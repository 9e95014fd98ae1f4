"""Three generators with known characters, as real kernels: C++ on the CPU, Triton on GPUs, OpenCL C (fewer operators).

They are the reference points of every score (the paper's Table 1): ``baseline`` is what a textbook gives, ``fragile``
is tuned to powers of two and falls back to a naive path elsewhere, ``robust`` takes one good path for every shape.

The sources stand beside this module, one for each archetype and language, cut into sections by lines such as
``// == rms_norm: rows columns`` (C++, OpenCL C) or ``# == rms_norm: rows columns`` (Triton): a section's name, then the
sections that it needs. A task's candidate is one self-contained file: the common part and the sections that its own one
needs, transitively, in the order of the source. An archetype covers the tasks for which it has a section. A source
goes on in further files: the activations of ``baseline.py`` and ``robust.py`` are in ``activations.py``, the
normalisations of ``robust.py`` in ``robust_norms.py``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from kerneleval.generators.common.registry import register
from kerneleval.records import Candidate, Origin, Task

__all__ = ["ARCHETYPES", "SUITE", "Archetype"]

ARCHETYPES = {
    "baseline": "textbook kernels with moderate optimisation",
    "fragile": "fast on powers of two, a naive path elsewhere, narrow coverage",
    "robust": "one good path for every shape, forward and backward",
}
"""Names of the generators, with a line about each."""

SUITE: tuple[str, ...] = (
    *("gelu", "silu", "amax", "argmax", "logsumexp", "layer_norm", "rms_norm", "group_norm", "batch_norm"),
    *("add_rms_norm", "swiglu", "softmax_cross_entropy"),
)
"""The tasks over which the archetypes are compared: 12 operators forward, 11 of them backward."""

_LANGUAGES = {
    "cpu": ("cpp", ".cpp"),
    "cuda": ("triton", ".py"),
    "opencl": ("opencl", ".cl"),
    "rocm": ("triton", ".py"),
}
"""Device kind -> language, suffix."""

_CONTINUED = {"baseline.py": ("activations.py",), "robust.py": ("activations.py", "robust_norms.py")}
"""Source -> the files in which it goes on, in this order."""

_MARK = re.compile(r"^(?://|#) == (\w+)(?:: ([\w ]+))?$", re.MULTILINE)
_HEADER = re.compile(r"^// kerneleval-.*\n", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Archetype:
    """One archetype."""

    name: str
    summary: str

    def candidates(self, task: Task, device: str) -> Iterator[Candidate]:
        """The one candidate for the task, if this archetype covers it on that device."""
        if device not in _LANGUAGES or task.name not in SUITE:
            return
        language, suffix = _LANGUAGES[device]
        text = _compose(self.name, suffix, task.name)
        if text:
            yield Candidate(
                files=((task.name + suffix, text),),
                language=language,
                origin=Origin(generator=self.name, human_edits=0),
            )


@functools.cache
def _sections(source: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Name -> (names of the sections needed, text), in the order of the source; what precedes the first is ''.

    What precedes the first one of a file in which the source goes on is left out.
    """
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for file in (source, *_CONTINUED.get(source, ())):
        text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
        marks = list(_MARK.finditer(text))
        found.setdefault("", ((), text[: marks[0].start()] if marks else text))
        for mark, end in zip(marks, [m.start() for m in marks[1:]] + [len(text)], strict=False):
            name = mark.group(1)
            if name in found:
                raise ValueError(f"{file}: the section {name!r} is there twice")
            needs = tuple((mark.group(2) or "").split())
            if unknown := [need for need in needs if need not in found]:
                raise ValueError(f"{file}: the section {name!r} needs {unknown[0]!r}, which does not stand before it")
            found[name] = (needs, text[mark.end() : end].lstrip("\n"))
    return found


def _compose(archetype: str, suffix: str, task: str) -> str:
    sections = _sections(archetype + suffix)
    if task not in sections:
        return ""
    needed = {"", task}
    for name in reversed(sections):  # what a section needs stands before it
        if name in needed:
            needed.update(sections[name][0])
    parts = [sections[name][1] for name in sections if name in needed]
    common = "" if suffix == ".py" else _sections("common" + suffix)[""][1]
    text = "\n".join(part.strip("\n") + "\n" for part in (common, *parts) if part.strip())
    headers = "".join(_HEADER.findall(text))  # they stand beside the kernels that they launch, and count at the top
    return f"{headers}\n{_HEADER.sub('', text)}" if headers else text


for _name, _summary in ARCHETYPES.items():
    register(Archetype(name=_name, summary=_summary))
