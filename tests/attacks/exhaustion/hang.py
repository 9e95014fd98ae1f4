# specimen: class=hang task=gelu device=any stage=call reason=timeout
"""Sleeps for ever in the call."""
import time


def gelu(x):
    while True:
        time.sleep(1)
