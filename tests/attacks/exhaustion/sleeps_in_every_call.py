# specimen: class=slow_calls task=gelu device=cpu stage=call reason=timeout allow=library
"""It sleeps for seconds in every call: no call takes too long, and all together do."""
import time

import torch


def gelu(x):
    time.sleep(1.5)
    return torch.nn.functional.gelu(x)
