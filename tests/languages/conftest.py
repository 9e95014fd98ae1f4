"""Fixtures: make a candidate from text, build and load it, run a script in a fresh interpreter."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kerneleval import languages
from kerneleval.languages import Loaded, opencl
from kerneleval.records import Candidate

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = {"cpp": ".cpp", "cuda": ".cu", "opencl": ".cl"}
DEVICE = {"opencl": "opencl"}


def make_candidate(text: str, language: str, *more: tuple[str, str], **fields: str) -> Candidate:
    files = ((f"candidate{SUFFIX.get(language, '.py')}", text), *more)
    return Candidate(files=files, language=language, **fields)


@pytest.fixture
def make() -> Callable[..., Candidate]:
    """(text, language, *more files, entry=..., backward_entry=...) -> Candidate."""
    return make_candidate


@pytest.fixture(scope="session")
def _compiled_once() -> Iterator[None]:
    """What is built and then loaded here is the same OpenCL program, as no two processes share one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opencl, "_compile", functools.lru_cache(maxsize=1)(opencl._compile))
        yield


@pytest.fixture
def load(tmp_path: Path, _compiled_once: None) -> Iterator[Callable[..., Loaded]]:
    """(text, language, *more files, names=..., entry=...) -> the candidate, built and loaded on the host."""
    loaded: list[Loaded] = []

    def build_and_load(
        text: str, language: str, *more: tuple[str, str], names: tuple[str, ...] = ("gelu",), **fields: str
    ) -> Loaded:
        candidate = make_candidate(text, language, *more, **fields)
        found, device = languages.find(language), DEVICE.get(language, "cpu")
        folder = tmp_path / f"build{len(loaded)}"
        found.build(candidate, folder, device, "")
        loaded.append(found.load(candidate, folder, device, names=names))
        return loaded[-1]

    yield build_and_load
    for one in loaded:
        one.watch(False)  # a worker loads one candidate; here the next test must not count for this one


@pytest.fixture
def example() -> Callable[[str], str]:
    """Name -> the text of that example in docs/candidates.md."""

    def read(name: str) -> str:
        text = (ROOT / "docs" / "candidates.md").read_text()
        match = re.search(rf"<!-- example: {re.escape(name)} -->\n```[a-z+]+\n(.*?)```", text, re.DOTALL)
        assert match, f"docs/candidates.md has no example {name}"
        return match.group(1)

    return read


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """(code, **environment) -> its standard output, from a fresh interpreter that must exit with 0."""

    def run(code: str, **environment: str) -> str:
        file = tmp_path / "script.py"
        file.write_text(code)
        env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), env.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, env=env, timeout=300, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


INTERPRETER = """
import json, os, sys
import torch, triton
import kerneleval.languages

for line in sys.stdin:
    folder = json.loads(line)
    if not (pid := os.fork()):
        os.chdir(folder)
        sys.stdout = sys.stderr = open("out", "w")
        exec(compile(open("script.py").read(), "script.py", "exec"), {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.fixture(scope="session")
def interpreter() -> Iterator[subprocess.Popen[str]]:
    """A process that has loaded Triton for its interpreter, once, and forks itself for every script."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERPRETER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1"},
    )
    with process:
        yield process


@pytest.fixture
def interpreted(interpreter: subprocess.Popen[str], tmp_path: Path) -> Callable[[str], str]:
    """Code -> its output, from a fork of a process with Triton's interpreter; it must exit with 0."""

    def run(code: str) -> str:
        assert interpreter.stdin and interpreter.stdout
        (tmp_path / "script.py").write_text(code)
        print(json.dumps(str(tmp_path)), file=interpreter.stdin, flush=True)
        status = interpreter.stdout.readline().strip()
        out = (tmp_path / "out").read_text()
        assert status == "0", out
        return out

    return run
