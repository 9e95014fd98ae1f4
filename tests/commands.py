"""Commands of the command line, run in this process: no process of their own loads PyTorch for them."""

from __future__ import annotations

import contextlib
import io
import subprocess

from kerneleval import cli

__all__ = ["kerneleval"]


def kerneleval(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The exit code of ``kerneleval ARGUMENTS...``, and what it writes."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    return subprocess.CompletedProcess(["kerneleval", *arguments], code, out.getvalue(), err.getvalue())
