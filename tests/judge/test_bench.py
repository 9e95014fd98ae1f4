"""What workers may take."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from kerneleval.judge import bench


@pytest.mark.parametrize("device,host_gib,limit_gib", [("cpu", 12, 6), ("cuda", 12, 6), ("cuda", 128, 16)])
def test_a_worker_may_take_no_more_than_half_of_the_host(
    monkeypatch: pytest.MonkeyPatch, device: str, host_gib: int, limit_gib: int
) -> None:
    """A candidate on a GPU was stopped at 32 GiB, whatever the host had: the host ended first."""
    figures = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (host_gib << 30) // 4096}
    monkeypatch.setattr(os, "sysconf", figures.__getitem__)
    assert bench._worker_memory_bytes(SimpleNamespace(name=device)) == limit_gib << 30  # type: ignore[arg-type]
