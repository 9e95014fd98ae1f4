"""The command line over hostile candidates, names and arguments.

A candidate gives a verdict, exit code 0 or 1; what is no candidate, no case, no store or no task gives exit code 2 and
one line on stderr that is no bug's. Nothing is printed that a terminal obeys, and ``--json`` is strict in every case.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.hostile import CONTROL, NASTY, effort, texts
from tests.fuzz.test_claims import DOCUMENTED
from tests.fuzz.test_store import says

from kerneleval import generators, pipeline
from kerneleval.judge import Judge
from kerneleval.languages import read_candidate
from kerneleval.records import UsageError
from kerneleval.tasks import open_task

pytestmark = [pytest.mark.xdist_group("judge")]

OPTIONS = ["--dtype", "float32", "--direction", "forward", "--no-timing", "--allow", "custom,mixed,library"]
HONEST = b"import torch\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge("cpu", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


@pytest.fixture(autouse=True)
def _one_judge(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_borrowed", lambda *_: contextlib.nullcontext(judge))


def is_clean(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and document of a command with ``--json``; without, it must come to the same."""
    code, out, error = says([*arguments, "--json"])
    assert code in (0, 1, 2)
    assert not CONTROL & set(out), out[:500]
    assert not CONTROL & set(error), error[:500]
    document = json.loads(out, parse_constant=pytest.fail)
    if code == 2:
        assert error.startswith("error: ")
        assert error.count("\n") == 1, error
        assert document["error"]["kind"] in ("usage", "infrastructure"), error[:500]
        assert len(error) < 30_000
    else:
        assert not error, error
    return code, document


