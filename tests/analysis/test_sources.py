"""Source metrics: counted by hand, of each language, and never an exception whatever the text is."""

from __future__ import annotations

import dataclasses
import math
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scores.score_builders import rows

from kerneleval.analysis.sources import LIMIT_CHARS, METRICS, by_generators, measure, native_code
from kerneleval.records import Candidate, UsageError

for package in ("radon", "lizard"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'kerneleval[analysis]')")


def candidate(text, path="candidate.py", language="triton", *more):
    return Candidate(files=((path, textwrap.dedent(text)), *more), language=language)


TRITON = '''
    import triton
    import triton.language as tl
    from triton import jit as compiled

    @triton.autotune(configs=[], key=["n"])
    @triton.jit
    def kernel(x, n):
        """Doc."""
        if n > 3 and n < 9:  # two decisions
            tl.store(x, 1)

    @compiled
    def helper(a):
        return a

    def run(x):
        for _ in range(3):
            kernel[(1,)](x, 3)
        return x
'''

CUDA = """
    #include <cuda.h>
    // __global__ void in_comment() {}
    const char* text = "__global__ void in_string() {}";
    template <typename T>
    __global__ void __launch_bounds__(256) kernel(const T* x, T* y, int n) {
      int i = threadIdx.x;
      if (i < n && x[i] > 0) y[i] = x[i];
    }
    #if 0
    __global__ void dead(float* x) {}
    #endif
    __global__ void other(float* x);
    __global__ void other(float* x) { for (int i = 0; i < 3; ++i) x[i] = 0; }
    extern "C" void run(float* x, float* y, int n) { kernel<<<1, 256>>>(x, y, n); }
"""


def test_python_by_hand():
    found = measure(candidate(TRITON))
    assert (found.functions, found.kernels, found.note) == (3, 2, "")
    # kernel: if and and: 3; helper: 1; run: for: 2
    assert (found.complexity_sum, found.complexity_max, found.complexity_mean) == (6, 3, 2)
    assert 0 < found.maintainability < 100 and found.logical_lines > 8


def test_radon_itself_agrees_on_the_index():
    metrics = pytest.importorskip("radon.metrics", reason="radon is not installed")
    text = textwrap.dedent(TRITON)
    assert measure(candidate(TRITON)).maintainability == pytest.approx(metrics.mi_visit(text, multi=True))


def test_cuda_by_hand():
    found = measure(candidate(CUDA, "candidate.cu", "cuda"))
    # kernel: if and &&: 3; other: for: 2; run: 1; what is in a comment, a string or #if 0 is no kernel
    assert (found.complexity_max, found.complexity_mean) == (3, pytest.approx(found.complexity_sum / found.functions))
    assert found.kernels == 2
    assert 0 < found.maintainability < 100 and not found.note
    assert measure(candidate(CUDA * 3, "candidate.cu", "cuda")).maintainability < found.maintainability


def test_the_index_of_a_c_like_source_by_hand():
    found = measure(candidate("void run(float* x) { if (x) *x = 0; }", "candidate.cpp", "cpp"))
    # 18 tokens, 13 of them different, complexity 2, one line, no comment
    raw = 171 - 5.2 * math.log(18 * math.log2(13)) - 0.23 * 2
    assert found.maintainability == pytest.approx(raw * 100 / 171)
    said = measure(candidate("// sets\n/* the\nfirst */ void run(float* x) { if (x) *x = 0; }", "candidate.cpp", "cpp"))
    assert said.maintainability == pytest.approx(
        min(100, (raw + 50 * math.sin(math.sqrt(2.46 * math.radians(300)))) * 100 / 171)
    )
    assert measure(candidate("int x;", "candidate.cpp", "cpp")).maintainability <= 100


def test_opencl_marks_its_kernels():
    text = """
    // kernel void in_comment() {}
    static inline float twice(float x) { return x > 0 ? 2 * x : 0; }
    kernel void first(global const float *x, global float *y) { y[0] = twice(x[0]); }
    __kernel __attribute__((reqd_work_group_size(64, 1, 1))) void second(global float *y) { y[0] = 1; }
    """
    measured = measure(candidate(text, "candidate.cl", "opencl"))
    assert measured.kernels == 2
    assert measured.functions == 3


def test_cpp_does_not_mark_its_kernels():
    found = measure(candidate("void run(float* x) { if (x) *x = 0; }", "candidate.cpp", "cpp"))
    assert (found.functions, found.complexity_sum, found.logical_lines) == (1, 2, 1)
    assert math.isnan(found.kernels) and "C++ does not mark its kernels" in found.note


