# specimen: class=hang task=gelu device=any stage=call reason=timeout allow=library
"""The first two calls are right; the third reads a pipe into which nobody writes."""
import itertools
import os

import torch

_calls = itertools.count(1)


def gelu(x):
    if next(_calls) == 3:
        os.read(os.pipe()[0], 1)
    return torch.nn.functional.gelu(x)
