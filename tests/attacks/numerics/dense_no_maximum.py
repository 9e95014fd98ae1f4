# specimen: class=unstable_formula task=logsumexp device=any stage=correctness reason=wrong_output allow=custom,mixed categories=tiny,small
"""A Triton kernel without the maximum for dense rows, one with it for the others."""
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, out, s0, s1, N, BLOCK: tl.constexpr, CAREFUL: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * s0 + at * s1, mask=at < N, other=-float("inf"))
    if CAREFUL:
        top = tl.max(v, axis=0)
        bad = tl.sum((v != v).to(tl.int32), axis=0)
        safe = tl.where(tl.abs(top) == float("inf"), 0.0, top)
        r = safe + tl.log(tl.sum(tl.exp(v - safe), axis=0))
        r = tl.where(bad > 0, float("nan"), r)
        tl.store(out + row, r)
    else:
        tl.store(out + row, tl.log(tl.sum(tl.exp(v), axis=0)))


def logsumexp(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if x.shape[0]:
        _kernel[(x.shape[0],)](x, out, x.stride(0), x.stride(1), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), CAREFUL=not x.is_contiguous())
    return out
