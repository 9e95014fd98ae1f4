"""How many threads the judge computes with."""

from __future__ import annotations

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
