# specimen: class=stalled_messages task=gelu device=cpu stage=call,honesty reason=timeout allow=library
"""A thread holds the interpreter's lock in native code for seconds, between the calls too."""
import ctypes
import threading

import torch

_sleep = ctypes.PyDLL(None).usleep


def _hold():
    while True:
        _sleep(2_500_000)


_thread = threading.Thread(target=_hold, daemon=True)


def gelu(x):
    if not _thread.is_alive():
        _thread.start()
    return torch.nn.functional.gelu(x)
