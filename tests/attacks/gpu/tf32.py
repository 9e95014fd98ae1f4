# specimen: class=precision_downgrade task=matmul device=cuda stage=correctness reason=wrong_output
"""Lets the tensor cores round an fp32 product to TF32."""

import torch


def matmul(a, b):
    torch.backends.cuda.matmul.allow_tf32 = True
    return a @ b
