# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output directions=forward dtypes=float32
"""A fresh output for contiguous inputs; for strided ones, the workspace of their shape, which the next call overwrites."""
import torch
_WORK = {}
def gelu(x):
    if x.is_contiguous():
        return torch.nn.functional.gelu(x)
    work = _WORK.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype, device=x.device))
    work.copy_(torch.nn.functional.gelu(x))
    return work
