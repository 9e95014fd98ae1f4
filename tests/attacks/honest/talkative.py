# specimen: class=output task=gelu device=any verdict=passed categories=tiny,small
"""Prints, logs and warns, as code under development does."""

import contextlib
import logging
import sys
import warnings

import torch

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)


@contextlib.contextmanager
def told(what):
    log.info("begin %s", what)
    yield
    print("done", what, file=sys.stderr)


def gelu(x):
    warnings.warn("falls back on nothing at all", RuntimeWarning, stacklevel=1)
    print("gelu of", tuple(x.shape), x.dtype)
    with told("gelu"):
        return torch.nn.functional.gelu(x)
