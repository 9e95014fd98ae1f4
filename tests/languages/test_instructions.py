"""Classes of instructions in text as disassemblers print it."""

from __future__ import annotations

import random
import time

import pytest

from kerneleval.languages.binaries.instructions import (
    CLASSES,
    kernels_reached,
    listing,
    merged,
    reached,
    read_code,
    sass_functions,
)
from kerneleval.records import ISAS, CodeUse, InstructionLine, from_plain, to_plain

SASS = """
        /*0010*/                   LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64] ;   /* 0x000000040205 */
                                                                                  /* 0x000fe2000f8e00ff */
        /*0020*/              @!P0 LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0030*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0040*/                   HGMMA.64x64x16.F32 R24, gdesc[UR8], R24 ;
        /*0050*/             @UP1  UTMALDG.2D [UR8], [UR6] ;
        /*0060*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0 ;
        /*0070*/                   STL [R1+0x4], R3 ;
        /*0080*/                   UCGABAR_ARV ;
        /*0090*/                   STG.E desc[UR4][R2.64], R8 ;
        /*00a0*/                   IMMA.16816.S8.S8 R8, R4.ROW, R6.COL, R8 ;
        /*00b0*/                   HFMA2.MMA R5, -RZ, RZ, 1.875, 0 ;
        /*00c0*/                   LDSM.16.M88.4 R4, [R8] ;
        /*00d0*/                   SYNCS.EXCH.64 URZ, [UR4], UR6 ;
        /*00e0*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
"""

GCN = """
kernel_with_v_mfma_in_its_name:
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
\tbuffer_load_dword v5, s[4:7], 0 offen lds
\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
\tscratch_store_dword off, v1, s32
\tglobal_store_short v4, v5, s[2:3]
\t.p2align 8
\t; v_mfma_f32_in_a_comment
"""

X86 = """
    91e0:\tpush   %r13
    91e2:\tvmovups (%rdi,%rax,1),%zmm0
    91e9:\tvfmadd231ps (%rsi),%ymm1,%ymm2
    91ef:\tvmovss (%rdi),%xmm0
    91f3:\tvmovups %zmm0,0x40(%rsp)
    91f9:\taddps  %xmm1,%xmm0
    91fc:\tprefetcht0 (%rax)
    91ff:\tvmovntps %zmm0,(%rdx)
    9205:\ttdpbf16ps %tmm0,%tmm1,%tmm2
    920a:\tvaddps %xmm0,%xmm1,%xmm2{%k1}
    9210:\tvmovd %xmm0,(%rdx)
"""

ARM = """
  600:\tldr\tq0, [x0]
  604:\tfmla\tv0.4s, v1.4s, v2.4s
  608:\tld1w\t{z0.s}, p0/z, [x0]
  60c:\tfmopa\tza0.s, p0/m, p1/m, z0.s, z1.s
  610:\tldr\ts0, [x0]
  614:\tprfm\tpldl1keep, [x1]
"""


def test_sass() -> None:
    use = read_code(SASS, "sass", "k")
    assert dict(use.classes) == {
        "mma": 3,
        "wgmma": 1,
        "tcgen05": 1,
        "async copy": 1,
        "ldmatrix": 1,
        "mbarrier": 1,
        "TMA": 1,
        "cluster": 1,
        "spill": 1,
    }
    assert (use.kernel, use.isa, use.instructions) == ("k", "sass", 14)
    assert (use.widest_bytes, use.accesses, use.wide_accesses, use.vectorised) == (16, 3, 2, 2 / 3)
    [mma] = [line for line in use.lines if line.mnemonic == "HMMA.16816.F32"]
    assert (mma.unit, mma.count, mma.line, mma.text) == ("mma", 2, 5, "HMMA.16816.F32 R8, R4, R6, R8")
    assert [line.unit for line in use.lines[:9]] == [name for name, _ in use.classes]  # each class before any twice
    assert read_code("LDG.E.128 R4, [R2] ;\n", "sass").widest_bytes == 16
    assert read_code("LDG.E.U16.CONSTANT R4, [R2] ;\n", "sass").widest_bytes == 2
    nothing = read_code("", "sass")
    assert (nothing.classes, nothing.widest_bytes, nothing.vectorised) == ((), 0, None)


def test_amdgcn() -> None:
    use = read_code(GCN, "amdgcn")
    assert dict(use.classes) == {"mma": 2, "async copy": 1, "spill": 1}
    assert (use.instructions, use.widest_bytes, use.accesses, use.wide_accesses) == (6, 16, 3, 1)
    assert read_code("\tglobal_store_b64 v[0:1], v[2:3], off\n", "amdgcn").widest_bytes == 8
    assert read_code("\tglobal_load_d16_hi_b16 v0, v1, off\n", "amdgcn").widest_bytes == 2


def test_x86() -> None:
    use = read_code(X86, "x86")
    assert dict(use.classes) == {"AMX": 1, "prefetch": 1, "streaming store": 1, "AVX-512": 3, "AVX2": 1, "SSE": 1}
    # the stack is no memory that counts; a scalar access is no wide one
    assert (use.instructions, use.widest_bytes, use.accesses, use.wide_accesses) == (11, 64, 5, 3)


