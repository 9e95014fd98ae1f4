"""How many threads PyTorch computes with in the judge's own process, which is restored afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kerneleval.devices.cpu import threads

__all__ = ["own_threads", "worker_threads"]

_SMALL_BYTES = 32 << 20
"""A case of less is judged by one thread. Where another process runs on the same processors, each step of several
threads waits for the slowest of them, which waits for its turn: on two processors with five programs a quick verdict
on GELU took 62 s with two threads and 14 s with one."""


@contextlib.contextmanager
def own_threads(nbytes: int = 0) -> Iterator[None]:
    """Those for the judge's own arithmetic on so many bytes of arguments and outputs: one, or all that workers have."""
    with _set(1 if nbytes < _SMALL_BYTES else threads()):
        yield


@contextlib.contextmanager
def worker_threads(args: Sequence[Any]) -> Iterator[None]:
    """As many as workers have, if any argument lies on the CPU: what is compared with them must round as they do."""
    on_host = any(isinstance(a, torch.Tensor) and a.device.type == "cpu" for a in args)
    with _set(threads() if on_host else torch.get_num_threads()):
        yield


@contextlib.contextmanager
def _set(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
