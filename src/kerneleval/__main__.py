"""``python -m kerneleval`` and the ``kerneleval`` command."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

_NEEDED = ("typer", "rich", "pydantic_settings")


def main() -> int:
    """Run the command line; returns the exit code: 0 passed, 1 failed, 2 usage or infrastructure, 130 interrupted."""
    from kerneleval.devices.cpu import SPIN_COUNT

    os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))  # before PyTorch loads OpenMP
    try:
        from kerneleval.cli import main as command
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        package = error.name.replace("_", "-")
        sys.stderr.write(f"error: the command line needs {package}; install it: pip install {package}\n")
        return 2
    return command()


if __name__ == "__main__":
    sys.exit(main())