def checked(file: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, document = is_clean(["check", file, "--task", "gelu", "--category", "tiny", *OPTIONS, *more])
    if code != 2:
        assert document["reason"] in DOCUMENTED
    return code, document


def raising(kind: str, body: str = "") -> bytes:
    return f"class E({kind}):\n    {body or 'pass'}\n\ndef gelu(x):\n    raise E('no')\n".encode()


MADE = b"import torch\n\ndef gelu(x):\n    "
SOURCES = {
    "empty": b"",
    "nul": HONEST + b"\0",
    "not_utf8": HONEST + b"# \xff\xfe",
    "bom": b"\xef\xbb\xbf" + HONEST,
    "utf16": HONEST.decode().encode("utf-16"),
    "declared_latin1": b"# -*- coding: latin-1 -*-\n" + HONEST,
    "declared_nonsense": b"# -*- coding: no-such-codec -*-\n" + HONEST,
    "carriage_returns": HONEST.replace(b"\n", b"\r"),
    "form_feeds": b"\x0c" + HONEST,
    "trojan_source": "# \u202e } \u2066 begin\n".encode() + HONEST,
    "deep": b"x = " + b"-" * 100_000 + b"1\n" + HONEST,
    "deep_lambda": b"x = " + b"lambda: " * 5000 + b"1\n" + HONEST,
    "brackets": b"x = " + b"(" * 5000 + b")" * 5000 + b"\n" + HONEST,
    "long_integer": b"x = " + b"9" * 100_000 + b"\n" + HONEST,
    "one_line": b"x = [" + b"1," * 500_000 + b"]\n" + HONEST,
    "at_the_limit": HONEST + b"#" * ((4 << 20) - len(HONEST)),
    "beyond_the_limit": HONEST + b"#" * (4 << 20),
    "syntax_in_escapes": b"def gelu(x:\n  '\x1b[2J'\n",
    "origin_nonsense": b'# kerneleval-origin: {"generator": "\\ud800\\u001b[2J", "sample": 1e400}\n' + HONEST,
    "origin_deep": b"# kerneleval-origin: " + b"[" * 100_000 + b"\n" + HONEST,
    "origin_hostile": b'# kerneleval-origin: {"model": "\\ud800\\u001b[2J[/]", "tokens_in": '
    + b"9" * 4000
    + b"}\n"
    + HONEST,
    "header_unknown": b"# kerneleval-\x1b[2J: x\n" + HONEST,
    "raises_escapes": MADE + b'raise ValueError("\\x1b[2J\\x9b31m\\u202e\\ud800\\0[/red]")\n',
    "raises_long": MADE + b'raise ValueError("x" * 20_000_000)\n',
    "raises_odd_name": b"E = type('\\x1b[2J' + 'x' * 5000, (Exception,), {})\n" + MADE + b"raise E('no')\n",
    "raises_in_str": raising("Exception", "def __str__(self): raise RuntimeError('no text')"),
    "str_is_no_text": raising("Exception", "def __str__(self): return 3"),
    "raises_text_subclass": raising("Exception", "def __str__(self): return type('S', (str,), {})('\\x1b[2J')"),
    "raises_base": raising("BaseException"),
    "raises_interrupt": raising("KeyboardInterrupt"),
    "raises_exit": MADE + b"raise SystemExit('\\x1b[2J' * 1000)\n",
    "raises_exit_unprintable": b"class U:\n    def __repr__(self): raise ValueError\n"
    + MADE
    + b"raise SystemExit(U())\n",
    "raises_group": MADE + b"raise ExceptionGroup('\\x1b[2J', [ValueError('x' * 10000)] * 50)\n",
    "raises_chain": MADE
    + b"e = ValueError('0')\n    for i in range(2000):\n        n = ValueError(i); n.__cause__ = e; e = n\n"
    + b"    raise e\n",
    "raises_notes": MADE + b"e = ValueError('x'); e.add_note('\\x1b[2J' * 100000); raise e\n",
    "recursion": MADE + b"return gelu(x)\n",
    "raises_at_import": b"raise ValueError('\\x1b[2J\\ud800')\n",
    "name_of_entry": "def gelu\u0301(x): return x\n".encode(),
    "returns_odd_type": b"T = type('\\x1b[2J' * 500, (), {})\n" + MADE + b"return T()\n",
    "returns_itself": MADE + b"a = []; a.append(a); return a\n",
    "prints_escapes": MADE + b"print('\\x1b[2J\\x9b' * 1000); raise ValueError\n",
    "prints_no_text": b"import os\n" + MADE + b"os.write(1, b'\\xff\\xfe\\0' * 1000); raise ValueError\n",
    "c_error": '#error "\x1b[2J [/] \u202e"\n'.encode(),
}
SUFFIX = {"c_error": ".cpp"}
USAGE = {
    "empty",
    "not_utf8",
    "utf16",
    "beyond_the_limit",
    "origin_nonsense",
    "origin_deep",
    "header_unknown",
}
PASSES = {
    "bom",
    "carriage_returns",
    "form_feeds",
    "trojan_source",
    "one_line",
    "at_the_limit",
    "origin_hostile",
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_hostile_file_has_a_verdict_or_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / ("c" + SUFFIX.get(name, ".py"))
    file.write_bytes(SOURCES[name])
    code, document = checked(str(file))
    said = document.get("error") or (document["stage"], document["reason"], document["message"][:200])
    assert (code == 2) == (name in USAGE), said
    if name in PASSES:
        assert code == 0, said
    elif name not in USAGE and not name.startswith("declared"):
        assert code == 1, said


@given(data=st.binary(max_size=300), suffix=st.sampled_from([".py", ".py", ".PY", ".txt", ""]))
@effort(10)
def test_any_bytes_are_a_candidate_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    file = tmp_path_factory.mktemp("bytes") / f"c{suffix}"
    file.write_bytes(data)
    code, _ = checked(str(file))
    assert code in (1, 2)


@given(
    line=st.one_of(
        st.builds(
            "{} kerneleval-{}: {}".format,
            st.sampled_from(["#", "//"]),
            st.sampled_from(["origin", "flags", "launch", "x"]),
            st.one_of(texts(), st.dictionaries(texts(8), texts()).map(json.dumps)),
        ),
        texts(),
    ),
    suffix=st.sampled_from([".py", ".cpp", ".cu"]),
)
@effort(200)
def test_any_header_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, line: str, suffix: str) -> None:
    file = tmp_path_factory.getbasetemp() / f"header{suffix}"
    file.write_bytes(line.encode("utf-8", "surrogatepass") + b"\n" + HONEST)
    with contextlib.suppress(UsageError):
        read_candidate(file)


NAMES = (
    b"with space and 'quotes'.py",
    b"-leading.py",
    b"new\nline.py",
    b"\x1b[2J\x9b.py",
    "\u202egnp.\u202cpy.py".encode(),
    b"not \xff utf-8.py",
    b"[bold red]x[/].py",
    b"$(id);`id`.py",
    b"a" * 250 + b".py",
)


@pytest.mark.parametrize("name", NAMES, ids=[str(i) for i in range(len(NAMES))])
def test_odd_names_of_files_are_judged_and_shown(name: bytes, tmp_path: Path) -> None:
    file = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    with open(file, "wb") as out:
        out.write(HONEST)
    code, document = checked(file)
    assert code == 0, document
    with open(file, "wb") as out:
        out.write(b"def gelu(x): raise ValueError\n")
    code, document = checked(file)
    assert code == 1, document
    assert document["replay"]
    code, out_text, _ = says(["check", file, "--task", "gelu", "--category", "tiny", *OPTIONS])
    assert code == 1
    assert not CONTROL & set(out_text)


@pytest.mark.parametrize("name", NAMES, ids=[str(i) for i in range(len(NAMES))])
def test_odd_names_of_generators_and_tasks(name: bytes, tmp_path: Path) -> None:
    """A directory of candidates with that name, and arguments of that name that are nothing."""
    folder = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    os.mkdir(folder)
    Path(folder, "gelu.py").write_bytes(HONEST)
    store = str(tmp_path / "s.db")
    code, document = is_clean(
        [
            "run",
            "-g",
            folder,
            "-t",
            "gelu",
            "--store",
            store,
            "--quick",
            "--distribution",
            "zeros",
            "--direction",
            "forward",
        ]
    )
    assert code in (0, 2), document
    if code == 0:
        assert is_clean(["score", "--store", store])[0] == 0
        assert says(["score", "--store", store])[0] == 0
    text = os.fsdecode(name)
    for arguments in (
        ["check", text, "--task", "gelu"],
        ["check", str(tmp_path / "none.py"), "--task", text],
        ["tasks", text],
        ["tasks", "--category", text],
        ["score", text, "--store", store],
        ["run", "-g", text, "--store", store],
        ["score", "--store", str(tmp_path / text)],
        ["check", text, "--task", "gelu", "--device", text],
        [text],
    ):
        code, document = is_clean(arguments)
        assert code == 2, arguments


@given(text=texts(), option=st.sampled_from(["--case", "--case", "--language", "--dtype", "--allow", "--device"]))
@effort(80)
def test_any_argument_is_one_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str, option: str) -> None:
    file = tmp_path_factory.getbasetemp() / "argument.py"
    file.write_bytes(HONEST)
    code, _ = is_clean(["check", str(file), "--task", "gelu", f"{option}={text}"])
    assert code == 2


