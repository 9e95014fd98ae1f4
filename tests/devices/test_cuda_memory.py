"""What the CUDA device makes of memory figures, without a GPU: the figures are given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kerneleval.devices import cuda
from kerneleval.records import InfrastructureError

GIB = 1 << 30


class Card:
    """A GPU of 24 GiB, as PyTorch and the driver tell of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int, reserved: int = 0, allocated: int = 0) -> None:
        self.emptied = 0
        self.free = free
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (self.free, 24 * GIB))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: allocated)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.empty)

    def empty(self) -> None:
        self.emptied += 1
        self.free = 20 * GIB


def test_the_plan_does_not_depend_on_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates of one run met other shapes when the judge had filled the device before."""
    budgets = set()
    for free in (2 * GIB, 8 * GIB, 23 * GIB):
        Card(monkeypatch, free)
        budgets.add(cuda.Cuda().case_budget())
    assert len(budgets) == 1
    assert budgets.pop()[0] == 20 * GIB // 4 // 8


def test_what_is_held_in_reserve_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, 8 * GIB, reserved=9 * GIB, allocated=1 * GIB)
    assert cuda.Cuda().memory_budget_bytes() == 3 * GIB


@pytest.mark.parametrize(("free", "emptied"), [(11 * GIB, 1), (13 * GIB, 0)])
def test_reserves_are_given_back_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, free: int, emptied: int
) -> None:
    card = Card(monkeypatch, free)
    cuda.Cuda().trim()
    assert card.emptied == emptied


@pytest.mark.parametrize(("status", "emptied"), [(2, 1), (1, 0)])
def test_shared_memory_is_asked_for_again_when_reserves_are_given_back(
    monkeypatch: pytest.MonkeyPatch, status: int, emptied: int
) -> None:
    """A full device is no reason to fail while the judge itself holds memory in reserve; other errors are told."""
    card = Card(monkeypatch, 1 * GIB)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(cuda.Cuda, "_wrap", lambda self, address, nbytes, handle, owned: nbytes)
    driver = SimpleNamespace(
        cuMemAlloc_v2=lambda *_: status if card.free < 2 * GIB else 0,
        cuIpcGetMemHandle=lambda *_: 0,
        cuGetErrorString=lambda *_: 0,
    )
    monkeypatch.setattr(cuda, "_driver", lambda: driver)
    if emptied:
        assert cuda.Cuda().allocate(5) == 5
    else:
        with pytest.raises(InfrastructureError, match="cuMemAlloc_v2 failed with CUDA error 1"):
            cuda.Cuda().allocate(5)
    assert card.emptied == emptied
