"""The Standard Kernel Rubric: levels from what is there, with the line that shows it, or none."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from tests.scores.score_builders import rows, timing
from tests.store import store_builders as stored

from kerneleval import tasks
from kerneleval.analysis import rubric
from kerneleval.analysis.features import marks_of_code, read_sources
from kerneleval.analysis.rubric import Seen, profiles, rate, seen
from kerneleval.judge.binaries.uses import finding
from kerneleval.languages.binaries.instructions import read_code
from kerneleval.records import (
    Candidate,
    CodeUse,
    Finding,
    Origin,
    TrackEvidence,
    UsageError,
    UsesEvidence,
    from_plain,
    to_plain,
)

LIBRARY = {name: tasks.find(name) for name in ("gelu", "layer_norm", "matmul")}


def made(text, path="candidate.py", language="triton"):
    return Candidate(files=((path, text),), language=language)


def graded(candidate=None, *, results=None, saw=None, task="gelu", **origin):
    """The grades of one attempt of generator ``g``."""
    cells = results if results is not None else rows(task, [1.0, 1.0])
    hash_ = candidate.hash if candidate else "h"
    cells = [
        dataclasses.replace(r, candidate=hash_, origin=Origin(**origin)) if r.generator == "g" else r for r in cells
    ]
    sources = {hash_: candidate} if candidate else {}
    verdicts = {("g", task, 0): saw} if saw else {}
    return rate(cells, LIBRARY, sources, verdicts)[0].grades


def level_and_places(candidate, axis, saw=None):
    grade = graded(candidate, saw=saw or Seen(track="custom"))[axis]
    return grade.level, [(mark.line, mark.what) for mark in grade.marks]


# --------------------------------------------------------------------------------------------------------------------
# K
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "level"), [("gelu", 1), ("layer_norm", 2), ("matmul", 3)])
def test_complexity_is_the_tasks(task, level):
    assert graded(task=task)["K"].level == level


def test_a_task_that_is_gone_has_no_complexity():
    grade = graded(task="gone")["K"]
    assert (grade.level, grade.reason) == (None, "the task is not at hand")


# --------------------------------------------------------------------------------------------------------------------
# R and H: sources
# --------------------------------------------------------------------------------------------------------------------

TRITON = "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    {}\ndef run(x):\n    k[(1,)](x{})\n"


def triton(body, launch=""):
    return made(TRITON.format(body, launch))


def cuda(body, before=""):
    return made(f"{before}\n__global__ void k(float* x) {{\n{body}\n}}\n", "candidate.cu", "cuda")


@pytest.mark.parametrize(
    ("candidate", "level", "place"),
    [
        (made("import torch\ndef run(x):\n    return torch.mm(x, x)\n", language="torch"), 1, (3, "torch.mm")),
        (triton("tl.store(x, 1)"), 2, (3, "triton.jit")),
        (made("import numba as nb\n@nb.njit\ndef k(x):\n    return x\n", language="numba"), 2, (2, "numba.njit")),
        (made("from numba import cuda\n@cuda.jit\ndef k(x):\n    pass\n"), 3, (2, "numba.cuda.jit")),
        (made("from triton.experimental import gluon\n@gluon.jit\ndef k(x):\n    pass\n"), 3,
         (2, "triton.experimental.gluon.jit")),
        (cuda("cute::copy(a, b);"), 3, (3, "cute::copy")),
        (made("void run(float* x) {\n for (int i = 0; i < 9; ++i) x[i] = 0;\n}", "c.cpp", "cpp"), 3, (2, "for")),
        (cuda("x[threadIdx.x] = 0;"), 4, (2, "__global__")),
        (cuda('cute::copy(a, b);\nasm volatile("cp.async.commit_group;");'), 4, (4, "asm")),
        (made("void run(float* x) {\n _mm256_storeu_ps(x, v);\n}", "c.cpp", "cpp"), 4, (2, "_mm256_storeu_ps")),
        (made("s = r'''\n__global__ void k() {}\n'''\ndef run(x):\n    pass\n", language="torch"), 4,
         (2, "__global__")),
    ],
)  # fmt: skip
def test_representation_level(candidate, level, place):
    found, places = level_and_places(candidate, "R")
    assert found == level and place in places


@pytest.mark.parametrize(
    ("candidate", "level", "place"),
    [
        (triton("tl.store(x, tl.load(x))"), 1, None),
        (cuda("__shared__ float s[32]; s[threadIdx.x] = x[0]; __syncthreads();"), 1, None),
        (triton("tl.store(x, tl.dot(a, b))"), 2, (5, "triton.language.dot")),
        (cuda("wmma::mma_sync(c, a, b, c);"), 2, (3, "wmma::mma_sync")),
        (cuda('asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0};" : "=f"(d));'), 2,
         (3, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")),
        (cuda("d = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0);"), 2,
         (3, "__builtin_amdgcn_mfma_f32_32x32x8f16")),
        (triton("tl.store(x, tl.dot(a, b))", ", num_stages=4"), 3, (7, "num_stages=4 beside tl.dot")),
        (triton("tl.store(x, 1)", ", num_stages=4"), 1, None),
        (cuda('asm volatile("{\\n\\t"\n"cp.async.cg.shared.global [%0], [%1], 16;\\n}" :: "r"(s));'), 3,
         (4, "cp.async.cg.shared.global")),
        (cuda("__pipeline_memcpy_async(s, x, 16);"), 3, (3, "__pipeline_memcpy_async")),
        (triton("tl.make_tensor_descriptor(x, [1], [1], [1])"), 4, (5, "triton.language.make_tensor_descriptor")),
        (triton("for i in tl.range(3, warp_specialize=True): pass"), 4, (5, "warp_specialize=True")),
        (triton("tl.store(x, 1)", ", num_ctas=2"), 4, (7, "num_ctas=2")),
        (triton('tl.inline_asm_elementwise("wgmma.fence.sync.aligned;", "", [], tl.int32, True, 1)'), 4,
         (5, "wgmma.fence.sync.aligned")),
        (cuda('asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global [%0];");'), 4,
         (3, "cp.async.bulk.tensor.2d.shared::cluster.global")),
        (cuda('asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0];");'), 4,
         (3, "tcgen05.mma.cta_group::1.kind::f16")),
        (cuda("x[0] = 0;", "__cluster_dims__(2, 1, 1)"), 4, (1, "__cluster_dims__")),
    ],
)  # fmt: skip
def test_hardware_level(candidate, level, place):
    found, places = level_and_places(candidate, "H")
    assert found == level
    assert (place in places) if place else not places


def test_what_is_no_code_proves_nothing():
    text = """
    // wgmma.mma_async
    #if 0
    __cluster_dims__(2) asm("tcgen05.mma x;");
    #endif
    const char* claim = "uses wgmma.mma_async, cp.async.bulk and tcgen05.mma";
    asm volatile("" ::: "memory");
    printf("mma.sync.aligned");
    asm("// wgmma.mma_async.sync.aligned\\n");
    """
    assert level_and_places(cuda(text), "H") == (1, [])
    assert [what for _, what in level_and_places(cuda(text), "R")[1]] == ["__global__"]
    doc = made('"""wgmma, tl.make_tensor_descriptor."""\n# tl.dot\n' + TRITON.format("tl.store(x, 'tl.dot')", ""))
    assert level_and_places(doc, "H") == (1, [])


DECOY = (
    "import triton\nimport triton.language as tl\n"
    "@triton.jit\ndef part(a):\n    return tl.dot(a, a)\n"
    "@triton.jit\ndef real(x):\n    tl.store(x, part(x))\n"
    "@triton.jit\ndef decoy(x):\n    tl.make_tensor_descriptor(x, [1], [1], [1])\n"
    "def run(x):\n    real[(1,)](x)\n"
)


def test_kernels_that_are_never_launched_prove_nothing():
    assert level_and_places(made(DECOY), "H")[0] == 4  # nobody saw what it launches
    watched = graded(made(DECOY), saw=Seen(track="custom", launched=("real",)))
    assert watched["H"].level == 2 and [m.what for m in watched["H"].marks] == ["triton.language.dot"]
    assert "not launched, so not counted: decoy" in watched["H"].reason
    assert watched["R"].level == 2


def test_a_candidate_that_a_library_computes_is_composition_whatever_it_says():
    grades = graded(made(DECOY), saw=Seen(track="library"))
    assert grades["R"].level == 1 and grades["R"].reason == "the judge saw no arithmetic in kernels of its own"
    assert (grades["H"].level, grades["H"].reason) == (None, "all arithmetic is a library's")


def test_mixed_and_unseen_are_said():
    assert "library kernels beside its own" in graded(made(DECOY), saw=Seen(track="mixed"))["R"].reason
    assert "it was not seen running" in graded(made(DECOY))["R"].reason


def code(text: str, kernel: str = "k", isa: str = "sass") -> CodeUse:
    return read_code(text, isa, kernel)


WGMMA = (
    "        /*0000*/  HGMMA.64x64x16.F32 R24, gdesc[UR8], R24 ;\n        /*0010*/  HGMMA.64x64x16.F32 R24, R8, R24 ;\n"
)
MMA = "        /*0000*/  HMMA.16816.F32 R4, R8 ;\n"
TMA = "        /*0000*/  UTMALDG.2D [UR8], [UR6] ;\n"
PLAIN = "        /*0000*/  FFMA R4, R8, R9, R10 ;\n"


def test_compiled_code_has_levels():
    sass = "/*0010*/ HMMA.16816.F32 R4, R8 ;\n LDGSTS.E.BYPASS.128 [R1], [R2.64] ;\n" + TMA
    assert [(m.level, m.file, m.line) for m in marks_of_code([code(sass)])] == [
        (4, "k (sass)", 3),
        (3, "k (sass)", 2),
        (2, "k (sass)", 1),
    ]
    gcn = code("\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], 0", isa="amdgcn")
    assert [m.level for m in marks_of_code([gcn])] == [2]
    assert marks_of_code([code(PLAIN)]) == ()
    zmm = code("  10:\tvmulps %zmm0,%zmm1,%zmm2\n", isa="x86")
    assert zmm.classes == (("AVX-512", 1),) and marks_of_code([zmm]) == ()  # what g++ makes of any loop


def test_what_a_compiler_chose_is_told_and_no_level():
    """The rubric: "explicitly targets"; of high-level DSLs specialisation is "delegated to the compiler"."""
    grade = graded(triton("tl.dot(x, x)"), saw=Seen(track="custom", compiled=(code(WGMMA),)))["H"]
    assert grade.level == 2
    assert "compiled: 2 HGMMA.64x64x16.F32 (wgmma), as its compiler chose" in grade.reason
    assert [(m.file, m.line) for m in grade.marks][-1] == ("k (sass)", 1)
    plain = graded(triton("tl.store(x, 1)"), saw=Seen(track="custom", compiled=(code(PLAIN),)))["H"]
    assert (plain.level, "no instruction of a special unit" in plain.reason) == (1, True)


@pytest.mark.parametrize(
    ("body", "text", "level"),
    [
        ("tl.make_tensor_descriptor(x, [1], [1], [1])", TMA, 4),
        ("tl.make_tensor_descriptor(x, [1], [1], [1])", PLAIN, 1),
        ("tl.make_tensor_descriptor(x, [1], [1], [1])\n    tl.dot(x, x)", MMA, 2),
        ("tl.dot(x, x)", MMA, 2),
        ("tl.dot(x, x)", PLAIN, 1),  # fp32 without TF32
    ],
)
def test_compiled_code_decides_whether_a_source_means_it(body: str, text: str, level: int):
    grade = graded(triton(body), saw=Seen(track="custom", compiled=(code(text),)))["H"]
    assert grade.level == level
    asked = 4 if "descriptor" in body else 2
    assert ("not in the compiled code, so not counted: triton.language." in grade.reason) == (level < asked)
    partly = graded(triton(body), saw=Seen(track="custom", compiled=(code(text),), complete=False))["H"]
    assert partly.level == asked  # what is missing may be in what was not looked at


def test_of_cuda_the_compiled_code_is_enough_and_decides():
    dead = made(
        '#ifdef NEVER\n__device__ void f() { asm volatile("wgmma.fence.sync.aligned;"); }\n#endif\n'
        "__global__ void k(float *x) { x[0] = 1; }\n",
        "k.cu",
        "cuda",
    )
    assert graded(dead, saw=Seen(track="custom"))["H"].level == 4  # nobody looked
    grade = graded(dead, saw=Seen(track="custom", compiled=(code(PLAIN),)))["H"]
    assert (grade.level, "not in the compiled code, so not counted: wgmma.fence" in grade.reason) == (1, True)
    hidden = made('#include "mma.cuh"\n__global__ void k(float *x) { product(x); }\n', "k.cu", "cuda")
    grade = graded(hidden, saw=Seen(track="custom", compiled=(code(WGMMA),)))["H"]
    assert (grade.level, grade.marks[0].what) == (4, "2 HGMMA.64x64x16.F32")


def test_amx_in_dead_code_has_no_level():
    text = (
        "static void dead() { _tile_loadd(0, 0, 0); }\n"
        'extern "C" int f(float *x, long n) { for (long i = 0; i < n; i++) x[i] = 1; return 0; }\n'
    )
    loop = code("  10:\tvmovups %zmm0,(%rdi)\n", isa="x86")
    saw = Seen(track="custom", compiled=(loop,))
    grades = graded(made(text, "f.cpp", "cpp"), saw=saw)
    assert (grades["R"].level, grades["H"].level) == (3, 1)
    assert "not in the compiled code, so not counted: _tile_loadd" in grades["R"].reason
    tiles = dataclasses.replace(saw, compiled=(code("  10:\ttileloadd (%rdi,%rsi,1),%tmm0\n", isa="x86"),))
    grades = graded(made(text, "f.cpp", "cpp"), saw=tiles)
    assert (grades["R"].level, grades["H"].level) == (4, 4)


@pytest.mark.parametrize(
    ("intrinsic", "line", "levels"),
    [
        ("_mm512_add_ps(a, b)", "vaddps %zmm0,%zmm1,%zmm2", (4, 2)),
        ("_mm512_add_ps(a, b)", "vaddps %ymm0,%ymm1,%ymm2", (3, 1)),
        ("_mm256_add_ps(a, b)", "vaddps %ymm0,%ymm1,%ymm2", (4, 2)),
        ("_mm256_stream_ps(p, a)", "vmovntps %ymm0,(%rdi)", (4, 3)),
        ("_mm_prefetch(p, 1)", "prefetcht0 (%rdi)", (4, 3)),
        ("_mm_add_ps(a, b)", "addps %xmm0,%xmm1", (4, 2)),
        ("_mm_sqrt_ss(a)", "sqrtss %xmm0,%xmm1", (4, 1)),
    ],
)
def test_intrinsics_need_instructions_of_their_width(intrinsic: str, line: str, levels: tuple[int, int]):
    text = f'extern "C" int f(float *p) {{ for (;;) {{ {intrinsic}; }} }}\n'
    saw = Seen(track="custom", compiled=(code(f"  10:\t{line}\n", isa="x86"),))
    grades = graded(made(text, "f.cpp", "cpp"), saw=saw)
    assert (grades["R"].level, grades["H"].level) == levels, grades


def test_what_cannot_be_read_has_no_level():
    for text in ("def f(:\n", "x = 1\n" * 60000):
        grades = graded(made(text), saw=Seen(track="custom"))
        assert grades["R"].level is None and "not read: " in grades["R"].reason
        assert grades["H"].level is None
    assert graded()["R"].reason == "the source is not in the store"


def test_a_verdict_tells_track_launches_and_compiled_code():
    case = stored.case("gelu")
    verdict = stored.verdict("gelu", stored.candidate("gelu"), (stored.passed(case),), track="mixed")
    use = code(WGMMA)
    stored_back = from_plain(
        Finding, json.loads(json.dumps(to_plain(finding(UsesEvidence(kernels=(use,), complete=True)))))
    )
    launched = TrackEvidence(track="mixed", launches={"k": 2, "l": 1})
    findings = (Finding(check="track", level="info", message="", evidence=launched), stored_back)
    found = seen(dataclasses.replace(verdict, findings=findings))
    assert found == Seen(track="mixed", launched=("k", "l"), compiled=(use,))
    for broken in (
        {"kernels": 7},
        {"kernels": [7, {}, {"kernel": 1, "isa": "x"}, {"kernel": "k", "isa": "sass", "classes": 1}]},
    ):
        told = {"check": "uses", "level": "info", "message": "", "complete": True} | broken
        findings = (from_plain(Finding, told),)
        found = seen(dataclasses.replace(verdict, findings=findings))
        assert (found.compiled, found.complete) == ((), False)


@pytest.mark.slow
def test_reading_long_hostile_text_ends():
    for text in ("asm(" * 60000, '"' * 200000, "#if 0\n" * 40000, "for(" * 60000, 'asm("a.b;");\n' * 18000):
        assert read_sources(made(text, "candidate.cu", "cuda")).unread == ""


# --------------------------------------------------------------------------------------------------------------------
# P
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speedup", "level"),
    [(3.0, 4), (1.0, 4), (0.995, 4), (0.96, 3), (0.91, 3), (0.88, 2), (0.52, 2), (0.48, 1), (0.01, 1)],
)
def test_performance_against_the_baseline(speedup, level):
    """The builder's noise floor is 1 %."""
    grade = graded(results=rows("gelu", [speedup, speedup]))["P"]
    assert grade.level == level and f"{speedup:.2f} x the speed of the best known (the baseline)" in grade.reason


