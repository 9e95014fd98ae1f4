"""What compiled code uses, in real verdicts on the CPU and read from folders as a worker may leave them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from kerneleval import tasks
from kerneleval.analysis import rubric
from kerneleval.judge import Judge
from kerneleval.judge.disassembly import of_library, printed
from kerneleval.judge.uses import _of_triton
from kerneleval.records import Candidate, Protocol, Verdict

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="not run: no objdump (install binutils)"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="not run: the kernels are x86-64's"),
]

HEAD = "#include <cstdint>\n#include <immintrin.h>\n"
ENTRY = """
extern "C" int relu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    int64_t n = M * N, i = 0;
    BODY
    for (; i < n; i++) out[i] = x[i] < 0 ? 0 : x[i];
    return 0;
}
"""
WIDE = HEAD + ENTRY.replace(
    "BODY",
    "for (; i + 8 <= n; i += 8)\n"
    "        _mm256_storeu_ps(out + i, _mm256_max_ps(_mm256_setzero_ps(), _mm256_loadu_ps(x + i)));",
)
DECOY = (
    "// kerneleval-flags: -fno-tree-vectorize\n"
    + HEAD
    + 'extern "C" __attribute__((noinline)) void never(const float *x, float *out) {\n'
    + "    _mm256_storeu_ps(out, _mm256_max_ps(_mm256_setzero_ps(), _mm256_loadu_ps(x)));\n}\n"
    + ENTRY.replace("BODY", "")
)


@pytest.fixture(scope="module")
def judge() -> Judge:
    with Judge("cpu") as made:
        yield made


def judged(judge: Judge, text: str) -> Verdict:
    protocol = Protocol(tier="quick", dtypes=("float32",), directions=("forward",), timed=False)
    return judge.check(Candidate(files=(("relu.cpp", text),), language="cpp"), tasks.find("relu"), protocol)


def has_avx() -> bool:
    return " avx2 " in Path("/proc/cpuinfo").read_text()


@pytest.mark.skipif(not has_avx(), reason="not run: this processor has no AVX2")
def test_a_verdict_has_the_vector_instructions_of_a_cpp_candidate(judge: Judge) -> None:
    verdict = judged(judge, WIDE)
    assert verdict.verdict == "passed", verdict.message
    [finding] = [f for f in verdict.findings if f["check"] == "uses"]
    [use] = rubric.compiled_in(verdict)
    assert (use.kernel, use.isa, finding["complete"], finding["why"]) == ("relu_float32", "x86", True, "")
    assert dict(use.classes)["AVX2"] >= 2 and use.widest_bytes >= 32
    assert any("max" in line.mnemonic and "%ymm" in line.text for line in use.lines)
    assert "relu_float32: " in finding["message"] and "AVX2 (" in finding["message"]
    saw = rubric.seen(verdict)
    candidate = Candidate(files=(("relu.cpp", WIDE),), language="cpp")
    representation, hardware = rubric.source_grades(candidate, saw)
    assert (representation.level, hardware.level) == (4, 2)


@pytest.mark.skipif(not has_avx(), reason="not run: this processor has no AVX2")
def test_what_no_entry_point_calls_does_not_count(judge: Judge) -> None:
    verdict = judged(judge, DECOY)
    assert verdict.verdict == "passed", verdict.message
    [use] = rubric.compiled_in(verdict)
    assert "AVX2" not in dict(use.classes) and use.widest_bytes <= 16
    saw = rubric.seen(verdict)
    grades = rubric.source_grades(Candidate(files=(("relu.cpp", DECOY),), language="cpp"), saw)
    assert saw.complete and [grade.level for grade in grades] == [3, 1]
    assert "not in the compiled code, so not counted: _mm256_" in grades[1].reason


def test_reading_costs_little_and_a_library_is_read_once(judge: Judge) -> None:
    judged(judge, WIDE)
    before = dict(judge._uses._printed)
    judged(judge, WIDE)
    assert judge._uses._printed == before  # nothing was disassembled again


def test_broken_binaries_have_no_kernels() -> None:
    for data in (b"", b"\x7fELF\x02\x01" + b"\xff" * 300, b"\x7fELF\x02\x01" + b"\0" * 12 + b"\xbe\x00" + b"\0" * 400):
        for gpu in (False, True):
            found = of_library(printed(data, gpu=gpu, seconds=20), ["relu_float32"])
            assert found.uses == () and found.why and not found.complete


def test_a_workers_folder_is_read_and_not_followed(tmp_path: Path) -> None:
    for number, folder in enumerate(("one", "two", "three")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernel.cubin").write_bytes(b"first" if number < 2 else b"second")
        os.utime(tmp_path / folder / "kernel.cubin", (number, number))
    (tmp_path / "three" / "kernel.json").write_text('{"hash": "abc"}')
    (tmp_path / "one" / "kernel.json").write_text("[" * 100_000)
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "two" / "link.cubin").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "two" / "pipe.cubin")
    (tmp_path / "two" / "kernel.amdgcn").write_text("\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0\n")
    (tmp_path / "round").symlink_to(tmp_path)
    found = list(_of_triton(tmp_path))
    assert {one.kernel for one in found} == {"kernel"} and len(found) == 3
    assert [(one.data, one.digest) for one in found if not one.amd] == [(b"second", "abc"), (b"first", "")]
    assert [one.data[:7] for one in found if one.amd] == [b"\tv_mfma"]
