"""Every Triton kernel of the archetypes against PyTorch, in Triton's interpreter (a process of its own sets it on)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

HERE = Path(__file__).parent


@pytest.mark.usefixtures("triton_works")
@pytest.mark.parametrize("name", ["baseline", "fragile", "robust"])
def test_kernels_in_the_interpreter(name):
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "interpret_archetype.py"), name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "forward" in done.stdout
    assert "backward" in done.stdout
