"""How many threads the workers of a CPU compute with."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kerneleval.devices import cpu


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    for cached in (cpu.processors, cpu.threads):
        cached.cache_clear()
    yield
    for cached in (cpu.processors, cpu.threads):
        cached.cache_clear()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="not run: no processor masks here")
@pytest.mark.parametrize(
    ("asked", "threads"),
    [("", 4), ("1", 1), ("2,1", 2), (" 3 ", 3), ("4", 4), ("64", 4), ("0", 4), ("-1", 4), ("many", 4), ("²", 4)],
)
def test_as_many_as_processors_or_as_openmp_is_told(monkeypatch: pytest.MonkeyPatch, asked: str, threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert cpu.threads() == threads
    assert cpu.processors() == 4
    assert cpu.Cpu().machine().units == threads  # the noise floor and stored verdicts are of so many
