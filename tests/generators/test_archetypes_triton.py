"""Every Triton kernel of the archetypes against PyTorch, in Triton's interpreter (a process of its own sets it on)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

NAMES = ("baseline", "fragile", "robust")


@pytest.fixture(scope="module")
def interpreted():
    """What one process for all of them writes: a line for each kernel that is right."""
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("interpret_archetype.py"), ",".join(NAMES)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("triton_works")
@pytest.mark.parametrize("name", NAMES)
def test_kernels_in_the_interpreter(interpreted, name):
    assert interpreted.returncode == 0, interpreted.stdout[-4000:] + interpreted.stderr[-4000:]
    lines = [line for line in interpreted.stdout.splitlines() if line.startswith(f"{name} ")]
    assert any("forward" in line for line in lines)
    assert any("backward" in line for line in lines)
