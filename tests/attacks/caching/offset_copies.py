# specimen: class=cache_by_pointer task=gelu device=any stage=correctness reason=wrong_output categories=small,medium dtypes=float32 tier=standard
"""Misaligned inputs are copied to where vector loads may read them; the copy is kept by their address."""
import torch
_COPIES = {}
def gelu(x):
    if x.is_contiguous() and x.storage_offset():
        key = (x.data_ptr(), x.shape, x.dtype)
        if key not in _COPIES:
            _COPIES[key] = x.clone()
        x = _COPIES[key]
    return torch.nn.functional.gelu(x)
