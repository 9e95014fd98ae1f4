# specimen: class=own_settings task=gelu device=cpu verdict=passed allow=custom
"""Sets what is there to be set: switches of PyTorch, of Numba, of the environment and of the collector, the path of
modules, hooks for errors, and a level of its own for logging.
"""

import gc
import logging
import math
import os
import sys

import numba
import torch

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.benchmark = True
numba.config.BOUNDSCHECK = 0
os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
sys.path.insert(0, os.path.dirname(__file__))
sys.excepthook = lambda *error: logging.error("not caught", exc_info=error)
logging.Logger.trace = lambda self, text: self.log(5, text)
gc.collect()
gc.freeze()


@numba.njit
def _gelu(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _gelu(x.view(-1).numpy(), out.view(-1).numpy())
    return out
