"""Reading candidate files: languages by suffix and text, origins, bad input; and the registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kerneleval import languages
from kerneleval.languages import read_candidate
from kerneleval.languages.common import base
from kerneleval.languages.common.source import edited_lines
from kerneleval.records import KernelEvalError, Origin, UsageError


@pytest.fixture
def write(tmp_path):
    def make(name, text):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return make


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("a.py", "import torch", "torch"),
        ("a.py", "import triton", "triton"),
        ("a.py", "from triton.language import load", "triton"),
        ("a.py", "import numba, triton", "triton"),
        ("a.py", "import numba as nb", "numba"),
        ("a.py", "def f():\n    from numba import njit", "numba"),
        ("a.py", "# import triton", "torch"),
        ("a.py", "x = 'import triton'", "torch"),
        ("a.py", "import triton\ndef broken(:", "triton"),
        ("a.py", "from .triton import x", "torch"),
        ("a.cpp", "int x;", "cpp"),
        ("a.CC", "int x;", "cpp"),
        ("a.cu", "int x;", "cuda"),
    ],
)
def test_languages_are_detected(write, name, text, language):
    candidate = read_candidate(write(name, text))
    assert candidate.language == language
    assert languages.detect(name, text) == language


def test_the_file_name_is_no_part_of_the_candidate(write):
    a, b = read_candidate(write("gelu.py", "import torch")), read_candidate(write("x_17.py", "import torch"))
    assert a.files == (("candidate.py", "import torch"),)
    assert a.hash == b.hash


def test_entries_and_language_can_be_given(write):
    candidate = read_candidate(write("a.txt", "x"), entry="f", language="numba", backward_entry="g")
    assert (candidate.entry, candidate.backward_entry, candidate.language) == ("f", "g", "numba")
    assert candidate.files[0][0] == "candidate.py"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.rs", "x", "suffix '.rs' belongs to no language; known suffixes are .cc, .cl, .cpp, .cu"),
        ("a", "x", "no suffix belongs to no language"),
        ("a.py", "  \n", "is empty"),
        ("a.py", b"x = '\xff'", "not UTF-8 at byte 5; save it as UTF-8"),
        ("a.py", "#" * (4 * 1024 * 1024 + 1), "larger than 4194304 bytes"),
        ("a.py", "# kerneleval-orgin: {}", "line 1: unknown header 'kerneleval-orgin'"),
    ],
)
def test_bad_files_are_usage_errors(write, name, text, message):
    file = write(name, text)
    with pytest.raises(UsageError, match=message.replace(".", r"\.")) as caught:
        read_candidate(file)
    assert str(file) in str(caught.value)


def test_missing_files_and_odd_ones(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_candidate(tmp_path / "absent.py")
    with pytest.raises(UsageError, match="not a regular file"):
        read_candidate("/dev/zero")


def test_a_directory_gives_the_tasks_file(write, tmp_path):
    write("gelu.cpp", "int a;")
    assert read_candidate(tmp_path, "gelu").language == "cpp"
    with pytest.raises(UsageError, match="name the task"):
        read_candidate(tmp_path)
    with pytest.raises(UsageError, match=r"no file for task 'silu'; looked for silu\.cc"):
        read_candidate(tmp_path, "silu")
    write("gelu.py", "import torch")
    with pytest.raises(UsageError, match=r"more than one file for task 'gelu': gelu\.cpp, gelu\.py"):
        read_candidate(tmp_path, "gelu")


def test_a_byte_order_mark_is_dropped(write):
    assert read_candidate(write("a.py", b"\xef\xbb\xbfimport torch")).main == "import torch"


# -- origin -----------------------------------------------------------------------------------------------------------


def test_without_origin_it_is_a_file(write):
    assert read_candidate(write("a.py", "x = 1")).origin == Origin()


def test_origin_from_the_side_file(write):
    write("a.origin.json", json.dumps({"generator": "g", "money_usd": 1, "human_edits": 0}))
    origin = read_candidate(write("a.py", '# kerneleval-origin: {"generator": "other"}')).origin
    assert origin == Origin(generator="g", money_usd=1, human_edits=0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '# kerneleval-origin: {"generator": "g", "tokens_in": 5}\nimport torch'),
        ("a.py", '"""Doc."""\n#kerneleval-origin:{"generator": "g",\n#  "tokens_in": 5}\n# more words\nx = 1'),
        ("a.cpp", '#include <x>\n// kerneleval-origin: {"generator": "g", "tokens_in": 5}\n// kerneleval-flags: -O2\n'),
        ("a.cu", '// kerneleval-origin:\n// {"generator": "g",\n// "tokens_in": 5}\n'),
    ],
)
def test_origin_from_the_header(write, name, text):
    assert read_candidate(write(name, text)).origin == Origin(generator="g", tokens_in=5)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected an object"),
        ('{"tokens": 1}', "unknown field 'tokens'"),
        ('{"tokens_in": "5"}', "field 'tokens_in' must be int"),
        ('{"tokens_in": true}', "field 'tokens_in' must be int"),
        ('{"seconds": NaN}', "field 'seconds' must be finite"),
        ("[" * 100000, "not valid JSON"),
    ],
)
def test_bad_origins_name_file_and_field(write, plain, message):
    side = write("a.origin.json", plain) if len(plain) < 60000 else None
    file = write("a.py", "x = 1" if side else f"# kerneleval-origin: {plain}")
    with pytest.raises(UsageError, match=message) as caught:
        read_candidate(file)
    assert str(side or file) in str(caught.value)
    header = write("b.py", f"\n# kerneleval-origin: {plain}")
    with pytest.raises(UsageError, match=message) as caught:
        read_candidate(header)
    assert f"{header}: line 2: kerneleval-origin" in str(caught.value)


def test_two_origins_are_one_too_many(write):
    with pytest.raises(UsageError, match="lines 1 and 3 both give kerneleval-origin"):
        read_candidate(write("a.py", "# kerneleval-origin: {}\n\n# kerneleval-origin: {}\n"))


def test_headers_end_after_sixty_lines(write):
    text = "\n" * 60 + '# kerneleval-origin: {"generator": "g"}'
    assert read_candidate(write("a.py", text)).origin == Origin()


# -- registry ---------------------------------------------------------------------------------------------------------


def test_all_languages_are_found():
    names = ["cpp", "cuda", "hip", "metal", "numba", "opencl", "torch", "triton"]
    assert sorted(languages.all_languages()) == names
    assert languages.find("triton").name == "triton"


def test_unknown_languages_suggest_near_names():
    with pytest.raises(UsageError, match="no language is called 'trition'; did you mean triton"):
        languages.find("trition")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("X = 1", KernelEvalError, "declares no language"),
        (
            "from kerneleval.languages import register\n@register\nclass Other:\n    name = 'broken_language'",
            KernelEvalError,
            "must be a subclass of Language",
        ),
        ("import a_module_that_is_not_there", ModuleNotFoundError, "a_module_that_is_not_there"),
        (
            "from kerneleval.languages import register\nfrom kerneleval.languages.cpp import Cpp\n"
            "@register\nclass Other(Cpp):\n    name = 'else'",
            KernelEvalError,
            "must have the name of its module, 'broken_language'",
        ),
    ],
)
def test_a_broken_language_module_is_shown(tmp_path, monkeypatch, text, error, message):
    (tmp_path / "broken_language.py").write_text(text)
    monkeypatch.setattr(languages, "__path__", [*languages.__path__, str(tmp_path)])
    monkeypatch.setattr(base.LANGUAGES, "_loaded", False)
    try:
        with pytest.raises(error, match=message):
            languages.all_languages()
    finally:
        import sys

        sys.modules.pop("kerneleval.languages.broken_language", None)


def test_importing_and_detecting_does_not_import_torch(script):
    code = "import sys\nfrom kerneleval import languages\nprint(languages.detect('a.py', 'import triton'))\n"
    out = script(code + "print([m for m in ('torch', 'triton', 'numba', 'numpy') if m in sys.modules])")
    assert out.split("\n")[:2] == ["triton", "[]"]


def test_public_names_are_there():
    for name in languages.__all__:
        assert hasattr(languages, name)


@pytest.mark.parametrize(
    ("after", "lines"),
    [
        ("a\nb\nc\n", 0),
        ("a  \n\nb\r\nc", 0),
        ("a\nx\nc\n", 1),
        ("a\nc\n", 1),
        ("a\nb\nn\nm\nc\n", 2),
        ("x\ny\n", 3),
        ("", 3),
    ],
)
def test_edited_lines_are_counted(after: str, lines: int) -> None:
    assert edited_lines("a\nb\nc\n", after) == lines


def test_many_lines_are_counted_in_no_time() -> None:
    text = "".join(f"x = {i % 7}\n" for i in range(200_000))
    assert edited_lines(text, text + "y\n") == 1


def test_edits_are_told_from_what_the_generator_wrote(tmp_path: Path) -> None:
    file = tmp_path / "relu.py"
    file.write_text("import torch\n\n\ndef relu(x):\n    return torch.clamp(x, min=0)\n")
    (tmp_path / "relu.origin.json").write_text('{"generator": "g", "model": "m", "human_edits": 0}')
    assert read_candidate(file).origin.human_edits == 0
    (tmp_path / "relu.written.txt").write_text("import torch\n\n\ndef relu(x):\n    return torch.relu(x)\n")
    origin = read_candidate(file).origin
    assert (origin.model, origin.human_edits) == ("m", 1)


def test_unknown_guidance_is_named(tmp_path: Path) -> None:
    (tmp_path / "relu.py").write_text("def relu(x):\n    return x\n")
    (tmp_path / "relu.origin.json").write_text('{"guidance": "strategic"}')
    with pytest.raises(UsageError, match=r"relu.origin.json.*guidance.*did you mean strategy"):
        read_candidate(tmp_path / "relu.py")
