"""The source in an answer: which block, why none, and that no text raises."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneleval.generators.common.prompts import extract
from kerneleval.generators.common.prompts.extract import without_reasoning
from kerneleval.records import Candidate

PY = textwrap.dedent(
    """\
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def kernel(x_ptr, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(x_ptr + i, 0.0, mask=i < n)


    def softmax(x):
        return x
    """
)
REFERENCE = "import torch\n\n\ndef reference(x):\n    return torch.softmax(x, -1)\n"
USAGE = "x = torch.randn(3)\nprint(softmax(x))\n"
CPP = textwrap.dedent(
    """\
    #include <cstdint>

    extern "C" int f_float32(const float *x, float *out, int64_t M, void *) {
        return 0;
    }
    """
)
CUDA = textwrap.dedent(
    """\
    #include <cuda_runtime.h>

    // } a brace in a comment, and one in a string: "{"
    __global__ void k(float *x) { x[0] = '{'; }

    extern "C" int f_float32(float *x, void *stream) {
        k<<<1, 1, 0, (cudaStream_t)stream>>>(x);
        return 0;
    }
    """
)
HIP = CUDA.replace("cuda", "hip")
OPENCL = textwrap.dedent(
    """\
    // kerneleval-launch: f_float32 global=M local=1

    // kernel void in_a_comment( {
    kernel void f_float32(global const float *x, global float *out, long M) {
        const long i = get_global_id(0);
        out[i] = 2.0f * x[i];
    }
    """
)
METAL = textwrap.dedent(
    """\
    // kerneleval-launch: f_float32 grid=cdiv(M,256) block=256

    #include <metal_stdlib>
    using namespace metal;

    kernel void f_float32(device const float *x, device float *out, constant long &M,
                          uint i [[thread_position_in_grid]]) {
        if (long(i) < M) out[i] = 2.0f * x[i];
    }
    """
)


def fenced(source, tag="python", fence="```"):
    return f"{fence}{tag}\n{source}{fence}\n"


def indented(text, by):
    return "".join(f"{by}{line}\n" if line else "\n" for line in text.splitlines())


FOUND = {
    "one block": fenced(PY),
    "prose around": f"I use one program a row.\n\n{fenced(PY)}\nIt is fast.\n",
    "no tag": fenced(PY, ""),
    "another tag of Python": fenced(PY, "triton"),
    "file name in the tag": fenced(PY, "python:softmax.py"),
    "attributes": fenced(PY, "{.python .numberLines}"),
    "title": fenced(PY, 'python title="softmax.py"'),
    "upper case": fenced(PY, "Python"),
    "plain text tag": fenced(PY, "text"),
    "tildes": fenced(PY, "python", "~~~"),
    "longer fence": fenced(PY, "python", "`````"),
    "first and final": f"{fenced(PY.replace('0.0', '1.0'))}\nBetter:\n{fenced(PY)}",
    "usage behind": f"{fenced(PY)}\nUse it so:\n{fenced(USAGE)}",
    "shell behind": f"{fenced(PY)}\n{fenced('python softmax.py', 'bash')}",
    "reference before": f"You gave\n{fenced(REFERENCE)}\nMine:\n{fenced(PY)}",
    "reference behind": f"{fenced(PY)}\nwhich replaces\n{fenced(REFERENCE)}",
    "part behind": f"{fenced(PY)}\nThe kernel alone:\n{fenced(PY.partition('def softmax')[0])}",
    "in a list": "1. The file:\n\n" + indented(fenced(PY), "   "),
    "behind a list mark": "- ```python\n" + indented(f"{PY}```", "  "),
    "deep indentation": indented(fenced(PY), "        "),
    "quoted": indented(fenced(PY), "> "),
    "opened in prose": f"Here it is: ```python\n{PY}```",
    "closed in code": f"```python\n{PY.rstrip()}```\nbye",
    "in a document": f"````markdown\n# Title\n{fenced(PY)}\nmore\n````\n",
    "in a document of the same fence": f"```markdown\n# Title\n{fenced(PY)}```\n",
    "no fence": PY,
    "no fence, prose before and behind": f"Sure, this is it:\n\n{PY}\n\nThis kernel masks the end.\n",
    "reasoning": f"<think>\nmaybe\n{fenced(REFERENCE)}</think>\n{fenced(PY)}",
    "reasoning without a beginning": f"maybe\n{fenced(REFERENCE)}</think>\n\n{fenced(PY)}",
    "reasoning twice": f"<think>a</think>\n{fenced(REFERENCE)}\n<think>b\n{fenced(USAGE)}</think>\n{fenced(PY)}",
    "Windows": fenced(PY).replace("\n", "\r\n"),
    "old Macs": fenced(PY).replace("\n", "\r"),
    "byte order mark": "\ufeff" + PY,
    "not closed": f"```python\n{PY}",
    "HTML": fenced(PY).replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"),
    "pre": f'<pre><code class="language-python">{PY.replace("<", "&lt;")}</code></pre>',
    "NUL and colours": fenced(PY.replace("import triton\n", "import\x00 triton\x1b[0m\n")),
    "no-break spaces": fenced(PY.replace("    ", "\xa0\xa0\xa0\xa0")),
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_found(text):
    assert extract(text, language="triton", finished=True) == (PY, "", "")


NONE = {
    "empty": ("", "no_code", "empty"),
    "blank": (" \n\t\r\n", "no_code", "empty"),
    "prose": ("I would tile the rows.", "no_code", "no code"),
    "reasoning alone": ("<think>a row at a time</think>\n", "no_code", "reasoning"),
    "shell alone": (fenced("pip install triton", "bash"), "no_code", "Triton"),
    "usage alone": (fenced(USAGE), "no_code", "Triton"),
    "another language": (fenced(CUDA, "cuda"), "no_code", "none in Triton"),
    "another language, no tag": (fenced(CUDA, ""), "no_code", "none in Triton"),
    "diff": (fenced("--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-def f(x):\n+def g(x):\n", "diff"), "no_code", "diff"),
    "diff with a wrong tag": (fenced("@@ -1,2 +1,2 @@\n def f(x):\n-    y\n+    x\n"), "no_code", "diff"),
    "declined": ("I'm sorry, but I can't help with writing this.", "refused", "declined"),
    "declined politely": ("I cannot assist with that request.", "refused", "declined"),
    "not complete": (f"```python\n{PY}def g(x:\n    ret", "truncated", "complete"),
    "not complete, no fence": (f"{PY}def g(x:\n    ret", "truncated", "complete"),
}


@pytest.mark.parametrize(("text", "problem", "said"), NONE.values(), ids=NONE)
def test_none(text, problem, said):
    source, found, message = extract(text, language="triton", finished=True)
    assert (source, found) == ("", problem)
    assert said in message
    assert message.endswith(".") and message.count(". ") == 0  # one sentence


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{PY}",  # it may go on
        f"```python\n{PY[:150]}",
        f"<think>\n{fenced(PY)} and so",
        "I will write it in one kernel, which",
        f"{fenced(REFERENCE)}\nMine:\n```python\n{PY[:150]}",  # not the task's own code instead
    ],
)
def test_cut_off(text):
    assert extract(text, language="triton", finished=False)[:2] == ("", "truncated")


def test_a_complete_first_version_stands_for_a_last_one_that_is_cut_off():
    text = f"{fenced(PY)}\nFaster:\n```python\n{PY[:150]}"
    assert extract(text, language="triton", finished=False) == (PY, "", "")


def test_cut_off_in_the_prose_behind_the_code_costs_nothing():
    assert extract(f"{fenced(PY)}\nThis is fast, bec", language="triton", finished=False) == (PY, "", "")


def test_code_that_does_not_parse_is_a_candidate_when_its_block_is_closed():
    broken = PY + "def g(x:\n    return x\n"  # the build says what is wrong, better than nothing
    assert extract(fenced(broken), language="triton", finished=True) == (broken, "", "")
    assert extract(fenced(PY) + fenced(broken), language="triton", finished=True)[0] == PY


@pytest.mark.parametrize("inner", ["```", "```python"])
def test_fences_in_a_docstring(inner):
    source = (
        f'import triton\n\n\ndef f(x):\n    """Like this:\n\n    {inner}\n    f(1)\n    ```\n    """\n    return x\n'
    )
    assert extract(f"Here:\n{fenced(source)}bye\n", language="triton", finished=True)[0] == source


def test_entities_in_strings_stay():
    source = 'import triton\n\n\ndef f(x):\n    return "&lt;" if x > 1 else "&amp;"\n'
    assert extract(fenced(source), language="triton", finished=True)[0] == source


def test_tags_in_code_stay():
    source = 'import triton\n\n\ndef f(x):\n    """\n    <think>\n    """\n    return "</think>"\n'
    assert extract(fenced(source), language="triton", finished=True)[0] == source


@pytest.mark.parametrize("language", ["torch", "numba"])
def test_python_languages_take_what_imports_them(language):
    own = REFERENCE.replace("torch", language)
    assert extract(fenced(own) + fenced("def f(x):\n    return x\n"), language=language, finished=True)[0] == own


@pytest.mark.parametrize(
    ("language", "tag", "source"),
    [
        *(("cpp", tag, CPP) for tag in ("cpp", "c++", "C++", "")),
        *(("cuda", tag, CUDA) for tag in ("cuda", "cu", "cpp", "")),
        *(("hip", tag, HIP) for tag in ("hip", "cpp", "")),
        *(("opencl", tag, OPENCL) for tag in ("opencl", "cl", "OpenCL", "c", "")),
        *(("opencl", tag, OPENCL.replace("kernel void", "__kernel void")) for tag in ("opencl", "")),
        *(("metal", tag, METAL) for tag in ("metal", "msl", "Metal", "cpp", "")),
    ],
)
def test_native(language, tag, source):
    assert extract(f"So:\n{fenced(source, tag)}bye", language=language, finished=True) == (source, "", "")
    assert extract(source, language=language, finished=True) == (source, "", "")
    cut = f"```{tag}\n{source.rstrip()[:-1]}"
    assert extract(cut, language=language, finished=True)[:2] == ("", "truncated")
    helper = "static int twice(int x) {\n    return 2 * x;\n}\n"
    assert extract(fenced(source, tag) + fenced(helper, tag), language=language, finished=True)[0] == source


def test_native_languages_are_told_apart():
    assert extract(fenced(CUDA, "cpp"), language="cpp", finished=True)[1] == "no_code"
    assert extract(fenced(PY, "python"), language="cuda", finished=True)[1] == "no_code"
    assert extract(fenced(PY, ""), language="cuda", finished=True)[1] == "no_code"
    both = fenced(CPP, "cpp") + fenced(CUDA, "cuda") + fenced(REFERENCE)
    assert extract(both, language="cuda", finished=True)[0] == CUDA
    assert extract(both, language="cpp", finished=True)[0] == CPP
    assert extract(both, language="torch", finished=True)[0] == REFERENCE


KERNELS = {"opencl": OPENCL, "metal": METAL}


@pytest.mark.parametrize("language", KERNELS)
def test_kernels_without_host_code_are_told_apart(language):
    own = KERNELS[language]
    (other,) = (source for name, source in KERNELS.items() if name != language)
    for tag in ("opencl", "metal", "c", ""):
        source, problem, said = extract(fenced(other, tag), language=language, finished=True)
        assert (source, problem) == ("", "no_code"), tag
        assert ("none in OpenCL C" if language == "opencl" else "none in Metal") in said
    both = [fenced(own, language), fenced(other, ""), fenced(CUDA, "cuda"), fenced(CPP, "cpp"), fenced(REFERENCE)]
    assert extract("".join(both), language=language, finished=True)[0] == own
    assert extract("".join(reversed(both)), language=language, finished=True)[0] == own
    for foreign in (CUDA, CPP, HIP):
        assert extract(fenced(foreign, "c"), language=language, finished=True)[1] == "no_code"
        assert extract(fenced(own, "c"), language="cpp", finished=True)[1] == "no_code"
    for tag in (language, ""):
        assert extract(fenced(own, tag), language="triton", finished=True)[1] == "no_code"
    assert "none in Triton" in extract(fenced(own, language), language="triton", finished=True)[2]
    assert extract("".join(both), language="cuda", finished=True)[0] == CUDA
    assert extract("".join(both), language="cpp", finished=True)[0] == CPP


@pytest.mark.parametrize("language", KERNELS)
def test_kernels_with_launch_lines_come_before_others(language):
    own = KERNELS[language]
    bare = own.partition("\n\n")[2]
    assert extract(fenced(own, "") + fenced(bare, ""), language=language, finished=True)[0] == own
    assert extract(fenced(bare, language), language=language, finished=True)[0] == bare  # loading says what is missing
    helper = "static inline float twice(float x) {\n    return 2 * x;\n}\n"
    assert extract(fenced(bare, "c") + fenced(helper, "c"), language=language, finished=True)[0] == bare


def test_kernels_that_a_macro_makes():
    source = (
        "// kerneleval-launch: f_float32 global=M local=1\n#define KERNEL(T) \\\n"
        "    kernel void f_##T##32(global const T *x, global T *out, long M) { \\\n"
        "        out[get_global_id(0)] = x[get_global_id(0)]; }\nKERNEL(float)\n"
    )
    assert extract(f"{fenced(source, 'c')}{fenced(METAL, '')}", language="opencl", finished=True)[0] == source


def test_raw_strings_and_comments_hold_no_brackets():
    source = 'const char *s = R"x({{{ ")x";\n/* ((( */ char c = \'(\';\n' + CPP
    assert extract(fenced(source, "cpp"), language="cpp", finished=True)[0] == source


def test_too_long_a_source_is_none():
    source, problem, message = extract(fenced(PY + "# x\n" * (2 << 20)), language="triton", finished=True)
    assert (source, problem) == ("", "no_code")
    assert "4 MiB" in message


def test_reasoning_that_never_ends_takes_all():
    assert without_reasoning("a\n<think>\nb\n") == "a\n"
    assert without_reasoning("a <think> b") == "a <think> b"  # a word in prose
    assert without_reasoning("[THINK]a[/THINK]b") == "b"


PIECES = st.sampled_from(
    (
        *(
            "```",
            "```python\n",
            "```cuda\n",
            "```cl\n",
            "```metal\n",
            "~~~",
            "````",
            "\n",
            "\r\n",
            "> ",
            "- ",
            "    ",
            "<think>",
            "</think>",
        ),
        *(
            PY,
            CUDA,
            CPP,
            OPENCL,
            METAL,
            "<pre><code>",
            "</code></pre>",
            "&lt;",
            '"""',
            "'''",
            "@@ -1 +1",
            "\x00",
            "\ud800",
            "I can't ",
        ),
        *("def f(x):\n", "/*", 'R"(', "{", "}", "((((", "-" * 99, "\x1b[", "\u2028", "if 1:\n ", "import triton\n"),
    )
)


@settings(max_examples=300, deadline=None)
@given(
    text=st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=20).map("".join)),
    language=st.sampled_from(["triton", "torch", "numba", "cpp", "cuda", "hip", "opencl", "metal"]),
    finished=st.booleans(),
)
def test_no_text_raises(text, language, finished):
    source, problem, message = extract(text, language=language, finished=finished)
    assert problem in ("", "no_code", "refused", "truncated")
    assert bool(source) == (problem == "") == (message == "")
    if source:
        assert source.endswith("\n") and "\x00" not in source and "\r" not in source
        assert len(Candidate(files=(("a.py", source),), language=language).hash) == 64  # it can be written


