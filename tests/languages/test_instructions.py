"""Classes of instructions in text as disassemblers print it."""

from __future__ import annotations

from kerneleval.languages.crosscompile import count, widest_bytes

SASS = """
        /*0010*/                   LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64] ;   /* 0x000000040205 */
        /*0020*/              @!P0 LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0030*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0040*/                   HGMMA.64x64x16.F32 R24, gdesc[UR8], R24 ;
        /*0050*/             @UP1  UTMALDG.2D [UR8], [UR6] ;
        /*0060*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0 ;
        /*0070*/                   STL [R1+0x4], R3 ;
        /*0080*/                   UCGABAR_ARV ;
        /*0090*/                   STG.E desc[UR4][R2.64], R8 ;
        /*00a0*/                   IMMA.16816.S8.S8 R8, R4.ROW, R6.COL, R8 ;
"""

GCN = """
kernel_with_v_mfma_in_its_name:
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
\tbuffer_load_dword v5, s[4:7], 0 offen lds
\tv_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
\tscratch_store_dword off, v1, s32
\tglobal_store_short v4, v5, s[2:3]
"""


def test_sass() -> None:
    assert count(SASS, amd=False) == {
        "mma": 2,
        "wgmma": 1,
        "tcgen05": 1,
        "async copy": 1,
        "TMA": 1,
        "cluster": 1,
        "spill": 1,
    }
    assert widest_bytes(SASS, amd=False) == 8
    assert widest_bytes("LDG.E.128 R4, [R2] ;\n", amd=False) == 16
    assert widest_bytes("LDG.E.U16.CONSTANT R4, [R2] ;\n", amd=False) == 2
    assert count("", amd=False) == {} and widest_bytes("", amd=False) == 0


def test_amdgcn() -> None:
    assert count(GCN, amd=True) == {"mma": 2, "async copy": 1, "spill": 1}
    assert widest_bytes(GCN, amd=True) == 16
    assert widest_bytes("\tglobal_store_b64 v[0:1], v[2:3], off\n", amd=True) == 8
    assert widest_bytes("\tglobal_load_d16_hi_b16 v0, v1, off\n", amd=True) == 2
