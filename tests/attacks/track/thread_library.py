# specimen: class=hidden_library task=matmul device=any categories=tiny,small allow=custom,mixed stage=honesty reason=track_not_allowed
"""The library in another thread, where no dispatch mode sees it."""

from concurrent.futures import ThreadPoolExecutor

import torch

_pool = ThreadPoolExecutor(1)


def matmul(a, b):
    return _pool.submit(torch.matmul, a, b).result()
