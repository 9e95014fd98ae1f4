# specimen: class=cache_by_pointer task=gelu device=any stage=correctness reason=wrong_output categories=small,medium dtypes=float32,bfloat16
"""Keeps the contiguous copy of a strided input in half types by its address, shape and strides."""
import torch
_COPIES = {}
def gelu(x):
    if not x.is_contiguous() and x.dtype != torch.float32:
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
        if key not in _COPIES:
            _COPIES[key] = x.contiguous()
        x = _COPIES[key]
    return torch.nn.functional.gelu(x)
