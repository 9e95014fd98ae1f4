"""``kerneleval check FILE`` of a workspace: has a draft judged and prints what came of it.

The text of this file is put into each workspace and runs there, on the standard library alone.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from pathlib import Path

LIMIT_BYTES = 4 * 1024 * 1024
"""Largest file that is sent."""

RIGHT, REJECTED, WRONG, USED_UP, NOBODY = 0, 1, 2, 3, 4
"""Exit codes: the draft passed; it was rejected; the command line or the file is wrong; the budget is used up; the
judge does not answer."""


def main(words: list[str], folder: str) -> int:
    """Send a file to the judge and print the answer; returns the exit code. ``words`` are the command line without
    the program, in ``folder`` are the judge's socket and this workspace's word for it.
    """
    if len(words) != 2 or words[0] != "check" or words[1].startswith("-"):
        return _said(WRONG, "usage: kerneleval check FILE")
    try:
        data = read_file(words[1])
    except (OSError, ValueError) as error:
        return _said(WRONG, f"{words[1]}: {error}")
    try:
        word = Path(folder, "word").read_text(encoding="ascii").strip()
        answer = json.loads(_ask(folder, f"check {word} {len(data)}\n".encode() + data))
        text, code = str(answer["text"]), int(answer["code"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _said(NOBODY, f"the judge does not answer: {error}")
    sys.stdout.write(text + "\n")
    return code


def _said(code: int, text: str) -> int:
    sys.stderr.write(text + "\n")
    return code


def read_file(path: str | Path, most: int = LIMIT_BYTES) -> bytes:
    """A regular file, and no link to one. Raises OSError or ValueError where it is none, or has more bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as stream:
            data = stream.read(most + 1)
    finally:
        os.close(handle)
    if len(data) > most:
        raise ValueError(f"it is larger than {most} bytes, the limit")
    return data


def _ask(folder: str, message: bytes) -> bytes:
    os.chdir(folder)  # a socket's path may be no longer than 107 bytes
    parts = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.connect("socket")
        channel.sendall(message)
        while part := channel.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], str(Path(__file__).resolve().parent)))
