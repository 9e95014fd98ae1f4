"""What becomes of outputs whose elements share memory: they are written out while the clock runs."""

from __future__ import annotations

import pytest
import torch

from kerneleval.worker.calls import written

BASE = torch.arange(64.0)


@pytest.mark.parametrize(
    "view",
    [
        BASE.unfold(0, 8, 3),
        BASE.unfold(0, 8, 8).unfold(1, 4, 1),
        BASE[:8].expand(4, 8),
        BASE[:8, None].expand(8, 4),
        BASE.as_strided((4, 4), (2, 3)),  # each element in a place of its own but two
    ],
)
def test_views_that_repeat_elements_are_written_out(view: torch.Tensor) -> None:
    (output,) = written(view, [view])
    assert output.is_contiguous() and output.data_ptr() != view.data_ptr() and torch.equal(output, view)


@pytest.mark.parametrize(
    "view",
    [
        BASE,
        BASE.view(8, 8).t(),
        BASE.view(8, 8)[:, 2:5],
        BASE.view(2, 4, 8).permute(2, 0, 1)[::2],
        BASE.unfold(0, 8, 8),
        BASE.unfold(0, 3, 5),
        BASE[:8].view(1, 8).expand(1, 8),
        BASE[:0].view(0, 8).t(),
        BASE[3],
    ],
)
def test_others_stay_as_they_are(view: torch.Tensor) -> None:
    (output,) = written(view, [view])
    assert output is view


def test_one_of_another_shape_is_not_written_out() -> None:
    view = torch.zeros(1).expand(2**30, 2**30)
    (output,) = written(view, [BASE])
    assert output is view
