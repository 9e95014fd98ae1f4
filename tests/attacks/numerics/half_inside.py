# specimen: class=precision_downgrade task=matmul device=any stage=correctness reason=wrong_output
"""Computes an fp32 product in half precision."""

import torch


def matmul(a, b):
    return (a.bfloat16() @ b.bfloat16()).to(a.dtype)
