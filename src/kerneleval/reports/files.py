"""Files that appear when they are whole, and replace what was there only then."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kerneleval.records import UsageError


@contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """A file next to the target to write into; when the block ends without an error it replaces the target. Raises
    UsageError where the target is a folder, has no folder, or cannot be written; what was there is unchanged.
    """
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the name of a file, e.g. {path / 'report.html'}")
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        unfinished.touch(exist_ok=False)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}; give another path") from error
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}; nothing was changed") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8; raises as :func:`replacing`."""
    with replacing(target) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
