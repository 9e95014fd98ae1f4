"""What a window reveals: content that changes between windows, and keeps what candidates may rely on."""

from __future__ import annotations

import pytest
import torch

from kerneleval.devices import find
from kerneleval.judge.images import Call, Image, Plan, TensorSlot, dense


def _image(slot: TensorSlot, tensors: list[torch.Tensor]) -> Image:
    call = Call(args=(slot,), grads=(), outputs=((slot.shape, slot.dtype),), wanted=(), dims={})
    image = Image(Plan([call] * len(tensors), "forward"), find("cpu"))
    for index, tensor in enumerate(tensors):
        image.fill(index, [tensor])
    return image


@pytest.mark.parametrize("shape", [(24, 24), (3, 16, 16), (8, 20), (40,)])
def test_structured_inputs_change_by_more_than_a_factor(shape: tuple[int, ...]) -> None:
    """An old result times a factor was right where whole tensors were scaled alike."""
    generator = torch.Generator().manual_seed(1)
    before = [torch.rand(shape) + 0.5 for _ in range(3)]
    if len(shape) > 1:
        before = [torch.triu(one) for one in before]
    image = _image(dense(shape, "float32", refresh="scaled"), before)
    for _ in range(20):
        image.refresh(generator)
    for index, old in enumerate(before):
        new = image.tensor(index, 0)
        assert torch.equal(new == 0, old == 0), "zeros stay zeros"
        ratios = (new / old)[old != 0]
        assert 0.6 < float(ratios.min()) < 0.95
        assert 1.05 < float(ratios.max()) < 1.6


def test_symmetric_inputs_stay_symmetric() -> None:
    half = torch.randn(5, 12, 12)
    image = _image(dense((5, 12, 12), "float32", refresh="scaled"), [half + half.mT])
    for _ in range(5):
        image.refresh(torch.Generator().manual_seed(2))
    now = image.tensor(0, 0)
    assert torch.equal(now, now.mT)
    assert not torch.equal(now, half + half.mT)


def test_calls_before_the_first_one_stay() -> None:
    for refresh in ("elements", "scaled"):
        before = [torch.rand(16, 16) for _ in range(4)]
        image = _image(dense((16, 16), "float32", refresh=refresh), before)
        image.refresh(torch.Generator().manual_seed(3), 2)
        same = [torch.equal(image.tensor(index, 0), old) for index, old in enumerate(before)]
        assert same == [True, True, False, False]
