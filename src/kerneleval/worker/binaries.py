"""The binaries that Triton left in its cache, read inside the worker: only it sees the memory in which they lie.

They may be the candidate's own forgeries; ``judge/checks/code.py`` and ``judge/binaries/uses.py`` report them and
decide nothing by them.
"""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

__all__ = ["collect"]


def collect(folder: str, most_bytes: int) -> list[dict[str, Any]]:
    """Triton's cubins, and AMD's assembly, below ``folder``, the newest first, as they go over the wire: ``data``
    (base64), ``kernel`` and ``kind`` (``cubin``, ``amdgcn``) by the file's name, and by the description beside it
    ``shared``, the bytes of dynamic shared memory, and ``hash``, Triton's own of what it was made of.

    Args:
        folder: Triton's cache.
        most_bytes: how much is read of binaries altogether; those that do not fit are left out.
    """
    found: list[dict[str, Any]] = []
    left = most_bytes
    paths = [path for kind in ("cubin", "amdgcn") for path in Path(folder).rglob(f"*.{kind}") if path.is_file()]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime, str(path))):
        size = path.stat().st_size
        if size > left:
            continue
        left -= size
        described: Any = None
        with contextlib.suppress(OSError, ValueError, RecursionError):  # no description, or none of Triton's
            described = json.loads(path.with_suffix(".json").read_text())
        of = described if isinstance(described, dict) else {}
        told = {"kernel": path.stem, "kind": path.suffix[1:], "shared": of.get("shared", 0), "hash": of.get("hash", "")}
        found.append({"data": base64.b64encode(path.read_bytes()).decode(), **told})
    return found