@given(
    parts=st.lists(
        st.one_of(texts(12), st.sampled_from(["gelu", "forward", "M=4,N=7", "float32", "contiguous", "standard"])),
        min_size=5,
        max_size=7,
    ),
    dims=st.one_of(st.none(), st.lists(st.tuples(texts(4), st.one_of(texts(8), st.integers().map(str))), max_size=3)),
)
@effort(80)
def test_any_case_is_one_or_refused(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], dims: list[tuple[str, str]] | None
) -> None:
    if dims is not None:
        parts[2] = ",".join(f"{name}={value}" for name, value in dims)
    key = "/".join(parts)
    if key == "gelu/forward/M=4,N=7/float32/contiguous/standard":
        return
    file = tmp_path_factory.getbasetemp() / "case.py"
    file.write_bytes(HONEST)
    code, _ = is_clean(["check", str(file), "--task", "gelu", "--case", key])
    assert code == 2


PROBLEM = b"class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\xff\xfe",
        b"x" * 1000,
        b"x = " + b"-" * 100_000 + b"1\n" + PROBLEM,
        b"x = " + b"lambda: " * 5000 + b"1\n" + PROBLEM,
        b"raise ValueError('\\x1b[2J\\n\\n')\n" + PROBLEM,
        b"def f(:\n  '\x1b[2J'",
        b"N = 2 ** 2 ** 2 ** 2 ** 2 ** 2\n" + PROBLEM,
        b"TASKS = 3\n",
        b"TASKS = ('\\x1b[2J',)\n",
    ],
    ids=lambda d: repr(d[:12]),
)
def test_what_is_no_problem_file_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    file.write_bytes(data)
    (tmp_path / "c.py").write_bytes(HONEST)
    limit = sys.getrecursionlimit()
    code, document = is_clean(["check", str(tmp_path / "c.py"), "--task", str(file)])
    assert code == 2, document
    assert is_clean(["tasks", str(file)])[0] == 2
    assert sys.getrecursionlimit() == limit


@given(text=st.one_of(texts(), st.sampled_from(NASTY)))
@effort(100)
def test_any_name_is_found_or_refused(text: str) -> None:
    for find in (open_task, generators.find):
        with contextlib.suppress(UsageError, TypeError if os.path.isdir(text.replace("\0", "")) else UsageError):
            find(text)
