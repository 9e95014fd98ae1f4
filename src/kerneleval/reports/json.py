"""Verdicts and scores as plain data for programs: what ``--json`` prints.

NaN and infinities are the strings ``nan``, ``inf`` and ``-inf``, which strict JSON can hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kerneleval.records import Verdict, caught_by, layer_of, layer_of_finding, layers_of, own_sizes_only, to_plain

if TYPE_CHECKING:
    from kerneleval.store import RunInfo

VERDICT_FORMAT = 1
"""Raised whenever a field of the verdict's document changes its meaning or goes away."""

SCORES_FORMAT = 1
"""The same of the scores' document."""

_HARMFUL = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]")
"""What strict JSON may hold as it is and a terminal obeys or UTF-8 cannot hold: a candidate's output may have it."""


def verdict_document(verdict: Verdict, *, samples: bool = True) -> dict[str, Any]:
    """Every field of a verdict, with ``format``, the layer of each failed cell and finding, and what each layer found;
    of a problem file that was judged at its own sizes alone ``shapes`` too, which is ``own only``. Without the raw
    timing ``samples`` a document is some ten times smaller.
    """
    plain: dict[str, Any] = {"format": VERDICT_FORMAT, **to_plain(verdict)}
    plain |= {"layer": caught_by(verdict), "layers": layers_of(verdict)}
    if own_sizes_only(verdict):
        plain["shapes"] = "own only"
    for cell in plain["cells"]:
        if not cell["outcome"]["passed"]:
            cell["layer"] = layer_of(cell["outcome"]["stage"], cell["outcome"]["reason"])
    for row, finding in zip(plain["findings"], verdict.findings, strict=True):
        row["layer"] = layer_of_finding(finding)
    if not samples:
        for cell in plain["cells"]:
            timing = cell["outcome"].get("timing")
            if timing is not None:
                timing["samples"] = {k: v for k, v in timing["samples"].items() if not isinstance(v, list)}
    return plain


def scores_document(run: RunInfo | Mapping[str, Any] | None, scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A run (None: several) and the scores of its generators, as :func:`kerneleval.scores.score_all` gives them, with
    ``format`` and the definition of each score; both may be plain data already.
    """
    from kerneleval.scores import definition

    names = dict.fromkeys(name for of in scores.values() for name in of)
    return {
        "format": SCORES_FORMAT,
        "run": to_plain(run),
        "scores": to_plain(scores),
        "definitions": {name: definition(name) for name in names},
    }


def dumps(document: Mapping[str, Any], *, indent: int | None = 2) -> str:
    """The document as strict JSON, which does a terminal no harm; raises ValueError for a NaN or an infinity in it."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    return _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
