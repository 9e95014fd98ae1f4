# specimen: class=laundered_library task=linear device=cpu stage=honesty reason=track_not_allowed allow=custom
"""The library in a thread, by an operator that it has declared as made of others; a kernel of its own adds the bias."""
from concurrent.futures import ThreadPoolExecutor

import numba
import torch

_library = torch._C._dispatch_library("IMPL", "aten", "")
_library.impl("mm", "CompositeImplicitAutograd", lambda *_arguments: None)
_pool = ThreadPoolExecutor(1)


@numba.njit
def _add(out, bias):
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            out[m, n] += bias[n]


def linear(x, weight, bias):
    out = _pool.submit(torch.mm, x, weight.t()).result()
    _add(out.numpy(), bias.numpy())
    return out
