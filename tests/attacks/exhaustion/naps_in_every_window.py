# specimen: class=slow_calls task=gelu device=cpu stage=call,honesty,correctness reason=timeout allow=library
"""It sleeps for tenths of a second in every window: no window takes too long, and all together do."""
import time

import torch

last = [0.0]


def gelu(x):
    if time.monotonic() - last[0] > 0.001:
        time.sleep(0.4)
    y = torch.nn.functional.gelu(x)
    last[0] = time.monotonic()
    return y
