"""One verdict runs through few files: whoever reads the judge reads no more than these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "spine.py"

MOST = 62
"""Files of the judge's process. Before it is raised: can what a file does be data, or stand where it is used?"""


@pytest.mark.serial  # it waits until the device is its own
def test_one_verdict_runs_through_at_most_62_files() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--list"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *listed, last = done.stdout.splitlines()
    assert last.startswith(f"{len(listed)} files")
    assert 30 < len(listed) <= MOST, done.stdout
