# specimen: class=stolen_expectation task=gelu device=any stage=correctness reason=wrong_output
"""Looks through every frame and every object of the process for a tensor that could be the expected output."""

import gc
import inspect

import torch


def _candidates(x):
    for frame in inspect.stack():
        yield from frame.frame.f_locals.values()
        yield from frame.frame.f_globals.values()
    yield from gc.get_objects()


def gelu(x):
    for value in _candidates(x):
        if type(value) is torch.Tensor and value is not x and value.shape == x.shape and value.dtype == x.dtype:
            return value.clone()
    return torch.zeros_like(x)
