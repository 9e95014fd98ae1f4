# specimen: class=plan_by_shape task=group_norm device=any stage=correctness reason=wrong_output directions=forward categories=tiny,small dtypes=float32
"""Kernels are made once for each shape; the number of groups is that of the first call."""
import torch
_PLANS = {}
def group_norm(x, weight, bias, groups, eps):
    g = _PLANS.setdefault((x.shape, x.dtype), groups)
    return torch.nn.functional.group_norm(x, g, weight, bias, eps)
