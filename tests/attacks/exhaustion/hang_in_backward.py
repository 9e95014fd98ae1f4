# specimen: class=hang task=gelu device=any stage=call reason=timeout directions=backward allow=library
"""Its forward is right; its backward waits for a lock that nobody lets go."""
import threading

import torch

_lock = threading.Lock()


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        _lock.acquire()
        _lock.acquire()
        return grad


def gelu(x):
    return _Gelu.apply(x)
