"""The binaries that Triton left in its cache, which lies in memory that only the worker sees."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

__all__ = ["collect"]


def collect(folder: str, most_bytes: int) -> list[dict[str, Any]]:
    """Triton's cubins below ``folder``, as they go over the wire: ``data`` (base64), and ``shared``, the bytes of
    dynamic shared memory that the description beside it names.

    Args:
        folder: Triton's cache.
        most_bytes: how much is read of binaries altogether; those that do not fit are left out.
    """
    found: list[dict[str, Any]] = []
    left = most_bytes
    for path in sorted(Path(folder).rglob("*.cubin")):
        size = path.stat().st_size
        if size > left or not path.is_file():
            continue
        left -= size
        shared = 0
        with contextlib.suppress(
            OSError, ValueError, AttributeError, RecursionError
        ):  # no description, or none of Triton's
            shared = json.loads(path.with_suffix(".json").read_text()).get("shared", 0)
        found.append({"data": base64.b64encode(path.read_bytes()).decode(), "shared": shared})
    return found
