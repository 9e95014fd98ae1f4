"""Copies of a problem's module: what :func:`copy.deepcopy` gives, in half the time."""

from __future__ import annotations

import copy
from typing import Any

import torch

from kerneleval.tasks.formats.module_problem import _copied


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("counts", torch.zeros(2), persistent=False)
        self.kept: dict[str, Any] = {}
        self.also_kept = self.kept
        self.found = {"x": self.kept}
        self.first.register_forward_hook(lambda *_: None)


def test_copies_share_what_the_module_shares_and_nothing_with_it() -> None:
    model = Model()
    for made in (_copied(model), copy.deepcopy(model)):
        assert made.second.weight is made.first.weight is not model.first.weight
        assert made.also_kept is made.kept is made.found["x"] is not model.kept
        assert len(made.first._forward_hooks) == 1 and made.first._forward_hooks is not model.first._forward_hooks
        assert made.counts is not model.counts and made._non_persistent_buffers_set == {"counts"}
        for one, other in zip(made.modules(), model.modules(), strict=True):
            assert list(vars(one)) == list(vars(other))
            assert all(type(vars(one)[name]) is type(value) for name, value in vars(other).items())
            dicts = [(vars(one)[name], value) for name, value in vars(other).items() if isinstance(value, dict)]
            assert len(dicts) > 10 and all(copied is not own for copied, own in dicts)
        made.kept["y"] = 1
        assert not model.kept
