"""The examples of CONTRIBUTING.md, put into a copy of the package and used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kerneleval

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile(r"<!-- file: src/(\S+) -->\n```python\n(.*?)```", re.DOTALL)

SQUAREPLUS_C = r"""
#include <math.h>
#include <stdint.h>

int squareplus(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    (void)stream;
    for (int64_t i = 0; i < M * N; i++)
        out[i] = 0.5f * (x[i] + sqrtf(x[i] * x[i] + 4.0f));
    return 0;
}
"""


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    """A directory for PYTHONPATH, with the package and all examples."""
    # Not under pytest's own directory, which is closed to the users that workers run as.
    with tempfile.TemporaryDirectory(prefix="kerneleval-test-") as name:
        root = Path(name)
        root.chmod(0o755)
        shutil.copytree(kerneleval.__path__[0], root / "kerneleval", ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in EXAMPLE.findall((ROOT / "CONTRIBUTING.md").read_text()):
            file = root / path
            assert not file.exists(), f"{path}: an example must be a new file"
            file.write_text(text)
        yield root


def python(package: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=package,
        env=os.environ | {"PYTHONPATH": str(package)} | environment,
        check=False,
    )


def test_there_is_an_example_of_every_kind() -> None:
    stages = [path.split("/")[1] for path, _ in EXAMPLE.findall((ROOT / "CONTRIBUTING.md").read_text())]
    assert stages == ["tasks", "devices", "languages", "judge", "scores", "generators"]


@pytest.mark.slow
def test_all_are_found(package: Path) -> None:
    code = """
from kerneleval import devices, generators, languages, scores, tasks
from kerneleval.judge import checks
print(tasks.find("squareplus").name, devices.find("rehearsal").name, languages.find("c").name)
print(scores.find("worst_speedup").__name__, generators.find("composite").name, "repeatability" in checks.in_order())
print(scores.definition("worst_speedup"))
print(devices.find("rehearsal").available())
"""
    done = python(package, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "squareplus rehearsal c",
        "worst_speedup composite True",
        "Smallest speedup of a correct, timed cell on the primary device, with that cell's own interval.",
        "it is the CPU under another name; set KERNELEVAL_REHEARSAL=1 to use it",
    ]


def test_they_pass_the_linter(package: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "-"],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    if "No module named ruff" in done.stderr:
        pytest.skip("ruff is not installed")
    files = [str(package / path) for path, _ in EXAMPLE.findall((ROOT / "CONTRIBUTING.md").read_text())]
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_candidate_in_the_new_language_passes_the_new_task_under_the_new_check(package: Path, tmp_path: Path) -> None:
    (tmp_path / "squareplus.c").write_text(SQUAREPLUS_C)
    command = ["-m", "kerneleval", "check"]
    options = "--task squareplus --device cpu --dtype fp32 --direction forward --category tiny,small --no-timing --json"
    done = python(
        package,
        *command,
        str(tmp_path / "squareplus.c"),
        *options.split(),
        KERNELEVAL_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["track"] == "custom"
    (finding,) = (f for f in verdict["findings"] if f["check"] == "repeatability")
    assert finding["repeatable"] is True
