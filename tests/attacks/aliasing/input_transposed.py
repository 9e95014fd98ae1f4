# specimen: class=input_mutation task=matmul device=any stage=honesty reason=input_mutation directions=forward
"""Transposes its second operand's sizes and strides in place and leaves it so: the caller's tensor has another shape afterwards."""
import torch
def matmul(a, b):
    k = a.shape[1]
    out = a @ b
    b.t_()
    return out
