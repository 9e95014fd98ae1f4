"""The native reference of a problem file by other formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kerneleval.judge.other_formulas import ByLogSums


@pytest.mark.parametrize(
    "softmax",
    [
        lambda x: torch.softmax(x, -1),
        lambda x: x.softmax(dim=1),
        lambda x: torch.nn.functional.softmax(x, dim=-1, dtype=torch.float32),
        torch.nn.Softmax(dim=1),
    ],
)
def test_softmax_is_made_from_the_logarithm_of_the_sum(softmax: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = 1e4 * torch.randn(64, 50, generator=torch.Generator().manual_seed(7))
    x[:, 1] = x.amax(-1) - 0.3  # two weights that tell
    with ByLogSums() as sums:
        found = softmax(x)
    assert sums.met
    exact = torch.softmax(x.double(), -1)
    assert torch.allclose(found.double(), exact, rtol=0, atol=1e-2)
    assert (found - exact).abs().max() > 10 * (torch.softmax(x, -1) - exact).abs().max()


def test_what_has_no_softmax_is_left_alone() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))
    with ByLogSums() as sums:
        found = torch.relu(x @ x.mT)
    assert not sums.met
    assert torch.equal(found, torch.relu(x @ x.mT))
