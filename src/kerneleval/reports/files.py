"""Files that appear when they are whole, and replace what was there only then."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kerneleval.records import UsageError


@contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """A file beside the target to write into; when the block ends without an error it takes the target's place.

    Raises:
        UsageError: the target is a folder, lies in none, or cannot be written; what was there is unchanged.
    """
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the name of a file, e.g. {path / 'report.html'}")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}; give another path") from error
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        unfinished.chmod(0o666 & ~_umask())
        unfinished.replace(path)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}; nothing was changed") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write a text as UTF-8; raises as :func:`replacing`."""
    with replacing(target) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def _umask() -> int:
    """What new files of this process may not be; it cannot be read without being set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
