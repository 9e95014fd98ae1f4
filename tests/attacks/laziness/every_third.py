# specimen: class=skipped_calls task=gelu device=any stage=correctness,timing reason=wrong_output timed=yes
"""Computes two calls and gives the last result again for the third."""

import torch

count = 0
last = {}


def gelu(x):
    global count
    count += 1
    if count % 3 == 0 and x.shape in last:
        return last[x.shape].clone()
    last[x.shape] = torch.nn.functional.gelu(x)
    return last[x.shape]
