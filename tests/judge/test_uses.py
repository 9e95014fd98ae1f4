"""What compiled code uses, in real verdicts on the CPU and read from folders as a worker may leave them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerneleval import tasks
from kerneleval.analysis import rubric
from kerneleval.judge import Judge
from kerneleval.judge.binaries.disassembly import Printed, of_library, printed
from kerneleval.judge.binaries.uses import Uses, read_sent
from kerneleval.records import Candidate, Protocol, UsageError, Verdict
from kerneleval.worker.observing import triton_binaries

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

THREAD = (
    HEAD.replace("#include <cstdint>", "#include <cstdint>\n#include <pthread.h>")
    + """
struct Job { const float *x; float *out; };
extern "C" void *work(void *job) {
    Job *of = static_cast<Job *>(job);
    _mm256_storeu_ps(of->out, _mm256_max_ps(_mm256_setzero_ps(), _mm256_loadu_ps(of->x)));
    return nullptr;
}
"""
    + ENTRY.replace(
        "BODY",
        "Job job{x, out};\n    pthread_t other;\n"
        "    if (n >= 8 && pthread_create(&other, nullptr, work, &job)) return 2;\n"
        "    if (n >= 8) pthread_join(other, nullptr);",
    )
)


X86 = b"\x7fELF\x02\x01".ljust(18, b"\0") + b"\x3e\0"


def judged(judge: Judge, text: str) -> Verdict:
    protocol = Protocol(tier="quick", dtypes=("float32",), directions=("forward",), timed=False)
    return judge.check(Candidate(files=(("relu.cpp", text),), language="cpp"), tasks.find("relu"), protocol)


def has_avx() -> bool:
    return " avx2 " in Path("/proc/cpuinfo").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not has_avx(), reason="not run: this processor has no AVX2")
def test_a_verdict_has_the_vector_instructions_of_a_cpp_candidate(judge: Judge) -> None:
    verdict = judged(judge, WIDE)
    assert verdict.verdict == "passed", verdict.message
    [finding] = [f for f in verdict.findings if f.check == "uses"]
    [use] = rubric.compiled_in(verdict)
    assert (use.kernel, use.isa, finding.evidence.complete, finding.evidence.why) == ("relu_float32", "x86", True, "")
    assert dict(use.classes)["AVX2"] >= 2 and use.widest_bytes >= 32
    assert any("max" in line.mnemonic and "%ymm" in line.text for line in use.lines)
    assert "relu_float32: " in finding.message and "AVX2 (" in finding.message
    saw = rubric.seen(verdict)
    candidate = Candidate(files=(("relu.cpp", WIDE),), language="cpp")
    representation, hardware = rubric.source_grades(candidate, saw)
    assert (representation.level, hardware.level) == (4, 2)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.skipif(not has_avx(), reason="not run: this processor has no AVX2")
def test_what_an_entry_point_hands_to_a_thread_counts(judge: Judge) -> None:
    """Its address comes from the global offset table: the relocations tell whose it is."""
    verdict = judged(judge, THREAD)
    assert verdict.verdict == "passed", verdict.message
    [use] = rubric.compiled_in(verdict)
    assert any("%ymm" in line.text and "max" in line.mnemonic for line in use.lines)


def test_many_entry_points_are_not_all_looked_at() -> None:
    text = "".join(f"{n:016x} <e{n}>:\n {n:x}:\tret\n" for n in range(40))
    found = of_library(Printed(data=X86, gpu=False, host=text), [f"e{n}" for n in range(40)])
    assert (len(found.kernels), found.why, found.complete) == (16, "24 of 40 entry points are not looked at", False)


@pytest.mark.slow
def test_reading_costs_little_and_a_library_is_read_once(judge: Judge) -> None:
    judged(judge, WIDE)
    before = dict(judge._uses._printed)
    judged(judge, WIDE)
    assert judge._uses._printed == before  # nothing was disassembled again


def test_broken_binaries_have_no_kernels() -> None:
    for data in (b"", b"\x7fELF\x02\x01" + b"\xff" * 300, b"\x7fELF\x02\x01" + b"\0" * 12 + b"\xbe\x00" + b"\0" * 400):
        for gpu in (False, True):
            found = of_library(printed(data, gpu=gpu, seconds=20), ["relu_float32"])
            assert found.kernels == () and found.why and not found.complete


def test_what_a_worker_sends_is_read_with_care(tmp_path: Path) -> None:
    for number, folder in enumerate(("one", "two", "three")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernel.cubin").write_bytes(b"first" if number < 2 else b"second")
        os.utime(tmp_path / folder / "kernel.cubin", (number, number))
    (tmp_path / "three" / "kernel.json").write_text('{"hash": "abc", "shared": 7}')
    (tmp_path / "one" / "kernel.json").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "two" / "pipe.cubin")
    (tmp_path / "two" / "kernel.amdgcn").write_text("\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0\n")
    found = read_sent(json.loads(json.dumps(triton_binaries(str(tmp_path), 1 << 20))))
    assert {one.kernel for one in found} == {"kernel"} and len(found) == 3
    assert [(one.data, set(one.digests)) for one in found if not one.amd] == [(b"second", {"abc"}), (b"first", set())]
    assert [one.data[:7] for one in found if one.amd] == [b"\tv_mfma"]
    for files in (None, 7, "x", [1, {}], [{"data": 3, "kernel": "k", "kind": "cubin"}], [{"data": "~", "kernel": "k"}]):
        assert read_sent(files) == []


class Told:
    """A loaded candidate, as far as the reading of binaries asks it, and its worker, which has compiled these files."""

    def __init__(self, *digests: str, files: Sequence[dict[str, str]] = ()) -> None:
        self.binaries = set(digests)
        self._files = list(files)
        self.runner = SimpleNamespace(worker=self, device=SimpleNamespace(name="rocm"))

    def request(self, operation: str, message: Any, expect: str, *, timeout_s: float) -> dict[str, Any]:
        return {"files": self._files}


def test_only_binaries_that_were_launched_count() -> None:
    def binary(kernel: str, digest: str, text: str) -> dict[str, str]:
        data = base64.b64encode(text.encode()).decode()
        return {"data": data, "kernel": kernel, "kind": "amdgcn", "hash": digest}

    mfma, plain = "\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0\n", "\tv_add_f32 v0, v1, v2\n"
    files = [binary("k", "a", mfma), binary("k", "b", plain), binary("decoy", "c", mfma), binary("k", "d", plain)]
    uses = Uses()
    try:
        cache = uses._begun(read_sent(files), "")
        of = uses._of_launched(Told("b"), cache, ["k"])  # type: ignore[arg-type]
        assert [(use.kernel, use.classes) for use in of.kernels] == [("k", ())] and (of.why, of.complete) == ("", True)
        of = uses._of_launched(Told("b", "d"), cache, ["k"])  # type: ignore[arg-type]
        assert (len(of.kernels), of.why, of.complete) == (1, "", True)  # one content, made of two things
        of = uses._of_launched(Told(), cache, ["k"])  # type: ignore[arg-type]
        assert [use.classes for use in of.kernels] == [(("mma", 1),)] and "of several binaries of a name" in of.why
        of = uses._of_launched(Told("b", "gone"), cache, ["k"])  # type: ignore[arg-type]
        assert (of.why, of.complete) == ("1 binaries that were launched are not there", False)
        of = uses._of_launched(Told(), cache, ["other"])  # type: ignore[arg-type]
        assert (of.kernels, of.why, of.complete) == ((), "there is no binary of a launched kernel", False)
    finally:
        uses.close()


def test_what_was_compiled_while_checks_called_at_other_sizes_is_read_too() -> None:
    """On an H100 a product was compiled anew for sizes that no multiple of 16 is, after its binaries had been read."""

    def binary(digest: str, text: str) -> dict[str, str]:
        data = base64.b64encode(text.encode()).decode()
        return {"data": data, "kernel": "k", "kind": "amdgcn", "hash": digest}

    first, second = binary("a", "\tv_add_f32 v0, v1, v2\n"), binary("b", "\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1]\n")
    uses = Uses()
    try:
        cache = uses._begun(read_sent([first]), "")
        loaded = Told("a", "b", "c", files=[first, second, first | {"hash": "c"}])
        of = uses._of_launched(loaded, cache, ["k"])  # type: ignore[arg-type]
        assert (of.why, of.complete) == ("", True)
        assert [use.classes for use in of.kernels] == [(("mma", 1),)]
    finally:
        uses.close()


@pytest.mark.slow
def test_what_is_not_looked_at_is_said(judge: Judge) -> None:
    pytest.importorskip("numba", reason="Numba is not installed")
    text = """
