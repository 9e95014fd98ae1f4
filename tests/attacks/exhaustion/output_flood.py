# specimen: class=output_flood task=gelu device=any stage=call reason=output_flood
"""Prints 100 MB."""
import sys

import torch


def gelu(x):
    for _ in range(100):
        sys.stdout.write("x" * (1 << 20))
    sys.stdout.flush()
    return torch.nn.functional.gelu(x)
