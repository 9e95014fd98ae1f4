"""Weights that change: what stays of them, and what stays together."""

from __future__ import annotations

import torch

from kerneleval.judge.windows.modules import moved, split


def test_moved_weights_keep_ends_and_contents_and_tied_ones_stay_tied() -> None:
    one, other = torch.randn(7, 11), torch.randn(7, 11)
    found = moved({"a": one, "b": other, "tied": one.clone(), "short": torch.randn(3), "count": torch.arange(9)}, 5)
    assert set(found) == {"a", "b", "tied"}
    assert torch.equal(found["a"], found["tied"])
    for name, before in (("a", one), ("b", other)):
        flat = found[name].reshape(-1)
        assert torch.equal(flat.sort().values, before.reshape(-1).sort().values)
        assert (flat[0], flat[-1]) == (before[0, 0], before[-1, -1])
        assert float((flat != before.reshape(-1)).float().mean()) > 0.3


def test_rows_of_zeros_stay_where_weights_move() -> None:
    table = torch.randn(12, 8)
    table[3] = 0
    found = moved({"table": table}, 5)["table"]
    assert not found[3].any() and found[torch.arange(12) != 3].all()
    assert float((found != table).float().mean()) > 0.3


def test_equal_weights_are_in_one_half() -> None:
    weight = torch.randn(5)
    for _ in range(20):
        halves = split({"a": weight, "b": torch.randn(5), "tied": weight.clone()})
        assert any({"a", "tied"} <= half for half in halves)
