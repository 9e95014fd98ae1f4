"""The command line: arguments in, calls of :mod:`kerneleval.pipeline`, an exit code out.

Exit codes: 0 passed or done; 1 the candidate failed, or an audit found a change; 2 usage or infrastructure; 130
interrupted. Errors are one line on stderr; with ``--json`` stdout holds ``{"error": {"kind", "message"}}`` as well.
``KERNELEVAL_TRACEBACK=1`` shows where an error came from. SIGTERM and SIGHUP end a command as Ctrl-C does: workers and
temporary files go first.
"""

from __future__ import annotations

from kerneleval.cli.program import app, main

__all__ = ["app", "main"]
