# specimen: class=global_state task=matmul device=any stage=correctness reason=wrong_output,wrong_dtype
"""Turns every precision switch of torch down; the judge's own process does not see it, the oracle neither."""

import torch

torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
torch.set_default_dtype(torch.bfloat16)


def matmul(a, b):
    return torch.mm(a.to(torch.get_default_dtype()), b.to(torch.get_default_dtype())).float()
