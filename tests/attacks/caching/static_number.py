# specimen: class=static_output_buffer task=mean_all device=any stage=correctness reason=output_reused directions=forward
"""One number for the results of all calls of a dtype. No order of the elements changes it."""

import torch

_results = {}


def mean_all(x):
    result = _results.setdefault(x.dtype, torch.empty((), dtype=x.dtype, device=x.device))
    result.copy_(x.mean())
    return result
