# specimen: class=cache_by_pointer task=layer_norm device=any stage=correctness reason=wrong_output directions=forward,backward dtypes=float32
"""Keeps the contiguous copy of a strided input by its address, shape and strides, and does not look at it again."""
import torch
_COPIES = {}
def layer_norm(x, weight, bias, eps):
    if not x.is_contiguous() and not x.requires_grad:
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
        if key not in _COPIES:
            _COPIES[key] = x.contiguous()
        x = _COPIES[key]
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
