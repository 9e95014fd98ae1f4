"""Chains of multiply-adds that do not depend on one another, in Triton: imported only where Triton compiles."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def chains(start, constants, out, rounds, BLOCK: tl.constexpr, UNROLL: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """``value = value * factor + addend``, ``rounds`` times ``UNROLL``, for ``BLOCK`` numbers a program.

    What the numbers and constants are is read from memory, so that no compiler can know it. Of half types it makes
    instructions for two numbers (``fma.rn.f16x2``, ``v_pk_fma_f16``), where there are such.
    """
    lanes = tl.arange(0, BLOCK)
    value = tl.load(start + lanes)
    by, plus = tl.zeros_like(value) + tl.load(constants), tl.zeros_like(value) + tl.load(constants + 1)
    for _ in range(rounds):
        for _ in tl.static_range(UNROLL):
            value = tl.fma(value, by, plus)
    tl.store(out + tl.program_id(0) * BLOCK + lanes, value)
