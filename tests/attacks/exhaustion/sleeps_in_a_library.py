# specimen: class=hang task=gelu device=any stage=load reason=timeout
"""At import it waits in a library for a lock that it holds itself: that looks like an import that takes long, and
nothing computes.
"""
import fcntl
import os
import tempfile

import filelock
import torch

place = os.path.join(tempfile.mkdtemp(), "lock")
held = open(place, "w")
fcntl.flock(held, fcntl.LOCK_EX)
filelock.FileLock(place).acquire()


def gelu(x):
    return torch.nn.functional.gelu(x)