import numba
import numpy as np
import torch


@numba.njit
def kernel(x, out):
    for i in range(x.size):
        out[i] = max(x[i], np.float32(0))


def relu(x):
    flat = x.contiguous().reshape(-1)
    out = torch.empty_like(flat)
    kernel(flat.numpy(), out.numpy())
    return out.reshape(x.shape)
"""
    protocol = Protocol(
        tier="quick", dtypes=("float32",), directions=("forward",), distributions=("standard",), timed=False
    )
    verdict = judge.check(Candidate(files=(("relu.py", text),), language="numba"), tasks.find("relu"), protocol)
    [finding] = [f for f in verdict.findings if f.check == "uses"]
    assert (finding.evidence.kernels, finding.evidence.complete) == ((), False)
    assert finding.message == "what the compiler of numba makes is not looked at"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "said"), [(UsageError("no Landlock"), "confined: no Landlock"), (OSError("full"), "full")]
)
def test_a_machine_that_cannot_disassemble_says_so_and_judges(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_args: Any, **_keywords: Any) -> None:
        raise error

    monkeypatch.setattr(judge._uses, "_printed", {})
    monkeypatch.setattr("kerneleval.judge.binaries.uses.printed", fail)
    verdict = judged(judge, WIDE)
    [finding] = [f for f in verdict.findings if f.check == "uses"]
    assert verdict.verdict == "passed" and said in finding.message
    assert (finding.evidence.kernels, finding.evidence.complete) == ((), False)
