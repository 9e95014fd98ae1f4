"""Jobs for processes: in a module of their own, which loads no PyTorch into each of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.processes import Broken


def double(job: Any) -> Any:
    """Runs in a process of its own, by this module's name."""
    if job == "raises":
        raise ValueError("no such job")
    if job == "dies":
        os._exit(3)
    if job == "hangs":
        time.sleep(60)
    if job == "breaks":
        raise Broken("the device is gone")
    if job == "process":
        return os.getpid()
    return 2 * job


def found_by_no_name() -> Callable[[Any], Any]:
    def local(job: Any) -> Any:
        return job

    return local