def test_the_best_known_is_the_fastest_right_kernel():
    def other(speed, **more):
        found = rows("gelu", [speed] * 2, generator="other", sample=3)
        return [dataclasses.replace(r, candidate="rival", **more) for r in found]

    mine = rows("gelu", [1.2, 1.2])
    grade = graded(results=mine + other(2.0))["P"]
    assert grade.level == 2 and "0.60 x the speed of the best known (other, sample 3)" in grade.reason
    assert graded(results=mine + other(1.1))["P"].level == 4
    wrong = [*other(2.0)[:1], dataclasses.replace(other(2.0)[1], outcome=rows("t", ["wrong_output"])[0].outcome)]
    assert graded(results=mine + wrong)["P"].level == 4  # fast and wrong is no implementation
    same = [dataclasses.replace(r, candidate="h") for r in other(2.0)]
    assert graded(results=mine + same)["P"].level == 4  # the same source timed again


def test_a_noisy_machine_does_not_make_everything_alike():
    slow = dataclasses.replace(timing(0.6), noise=0.9)
    assert graded(results=rows("gelu", [slow]))["P"].level == 2


def test_an_interval_that_reaches_other_levels_says_so():
    wide = dataclasses.replace(timing(0.8), low=0.4, high=1.6)
    grade = graded(results=rows("gelu", [wide]))["P"]
    assert grade.level == 2 and "[0.40, 1.60]; the interval reaches levels 1 to 4" in grade.reason
    bare = dataclasses.replace(timing(0.8), low=math.nan, high=math.nan)
    assert "no interval" in graded(results=rows("gelu", [bare]))["P"].reason


