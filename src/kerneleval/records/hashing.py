"""Hashes that identify what is stored, and secrets that cannot be guessed."""

from __future__ import annotations

import hashlib
import secrets

__all__ = ["digest", "new_secret"]


def digest(*parts: str | bytes) -> str:
    """SHA-256 (hex, 64 characters) over length-prefixed parts, so that no two lists of parts collide by joining."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def new_secret() -> int:
    """A fresh 63-bit secret (torch generators take 64-bit signed seeds); never stored before its use, never sent."""
    return secrets.randbits(63)
