# specimen: class=unjoined_thread task=gelu device=any stage=correctness reason=wrong_output
"""Answers at once and lets a thread fill the output in later."""

import threading
import time

import torch


def _fill(x, out):
    time.sleep(0.3)
    out.copy_(torch.nn.functional.gelu(x))


def gelu(x):
    out = torch.empty_like(x)
    threading.Thread(target=_fill, args=(x, out), daemon=True).start()
    return out
