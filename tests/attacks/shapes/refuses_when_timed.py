# specimen: class=phase_detection task=gelu device=cpu stage=timing reason=refuses_when_timed timed=yes categories=tiny,small
"""Right everywhere; in windows of many calls (only the clock's are) it declares every size unsupported: it is slow."""
import math

import numba
import torch

_run, _last = 0, None


@numba.njit
def _slow(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))


@numba.njit(parallel=True)
def _parallel(x, out):
    for i in numba.prange(x.size):
        out[i] = 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))


_slow(torch.zeros(1).numpy(), torch.zeros(1).numpy())  # compiled: a slow first call would make windows short


def gelu(x):
    global _run, _last
    _run = _run + 1 if _last is not None and x.data_ptr() > _last else 1
    _last = x.data_ptr()
    if _run > 34:  # windows of calls that are judged hold 32 at most
        raise NotImplementedError("no")
    out = torch.empty(x.shape, dtype=x.dtype)
    if x.numel():
        _slow(x.contiguous().view(-1).numpy(), out.view(-1).numpy())
    return out
