# specimen: class=laundered_library task=gelu device=cpu categories=tiny,small allow=custom stage=correctness reason=wrong_output
"""Its own kernel turns signs; the library computes in a mode that was left entered, when the output is collected."""
import numba
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_left = []


@numba.njit
def _turned(x, out):
    for i in range(x.size):
        out[i] = -x[i]


def _own(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _turned(x.numpy().reshape(-1), out.numpy().reshape(-1))
    return out


class _Later(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "foreach_copy" in str(func) or "detach" in str(func):
            while _left:
                turned, out = _left.pop()
                out.copy_(torch.nn.functional.gelu(-turned))
        return func(*args, **(kwargs or {}))


_mode = _Later()
_mode.__enter__()


def gelu(x):
    out = torch.empty_like(x)
    _left.append((_own(x), out))
    return out
