"""How many threads the judge computes with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from kerneleval.devices import cpu
from kerneleval.devices.cpu import own_threads, worker_threads


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "threads", lambda: 4)


def test_a_small_case_is_judged_by_one_thread_and_a_large_one_by_all(four: None) -> None:
    before = torch.get_num_threads()
    with own_threads(1 << 20):
        assert torch.get_num_threads() == 1
        with worker_threads([torch.zeros(3), 1.0]):
            assert torch.get_num_threads() == 4
        assert torch.get_num_threads() == 1
    with own_threads(1 << 30):
        assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == before


def test_the_count_comes_back_after_an_error(four: None) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="wrong"), own_threads():
        raise ValueError("wrong")
    assert torch.get_num_threads() == before


FACTORS = """
import torch
from kerneleval.devices import cpu

cpu.threads = lambda: 2
a = torch.eye(256) + torch.randn(4, 256, 256, generator=torch.Generator().manual_seed(7)) / 16
with cpu.own_threads():
    assert torch.get_num_threads() == 1
    right = torch.linalg.slogdet(a)[1]
for nbytes in (0, 1 << 30):
    with cpu.own_threads(nbytes), cpu.worker_threads([a]):
        assert torch.get_num_threads() == 2
        assert torch.allclose(torch.linalg.slogdet(a)[1], right, atol=1e-2)
        torch.linalg.solve(a, a)
"""


@pytest.mark.slow
def test_factors_of_several_matrices_are_right_on_two_threads() -> None:
    """``solve`` raised in MKL once the number of threads had been set, and ``slogdet`` was off by 1."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", FACTORS], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
