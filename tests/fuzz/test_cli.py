"""The command line under arguments that nobody means: names, numbers, case keys, file names, file contents.

Whatever is asked, the answer is an exit code, one readable line of error and, with ``--json``, JSON; it is never an
``internal`` error, and nothing in it moves the cursor.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.fuzz.hostile import CONTROL, NASTY, effort, texts

from kerneleval import cli
from kerneleval.judge import judge as judging
from kerneleval.judge.windows.worker_pool import WorkerPool
from kerneleval.records import UsageError
from kerneleval.tasks import all_tasks

GELU = "import torch\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"
WORDS = (
    *("gelu", "M=", "N=", "M=4", "N=5", "M=-1", "N=" + "9" * 400, "float32", "float64", "forward", "backward"),
    *("contiguous", "expanded", "standard", "nan", "small", "edge", ":", "/", ",", "=", " "),
)
"""What case keys are made of."""

NAMES = texts(40).map(lambda s: s.replace("\0", "").replace("/", "_")[:60])
"""What can be a name of a file, more or less."""


@pytest.fixture
def pool(judge: judging.Judge) -> WorkerPool:
    return judge.pool


def _nobody(*_given: Any, **_options: Any) -> None:
    raise UsageError("all of this is meant: there would be a judgement now")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> Iterator[None]:
    monkeypatch.setattr(judging, "WorkerPool", lambda *_given: pool)
    monkeypatch.setattr(judging, "Loaded", _nobody)
    for name in ("make_spare", "close"):
        monkeypatch.setattr(WorkerPool, name, lambda _self: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELEVAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELEVAL_STORE", raising=False)
    yield


def _as_given(argument: str) -> str:
    """As a process can be given it: no NUL; bytes that are no UTF-8 come as surrogates from U+DC80 on alone."""
    return argument.replace("\0", "").encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and line of error; everything that holds of every answer is asserted here."""
    capsys.readouterr()
    code = cli.main([_as_given(a) for a in arguments])
    out, err = capsys.readouterr()
    assert not CONTROL & set(out + err), (arguments, err)
    if code == 2:
        lines = err.strip("\n").split("\n")
        assert sum(line.startswith("error: ") for line in lines) == 1, (arguments, err)
        assert "internal" not in err
        assert "KERNELEVAL_TRACEBACK" not in err, (arguments, err)
        assert len(err) < 20_000
        if "--json" in arguments:
            assert json.loads(out)["error"]["kind"] != "internal", (arguments, out)
    return code, err


@pytest.mark.slow
@given(name=texts())
@example("--")
@example("gelu\n")
@example("")
@effort(30)
def test_unknown_tasks(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assume(name not in all_tasks())  # Hypothesis tries words of the sources, too
    Path("gelu.py").write_text(GELU)
    for arguments in (("tasks", "--", name), ("check", "gelu.py", f"--task={name}", "--json")):
        code, _ = asked(capsys, *arguments)
        assert code == 2 or (arguments[0], name.strip("\0")) == ("tasks", "")


@pytest.mark.slow
@given(
    option=st.sampled_from(
        ["--category", "--group", "--source", "--level", "--complexity", "--dtype", "--direction", "--search", "--peer"]
    ),
    value=texts(),
)
@effort(30)
def test_filters_of_tasks(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    code, _ = asked(capsys, "tasks", f"{option}={value}")
    numbers = option in ("--level", "--complexity") and set(value) <= set("0123456789 ,")  # there are levels 1 to 4
    assert code == 2 or option == "--search" or numbers or not _as_given(value).strip(" ,")


@pytest.mark.slow
@given(
    key=st.one_of(
        texts(),
        st.lists(
            st.sampled_from((*WORDS, *NASTY)),
            max_size=9,
        ).map("/".join),
    )
)
@example("gelu/forward/M=4,N=" + "9" * 5000)
@effort(60)
def test_case_keys(capsys: pytest.CaptureFixture[str], key: str) -> None:
    Path("gelu.py").write_text(GELU)
    code, _ = asked(capsys, "check", "gelu.py", "--task", "gelu", "--device", "cpu", f"--case={key}", "--json")
    assert code == 2


@given(
    option=st.sampled_from(["--dtype", "--direction", "--allow", "--device", "--category", "--shapes"]), value=texts()
)
@effort(30)
def test_values_of_options(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    Path("gelu.py").write_text(GELU)
    code, _ = asked(capsys, "check", "gelu.py", "--task", "gelu", f"{option}={value}", "--no-timing")
    assert code == 2


@given(name=NAMES)
@effort(30)
def test_files_that_are_not_there(capsys: pytest.CaptureFixture[str], name: str) -> None:
    for arguments in (
        ("check", "--task", "gelu", "--", f"./{name}.py"),
        ("check", "--task", f"./{name}.py", "gelu.py"),
        ("run", f"--generator=./-{name}", "--task", "gelu"),
        ("score", f"--store=./{name}/store.db"),
        ("audit", "--store", "./none.db", "--", name),
        ("check", "--task", "gelu", "--", f"store:{name}"),
    ):
        code, _ = asked(capsys, *arguments)
        assert code == 2, arguments


@given(name=NAMES, content=st.one_of(texts(400), st.binary(max_size=400)))
@example("x", b"\xff\xfe\x00")
@example("x", "class Model:\n    pass\n")
@example("x", "(" * 3000)
@effort(30)
def test_what_is_in_files(capsys: pytest.CaptureFixture[str], name: str, content: str | bytes) -> None:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for suffix in (".py", ".cpp", ".txt"):
            file = Path(folder) / f"{os.path.basename(name) or 'x'}{suffix}"
            try:
                file.write_bytes(raw)
            except (OSError, ValueError):  # no name for a file here
                continue
            if suffix == ".py":
                code, _ = asked(capsys, "check", "--task", str(file), "--json", "--", str(file))
                assert code == 2
            code, _ = asked(capsys, "score", "--json", f"--store={file}")
            assert code == 2
            assert file.read_bytes() == raw, "what is no store stays as it is"