@pytest.mark.parametrize(
    ("outcomes", "why"), [([1.0, "wrong_output"], "not right"), ([None, None], "right, but not timed")]
)
def test_no_performance_without_a_right_and_timed_kernel(outcomes, why):
    grade = graded(results=rows("gelu", outcomes))["P"]
    assert (grade.level, grade.reason) == (None, why)


# --------------------------------------------------------------------------------------------------------------------
# A
# --------------------------------------------------------------------------------------------------------------------

TWENTY = made("x = 1\n" * 20)


@pytest.mark.parametrize(("edits", "level"), [(0, 4), (1, 3), (2, 3), (3, 2), (10, 2), (11, 1), (400, 1)])
def test_automation_by_the_lines_that_a_human_changed(edits, level):
    grade = graded(TWENTY, model="m", human_edits=edits)["A"]
    assert grade.level == level and grade.reason.startswith("m, ")


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        ({"model": "m"}, "not recorded whether a human changed it"),
        ({"human_edits": 0}, "no model is recorded: who wrote it is not known"),
        ({"model": "m", "human_edits": 0, "parent": "p" * 64}, f"it refines {'p' * 16}, of which nothing is recorded"),
    ],
)
def test_automation_is_never_guessed(origin, why):
    grade = graded(TWENTY, **origin)["A"]
    assert grade.level is None and grade.reason.startswith(why)


