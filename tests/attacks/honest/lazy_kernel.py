# specimen: class=lazy_compilation task=amax device=cpu verdict=passed distributions=standard categories=tiny,small allow=custom
"""Makes its kernel from text at the first call, keeps it, and is itself an object that can be called."""

import numba
import torch

_SOURCE = """
def kernel(x, out):
    for i in range(x.shape[0]):
        top = x[i, 0]
        for j in range(1, x.shape[1]):
            v = x[i, j]
            if v > top or v != v:
                top = v
            if top != top:
                break
        out[i] = top
"""


class _Maximum:
    kernel = None

    def __call__(self, x):
        if self.kernel is None:
            space = {}
            exec(_SOURCE, space)
            self.kernel = numba.njit(space["kernel"])
        out = torch.empty(x.shape[0])
        if x.shape[0]:
            self.kernel(x.contiguous().numpy(), out.numpy())
        return out


amax = _Maximum()
