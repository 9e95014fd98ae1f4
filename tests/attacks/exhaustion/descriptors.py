# specimen: class=descriptors task=gelu device=any stage=call reason=exception
"""Opens descriptors until none are left."""
import os


def gelu(x):
    while True:
        os.open("/dev/null", os.O_RDONLY)