@pytest.mark.parametrize(("edits", "level"), [(0, 4), (5, 2), (-1, None)])
def test_edits_of_what_it_was_made_from_count(edits, level):
    parent = [
        dataclasses.replace(r, candidate="parent", origin=Origin(model="m", human_edits=edits))
        for r in rows("gelu", [1.0], generator="earlier")
    ]
    grade = graded(TWENTY, results=rows("gelu", [1.0]) + parent, model="m", human_edits=0, parent="parent")["A"]
    assert grade.level == level


def test_a_circle_of_parents_ends():
    circle = graded(TWENTY, model="m", human_edits=1, parent=TWENTY.hash)["A"]
    assert circle.level == 3


# --------------------------------------------------------------------------------------------------------------------
# Whole runs
# --------------------------------------------------------------------------------------------------------------------


def test_an_attempt_without_a_candidate_has_its_complexity_alone():
    results = [dataclasses.replace(r, candidate="") for r in rows("gelu", ["generate/missing"])]
    grades = rate(results, LIBRARY, {}, {})[0].grades
    assert grades["K"].level == 1
    assert {grades[axis].reason for axis in "RHPA"} == {"no candidate"}


def test_profiles_count_every_attempt():
    results = []
    for i, task in enumerate(["gelu", "layer_norm", "matmul"] * 2):
        results += rows(task, [(0.4, 0.95, 2.0)[i % 3] if i < 3 else "wrong_output"], sample=i // 3)
    found = {one.axis: one for one in profiles(rate(results, LIBRARY, {"c": triton("pass")}, {}))}
    assert list(found) == list(rubric.AXES)
    assert found["K"].counts == {1: 2, 2: 2, 3: 2, 4: 0} and found["K"].median.value == 2 and found["K"].median.n == 6
    assert found["P"].counts == {1: 1, 2: 0, 3: 1, 4: 1} and found["P"].not_evaluated == {"not right": 3}
    assert found["R"].counts == {1: 0, 2: 6, 3: 0, 4: 0}
    assert math.isnan(found["A"].median.value) and sum(found["A"].not_evaluated.values()) == 6
    for one in found.values():
        assert sum(one.counts.values()) + sum(one.not_evaluated.values()) == 6


def test_the_primary_machine_alone():
    data = rows("gelu", [0.4]) + rows("gelu", [2.0], device="cuda")
    assert rate(data, LIBRARY, {}, {})[0].grades["P"].level == 1
    assert rate(data, LIBRARY, {}, {}, rubric.Setting(primary="cuda"))[0].grades["P"].level == 4


def test_bad_input():
    data = rows("gelu", [1.0])
    with pytest.raises(UsageError, match="comes twice"):
        rate(data + data, LIBRARY, {}, {})
    assert rate([], {}, {}, {}) == [] and profiles([]) == []


@pytest.mark.parametrize(
    ("guidance", "edits", "level"),
    [
        ("none", 0, 4),
        ("", 0, 4),
        ("strategy", 0, 2),
        ("detailed", 0, 1),
        ("strategy", 2, 2),
        ("strategy", 19, 1),
        ("none", 2, 3),
    ],
)
def test_automation_is_the_lower_of_guidance_and_edits(guidance: str, edits: int, level: int) -> None:
    assert graded(TWENTY, model="m", human_edits=edits, guidance=guidance)["A"].level == level
