"""The zygote loads PyTorch while whoever made it does something else."""

from __future__ import annotations

import signal

from kerneleval.judge.windows.worker_pool import _limits
from kerneleval.worker.host import Zygote


def test_the_first_worker_waits_for_it_and_nobody_before() -> None:
    with Zygote("cpu") as zygote:
        assert (zygote.start_s, zygote.loaded) == (0.0, {}), "it was waited for"
        zygote.fork(_limits(1 << 30)).close()
        assert zygote.start_s > zygote.loaded["total_s"] > 0


def test_one_that_is_not_ready_is_ended_at_once() -> None:
    zygote = Zygote("cpu")
    zygote.close()
    assert zygote._process.returncode == -signal.SIGKILL, "it was asked to end, and loaded PyTorch first"
    assert not zygote.root.exists()
