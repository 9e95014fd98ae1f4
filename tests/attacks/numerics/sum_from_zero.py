# specimen: class=unstable_formula task=logsumexp device=any stage=correctness reason=wrong_output directions=forward categories=tiny,small dtypes=float32
"""The maximum starts at zero: rows far below it give log(0)."""
import torch
def logsumexp(x):
    m = x.amax(-1, keepdim=True).clamp(min=0)
    return (m + torch.log(torch.exp(x - m).sum(-1, keepdim=True)))[:, 0]
