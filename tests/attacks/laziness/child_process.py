# specimen: class=unjoined_process task=gelu device=cpu stage=correctness reason=wrong_output
"""Lets a forked child fill shared memory in later."""

import os
import time

import torch


def gelu(x):
    out = torch.zeros(x.shape, dtype=x.dtype).share_memory_()
    if os.fork() == 0:
        time.sleep(0.2)
        out.copy_(torch.nn.functional.gelu(x))
        os._exit(0)
    return out