def test_arm() -> None:
    use = read_code(ARM, "arm")
    assert dict(use.classes) == {"SME": 1, "SVE": 1, "NEON": 2, "prefetch": 1}
    assert (use.widest_bytes, use.accesses, use.wide_accesses) == (16, 3, 2)


def test_of_several_binaries_the_greatest_counts() -> None:
    more, less = read_code(SASS, "sass", "k"), read_code("LDG.E.128 R4, [R2] ;\nDMMA.884 R1 ;\n", "sass", "k")
    other = read_code("NOP ;\n", "sass", "a")
    first, second = merged([less, more, other])
    assert (first, second.kernel, second.instructions) == (other, "k", more.instructions)
    assert dict(second.classes)["mma"] == 3 and {line.mnemonic for line in second.lines} >= {
        "DMMA.884",
        "HMMA.16816.F32",
    }
    assert (second.accesses, second.wide_accesses) == (1, 1)
    assert from_plain(CodeUse, to_plain(second)) == second
    assert (
        str(InstructionLine(unit="mma", mnemonic="HMMA", count=2, line=3, text="HMMA R1")) == "2 HMMA (line 3: HMMA R1)"
    )


def test_functions_of_a_listing() -> None:
    text = "code for sm_90\n\t\tFunction : a\n\t.headerflags\nNOP ;\n\t\tFunction : b\nEXIT ;\n"
    assert [(name, read_code(body, "sass").instructions) for name, body in sass_functions(text)] == [("a", 1), ("b", 1)]


HOST = """
DYNAMIC RELOCATION RECORDS
OFFSET           TYPE              VALUE
0000000000081038 R_X86_64_RELATIVE  *ABS*+0x0000000000009100

0000000000009000 <entry>:
    9000:\tcall   90c0 <_Z22__device_stub__Z4onePfPf>
    9005:\tmov    0x77d81(%rip),%rdi        # 81038 <_fini+0x78>
    900c:\tjmp    9200 <helper.cold>

00000000000090c0 <_Z22__device_stub__Z4onePfPf>:
    90c0:\tcall   42e40 <cudaLaunchKernel>

0000000000009100 <_Z3twoPf>:
    9100:\tret

0000000000009200 <helper.cold>:
    9200:\tlea    -0x981(%rip),%rsi        # 8f60 <_ZL5threePf>

0000000000009300 <other>:
    9300:\tcall   9400 <_Z4fourPf>
    9305:\tcall   *(%rax,%rbp,8)

0000000000042e40 <cudaLaunchKernel>:
   42e40:\tcall   *0x10(%rax)
"""


def test_kernels_that_an_entry_point_reaches() -> None:
    kernels = ["_Z4onePf", "_Z3twoPf", "_Z5threePf", "_Z4fourPf", "_Z4oneP"]
    assert kernels_reached(listing(HOST), ["entry"], kernels) == (frozenset(kernels[:3]), True)
    assert kernels_reached(listing(HOST), ["other"], kernels) == (
        frozenset(kernels),
        False,
    )  # through a pointer: any of them
    assert kernels_reached(listing(HOST), ["gone"], kernels) == (frozenset(kernels), False)
    assert kernels_reached(listing(""), ["entry"], kernels) == (frozenset(kernels), False)
    assert not reached(listing(HOST), ["other"]).all_known and reached(listing(HOST), ["entry"]).all_known


@pytest.mark.parametrize("isa", ISAS)
def test_hostile_text_ends_and_raises_nothing(isa: str) -> None:
    assert isa in CLASSES
    draw = random.Random(7)
    long = "    10:\t" + "buffer_load_a" * 50_000 + "\n" + "\tbuffer_load_" + "a " * 100_000 + "\n"
    texts = [long, "@" * 100_000, "/*00*/" * 30_000, "\x00\ud800" * 1000, "{" * 100_000 + "A", "\n" * 300_000]
    for number in range(60):
        pieces = [draw.choice((SASS, GCN, X86, ARM, "\t", ";", "/*", "<a>:", "%zmm", "\x00", "{")) for _ in range(20)]
        texts.append("".join(piece[draw.randrange(len(piece)) :] for piece in pieces) + str(number))
    for text in texts:
        use = read_code(text, isa)
        assert use.instructions <= text.count("\n") + 1 and len(use.lines) <= 16
        reached(listing(text), ["a"])
        list(sass_functions(text))


@pytest.mark.parametrize("name", ["<" * 50_000 + "+x", "RELATIVE" * 6_000, "JUMP_SLO" * 6_000, "_64" * 16_000])
def test_names_that_candidates_choose_cost_no_time(name: str) -> None:
    text = f"{HOST}\n0000000000090000 <{name}>:\n   90000:\tcall   90000 <{name}>\n00 {name}\n00 R_X86_64_{name} x\n"
    began = time.process_time()
    reached(listing(text), ["entry", name])
    assert time.process_time() - began < 2
