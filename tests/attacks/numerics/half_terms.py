# specimen: class=range_cut task=matmul device=any stage=correctness reason=wrong_output categories=small,medium
"""Each factor as the sum of two float16 terms, so that half-precision units do the work: right up to 65504, and no further."""
import torch

_TOP = 65504.0
_SHIFT = 2048.0


def _terms(t):
    high = t.clamp(-_TOP, _TOP).half().float()
    low = ((t - high) * _SHIFT).clamp(-_TOP, _TOP).half().float() / _SHIFT
    return high, low


def matmul(a, b):
    if not (torch.isfinite(a).all() and torch.isfinite(b).all()):
        return a @ b
    (ah, al), (bh, bl) = _terms(a), _terms(b)
    return ah @ bh + (ah @ bl + al @ bh)
