# specimen: class=cache_by_pointer task=exp device=any stage=correctness reason=wrong_output categories=small,medium dtypes=float32,bfloat16 tier=standard
"""Contiguous copies of slices in half types are kept by address. Slices come with small numbers first, of which bfloat16
has the same exponentials in any order.
"""
import torch
_COPIES = {}
def exp(x):
    if not x.is_contiguous() and x.stride(-1) == 1 and 0 not in x.stride() and x.dtype != torch.float32:
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
        if key not in _COPIES:
            _COPIES[key] = x.contiguous()
        x = _COPIES[key]
    return torch.exp(x)