def test_cuda_in_a_string_of_python_counts():
    text = f"import torch\nsource = r'''{textwrap.dedent(CUDA)}'''\ndef run(x):\n    return x\n"
    found = measure(candidate(text, language="torch"))
    alone = measure(candidate(CUDA, "candidate.cu", "cuda"))
    assert found.kernels == 2 and found.functions == alone.functions + 1
    assert not found.note
    assert alone.maintainability < found.maintainability < 100


def test_several_files_count_together():
    one, other = measure(candidate(TRITON)), measure(candidate("def f():\n    return 1\n"))
    both = measure(candidate(TRITON, "candidate.py", "triton", ("helper.py", "def f():\n    return 1\n")))
    assert both.functions == one.functions + other.functions
    assert both.logical_lines == one.logical_lines + other.logical_lines
    assert one.maintainability < both.maintainability < other.maintainability


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(:\n", "does not parse"),
        ("x = '\x00'", "does not parse"),
        ("x = " + "-" * 5000 + "1", "does not parse"),
        ("x = " + "(" * 300 + ")" * 300, "does not parse"),
        ("if 1:\n\tx\n        y\n", "does not parse"),
        ("x\n" * LIMIT_CHARS, "longer than 256 Ki characters"),
    ],
)
def test_what_does_not_parse_is_nan_with_the_reason(text, why):
    found = measure(Candidate(files=(("candidate.py", text),), language="triton"))
    assert all(math.isnan(getattr(found, name)) for name in METRICS)
    assert found.note.startswith(f"candidate.py: {why}") and len(found.note) < 300


def test_one_bad_file_spoils_the_numbers_and_says_so():
    found = measure(candidate(TRITON, "candidate.py", "triton", ("bad.py", "def f(:")))
    assert math.isnan(found.functions) and found.note.startswith("bad.py: does not parse")


def test_no_source():
    assert measure(candidate("x", "kernel.metal", "metal")).note == "no source in a language that is measured"
    found = measure(candidate("x = 1\n"))
    assert (found.functions, found.complexity_sum) == (0, 0)
    assert math.isnan(found.complexity_mean) and found.note == "no function"


_PIECES = st.sampled_from(
    ["__global__ ", "(", ")", "{", "}", '"', "'", "/*", "*/", "//", "\n", "#if 0\n", "#endif\n", "R\"x(", ')x"',
     "template<", "a<b>", "operator", "\\", "asm", "def f():\n", "  ", "\t", "@", "\x00", "é", "1'000", ":", "'''"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_PIECES, max_size=60).map("".join), st.sampled_from(["candidate.py", "candidate.cu", "a.cpp"]))
def test_no_text_raises(text, path):
    found = measure(Candidate(files=((path, text),), language="cuda"))
    assert found.note or found.functions >= 0
    blanked = native_code(text)
    assert len(blanked) == len(text) and blanked.count("\n") == text.count("\n")


def test_comments_strings_and_dead_code_are_blanked():
    text = (
        'a; // b\nc /* d\n e */ f "g" R"x(h)" i)x" 1\'000 \'j\' k\n#if 0\nl\n#if 1\nm\n#endif\nn\n#else\no\n#endif\np'
    )
    kept = native_code(text).split()
    assert kept == ["a;", "c", "f", "1'000", "k", "#if", "0", "#else", "o", "#endif", "p"]


@pytest.mark.parametrize(("module", "path"), [("radon", "candidate.py"), ("lizard", "candidate.cu")])
def test_a_missing_package_says_what_to_install(monkeypatch, module, path):
    for name in (module, *(name for name in sys.modules if name.startswith(f"{module}."))):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"need {module}; install it with: pip install 'kerneleval"):
        measure(candidate("x = 1\n", path))


# --------------------------------------------------------------------------------------------------------------------
# Generators
# --------------------------------------------------------------------------------------------------------------------


def test_medians_over_attempts():
    """Seven tasks, one of them without a source and one that does not parse."""
    sources = {f"h{i}": measure(candidate("def f(x):\n" + "    x += 1\n" * (i + 1))) for i in range(5)}
    sources["h5"] = measure(candidate("def f(:"))
    results = []
    for i in range(7):
        row = rows(f"t{i}", [1.0, "wrong_output"])
        results += [dataclasses.replace(r, candidate=f"h{i}") for r in row]
    found = by_generators(sources, results)["g"]
    assert set(found) == set(METRICS)
    lines = found["logical_lines"]
    assert (lines.value, lines.n, lines.note) == (4, 5, "1 without a source, 1 not known")  # def and 1 to 5 statements
    assert 2 <= lines.low <= 4 <= lines.high <= 6


def test_nothing_to_measure_is_no_number():
    found = by_generators({}, rows("t", [1.0]))["g"]["maintainability"]
    assert math.isnan(found.value) and found.n == 0 and found.note == "1 without a source"
    assert by_generators({}, []) == {}
