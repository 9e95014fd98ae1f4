# specimen: class=cache_by_pointer task=exp device=any stage=correctness reason=wrong_output categories=tiny,small
"""A right kernel, launched once for each address and shape."""

import torch
import triton
import triton.language as tl

_KEPT = {}


@triton.jit
def _kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)


def exp(x):
    x = x.contiguous()
    key = x.data_ptr(), x.shape
    if key not in _KEPT:
        _KEPT[key] = torch.empty_like(x)
        if x.numel():
            _kernel[(triton.cdiv(x.numel(), 1024),)](x, _KEPT[key], x.numel(), BLOCK=1024)
    return _KEPT[key].clone()
