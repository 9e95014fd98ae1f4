"""Operators of problem files that select equal numbers."""

from __future__ import annotations

import pytest
import torch

from kerneleval.tasks.formats.agreement import Selections

CLOSED = torch.tensor([[1.0, 2.0, 3.0], [-1e5 + 0.015625, -1e5, -2e5]])
"""Which of two numbers is larger is a rounding in the second row."""


@pytest.mark.parametrize(
    ("select", "found"),
    [
        (lambda x: x.argmax(-1), {"argmax"}),
        (lambda x: x.max(-1), {"max"}),
        (lambda x: x[:1].argmax(-1), set()),
        (lambda _: torch.arange(5.0).repeat(4, 1).sort(-1), set()),
        (lambda _: torch.arange(5.0).repeat(4, 1).argsort(), set()),
        (lambda _: torch.arange(5.0).repeat(4, 1).sort(0), {"sort"}),
        (lambda _: torch.tensor([3, 1, 3]).argmax(), {"argmax"}),
        (lambda _: torch.tensor([3, 1, 2]).argmax(), set()),
    ],
)
def test_equal_numbers_are_seen_where_they_are_selected(select, found):
    with Selections() as selections:
        select(CLOSED)
    assert selections.equal == found
