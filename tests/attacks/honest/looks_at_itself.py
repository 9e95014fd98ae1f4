# specimen: class=introspection task=gelu device=any verdict=passed
"""Looks at its own frame and functions, at the processor and at its memory, logs, warns, and wraps functions."""

import dataclasses
import functools
import inspect
import logging
import sys
import warnings
from collections import namedtuple

import torch

logger = logging.getLogger("kernel")
Shape = namedtuple("Shape", "rows columns")


@dataclasses.dataclass(frozen=True)
class Config:
    block: int = 256


def _named(function):
    names = list(inspect.signature(function).parameters) + [function.__code__.co_name, sys._getframe().f_code.co_name]

    @functools.wraps(function)
    def called(*args):
        logger.debug("called %s from line %d", names, inspect.currentframe().f_lineno)
        return function(*args)

    return called


def _lines(path):
    try:
        with open(path) as file:
            return len(file.readlines())
    except OSError:
        return 0


cores = _lines("/proc/cpuinfo") + _lines("/proc/meminfo") + _lines("/proc/self/status") + _lines("/proc/1/cgroup")


@_named
def gelu(x):
    warnings.warn(f"{Shape(len(x), Config().block)}", stacklevel=2)
    return torch.nn.functional.gelu(x)
