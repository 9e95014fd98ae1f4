# specimen: class=input_mutation task=silu device=any stage=honesty reason=input_mutation directions=forward
"""In place without writing: the caller's tensor is pointed at the output's memory (x.data = y)."""
import torch
def silu(x):
    y = x * torch.sigmoid(x)
    x.data = y
    return y
