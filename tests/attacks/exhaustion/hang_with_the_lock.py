# specimen: class=hang task=gelu device=cpu stage=call,honesty reason=timeout allow=library
"""A thread takes the interpreter's lock in native code, after the first call, and never gives it back."""
import ctypes
import threading
import time

import torch

_sleep = ctypes.PyDLL(None).sleep


def _hold():
    time.sleep(0.05)
    while True:
        _sleep(1000)


_thread = threading.Thread(target=_hold, daemon=True)


def gelu(x):
    if not _thread.is_alive():
        _thread.start()
    return torch.nn.functional.gelu(x)