DEEP = {
    "attributes": "x = a" + ".b" * 100_000,
    "signs": "x = " + "-" * 100_000 + "1",
    "sums": "x = 1" + " + 1" * 50_000,
    "parentheses": "x = " + "(" * 100_000,
    "calls": "x = a" + "()" * 50_000,
    "negations": "x = " + "not " * 50_000 + "1",
    "functions": "x = " + "lambda: " * 20_000 + "1",
    "branches": "if a:\n    pass\n" + "elif a:\n    pass\n" * 10_000,
    "blocks": "".join(" " * i + "if a:\n" for i in range(300)),
    "decorators": "@a\n" * 50_000 + "def g(x):\n    pass\n",
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_deep_code_does_not_raise(deep):
    source, problem, _ = extract(fenced(f"{PY}\n{deep}\n"), language="triton", finished=True)
    assert problem == "" and source.startswith(PY)


LONG = {
    "ticks": "`" * 125_000,
    "fences": "```\n" * 31_250,
    "tagged fences": "```python\n" * 12_500,
    "blocks that do not parse": '```python\ndef f(x:\n"""\n```\n' * 4_500,
    "openings of thoughts": "<think>\n" * 15_000,
    "ends of thoughts": "</think>" * 15_000,
    "comments": "```cuda\n#include <a>\n" + "/*" * 62_500,
    "raw strings": "```cuda\n#include <a>\n" + 'R"(' * 40_000,
    "quotes": "```cuda\n#include <a>\n" + '"' * 125_000,
    "pre": "<pre>" * 25_000,
    "blanks": "```python\n" + " " * 125_000,
    "paragraphs": "import x\n\n" * 12_500,
    "refusals": "I can" * 25_000,
    "entities": "```python\n" + "&lt;" * 31_250,
    "hunks": "@@ -1\n" * 20_000,
    "prose": ("word " * 20 + "\n") * 1_250,
    "address spaces": "```c\n#include <a>\nkernel " + "global " * 17_500,
    "attributes": "```c\n#include <a>\nkernel " + "[[thread_in_" * 10_000,
    "attributes that never end": "```c\n#include <a>\nkernel [[" + "thread_in_" * 12_500,
    "gaps": "```c\n#include <a>\nkernel device" + " \n" * 62_500,
}


@pytest.mark.slow(every=2)
@pytest.mark.timeout(60)  # each takes a twentieth of a second; what grows with the square, minutes
@pytest.mark.parametrize("language", ["triton", "cuda", "opencl", "metal"])
def test_a_long_answer(language):
    for name, long in LONG.items():
        source, problem, message = extract(long, language=language, finished=True)
        assert bool(source) == (problem == "") == (message == ""), name
    own = {"triton": PY, "cuda": CUDA, **KERNELS}[language]
    text = LONG["prose"] + fenced(own, language)
    assert extract(text, language=language, finished=True)[0] == own
