"""Verdicts on OpenCL candidates: honest ones pass, every other ends as its own failure and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.languages.common import opencl_runtime
from kerneleval.pipeline import check
from kerneleval.records import TrackEvidence, Verdict
from kerneleval.worker import waiting

if reason := opencl_runtime.unusable():
    pytest.skip(f"not run: {reason}", allow_module_level=True)

HEAD = "// kerneleval-launch: gelu_float32 global=cdiv(M*N,64)*64 local=64\n"
GELU = "0.5f * x[i] * (1.0f + erf(x[i] * 0.70710678f))"


def kernel(body: str, given: str = "global const float *x, global float *out") -> str:
    return (
        f"kernel void gelu_float32({given}, long M, long N) {{\n"
        f"    const long i = get_global_id(0);\n    if (i < M * N) {{ {body} }}\n}}\n"
    )


@pytest.fixture(scope="module")
def opencl(new_cache: Callable[[], Path]) -> Iterator[Judge]:
    with Judge("opencl", new_cache()) as judge:
        yield judge


@pytest.fixture
def judged(opencl: Judge, tmp_path: Path) -> Callable[..., Verdict]:
    def run(text: str, name: str = "gelu.cl", **keywords: object) -> Verdict:
        (tmp_path / name).write_text(text)
        wanted = {"tier": "quick", "dtypes": ("float32",), "directions": ("forward",), "categories": ("tiny", "small")}
        return check(tmp_path / name, "gelu", judge=opencl, **(wanted | keywords))  # type: ignore[arg-type]

    return run


def test_an_honest_kernel_passes_on_the_custom_track(judged: Callable[..., Verdict]) -> None:
    verdict = judged(HEAD + kernel(f"out[i] = {GELU};"))
    assert (verdict.verdict, verdict.reason) == ("passed", "ok"), verdict.message
    assert verdict.track == "custom"
    assert verdict.speedup is not None
    assert verdict.machine.device == "opencl"
    track = next(f.evidence for f in verdict.findings if isinstance(f.evidence, TrackEvidence))
    assert track.launches["gelu_float32"] > 0
    assert track.ghost == "needed"


def test_it_is_contained_as_on_the_cpu(judged: Callable[..., Verdict], judge: Judge, tmp_path: Path) -> None:
    little = {"directions": ("forward",), "categories": ("tiny",), "dtypes": ("float32",), "timed": False}
    on_opencl = judged(HEAD + kernel(f"out[i] = {GELU};"), **little)
    (tmp_path / "gelu.py").write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    on_cpu = check(tmp_path / "gelu.py", "gelu", judge=judge, tier="quick", **little)
    assert on_opencl.trust == on_cpu.trust
    assert "seccomp" in on_opencl.trust.layers or on_opencl.trust.missing


WITHOUT_X = HEAD + kernel("out[i] = 1;", "global float *out")
KEPT_X = HEAD + kernel(f"out[i] = {GELU}; ((global float *)x)[i] = 0;")
FAR = HEAD + kernel("for (long k = 0; k < (1L << 40); k += 4096) out[i + k] = 1;")
EARLY = (
    HEAD
    + kernel(f"out[i] = {GELU};")
    + ("__attribute__((constructor)) void early(void) { *(volatile private int *)8 = 1; }\n")
)


@pytest.mark.slow(every=6)
@pytest.mark.parametrize(
    ("text", "stage", "reason", "said"),
    [
        (HEAD + kernel("out[i] = max(x[i], 0.0f);"), "correctness", "wrong_output", ""),
        (HEAD + kernel("if (i) out[i] = 1;"), "correctness", "wrong_output", ""),
        (HEAD + kernel("out[i] = gelu_of(x[i]);"), "build", "build_error", "candidate.cl:4:"),
        (kernel(f"out[i] = {GELU};"), "build", "build_error", "no kerneleval-launch line"),
        (HEAD.replace("gelu", "other") + kernel(""), "build", "build_error", "kernels there are gelu_float32"),
        (HEAD + kernel('__asm__("nop");'), "build", "build_error", "inline_assembly_is_not_taken"),
        (WITHOUT_X, "call", "exception", "takes 3 arguments"),
        (KEPT_X, "honesty", "input_mutation", ""),
        (HEAD + kernel("((volatile global float *)16)[0] = 1;"), "call", "crash", "SIGSEGV"),
        (FAR, "call", "crash", "SIG"),
        (EARLY, "call", "crash", "SIG"),
    ],
)
def test_what_is_wrong_is_named(judged: Callable[..., Verdict], text: str, stage: str, reason: str, said: str) -> None:
    verdict = judged(text, fail_fast=True)
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", stage, reason), verdict.message
    assert said in verdict.message


def test_the_next_candidate_is_judged_after_a_crash(judged: Callable[..., Verdict]) -> None:
    assert judged(HEAD + kernel("((volatile global float *)16)[0] = 1;"), fail_fast=True).reason == "crash"
    assert judged(HEAD + kernel(f"out[i] = {GELU};"), timed=False).verdict == "passed"


def test_a_kernel_without_end_times_out(judged: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "CALLS_S", 2.0)
    verdict = judged(HEAD + kernel("volatile int on = 1; while (on) out[i] = x[i];"))
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "call", "timeout"), verdict.message


def test_memory_is_limited(judged: Callable[..., Verdict]) -> None:
    text = HEAD + f"// kerneleval-scratch: gelu_float32 {1 << 45}\n"
    verdict = judged(
        text + kernel(f"out[i] = {GELU}; scratch[i] = 1;", "global float *x, global float *out, global float *scratch")
    )
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "call", "exception"), verdict.message


def test_an_answer_kept_from_the_call_before_is_wrong(judged: Callable[..., Verdict]) -> None:
    """A kernel keeps nothing by itself; scratch memory may hold what was there before, and it is not the answer."""
    text = HEAD + "// kerneleval-scratch: gelu_float32 4*M*N\n"
    body = f"out[i] = kept[i] != 0 && isfinite(kept[i]) ? kept[i] : {GELU}; kept[i] = out[i];"
    verdict = judged(text + kernel(body, "global const float *x, global float *out, global float *kept"))
    assert verdict.verdict == "failed", "by chance, memory that is fresh every time makes this kernel right"


def test_what_the_source_looks_like_is_told(judged: Callable[..., Verdict]) -> None:
    text = "int system(constant char *command);\n"
    verdict = judged(HEAD + text + kernel('out[i] = system("ls");'))
    assert (verdict.stage, verdict.reason) == ("build", "build_error"), verdict.message
    assert "system" in verdict.message
    assert [f.evidence["rule"] for f in verdict.findings if f.check == "static"] == ["processes"]


def test_pytorch_candidates_are_refused_there(judged: Callable[..., Verdict]) -> None:
    source = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"
    verdict = judged(source, "gelu.py", allow=("custom", "mixed", "library"))
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "load", "load_error")
    assert "do not run on device 'opencl'" in verdict.message
