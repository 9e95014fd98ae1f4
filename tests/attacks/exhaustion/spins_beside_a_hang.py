# specimen: class=hang task=gelu device=any stage=call reason=timeout
"""The first call never ends, and a process that it started computes without end, as a compiler does."""
import os
import time


def gelu(x):
    if os.fork() == 0:
        while True:
            pass
    while True:
        time.sleep(1)
