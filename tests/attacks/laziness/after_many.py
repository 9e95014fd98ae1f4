# specimen: class=stale_after_warm_up task=gelu device=any stage=timing reason=wrong_output timed=yes
"""Honest for as many calls as any warm-up has, then stale."""

import torch

count = 0
last = {}


def gelu(x):
    global count
    count += 1
    if count > 250 and x.shape in last:
        return last[x.shape]
    last[x.shape] = torch.nn.functional.gelu(x)
    return last[x.shape].clone()
