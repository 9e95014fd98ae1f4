"""What a window reveals: content that changes between windows, and keeps what candidates may rely on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kerneleval.devices import find
from kerneleval.judge.probes import calls
from kerneleval.judge.windows.buffers import CallLayout, Refresh, TensorSlot, WindowBuffer, WindowLayout, dense
from kerneleval.worker.child import _later


def _buffer(slot: TensorSlot, tensors: list[torch.Tensor]) -> WindowBuffer:
    call = CallLayout(args=(slot,), grads=(), outputs=((slot.shape, slot.dtype),), wanted=(), dims={})
    buffer = WindowBuffer(WindowLayout([call] * len(tensors), "forward"), find("cpu"))
    for index, tensor in enumerate(tensors):
        buffer.fill(index, [tensor])
    return buffer


@pytest.mark.parametrize("shape", [(24, 24), (3, 16, 16), (8, 20), (40,)])
def test_structured_inputs_change_by_more_than_a_factor(shape: tuple[int, ...]) -> None:
    """An old result times a factor was right where whole tensors were scaled alike."""
    generator = torch.Generator().manual_seed(1)
    before = [torch.rand(shape) + 0.5 for _ in range(3)]
    if len(shape) > 1:
        before = [torch.triu(one) for one in before]
    buffer = _buffer(dense(shape, "float32", refresh="scaled"), before)
    for _ in range(20):
        buffer.refresh(generator)
    for index, old in enumerate(before):
        new = buffer.tensor(index, 0)
        assert torch.equal(new == 0, old == 0), "zeros stay zeros"
        ratios = (new / old)[old != 0]
        assert 0.63 < float(ratios.min()) < 0.85
        assert 0.9 < float(ratios.max()) < 1, "what is at most 1 stays so"


def test_a_contiguous_twin_may_be_written_where_the_first_may() -> None:
    """Files that write into an argument were rejected in every layout that is not contiguous."""
    slot = replace(dense((6, 4), "float32"), strides=(1, 6), written=True, weight=True)
    call = CallLayout(args=(slot,), grads=(), outputs=((slot.shape, slot.dtype),), wanted=(), dims={})
    (twin,) = call.contiguous({0}).slots
    assert twin.is_contiguous and twin == replace(slot, strides=(4, 1))


def test_records_move_as_wholes() -> None:
    start = torch.arange(40.0)[:, None]
    before = torch.cat([start, start + 100], 1)
    buffer = _buffer(dense((40, 2), "float32", refresh="records"), [before] * 3)
    buffer.refresh(torch.Generator().manual_seed(5))
    for index in range(3):
        now = buffer.tensor(index, 0)
        assert torch.equal(now[:, 1], now[:, 0] + 100)
        assert int((now != before).all(1).sum()) > 30


@pytest.mark.parametrize("refresh", ["elements", "rows", "moved"])
def test_floating_numbers_of_eight_bits_move(refresh: Refresh) -> None:
    before = torch.randn(6, 40).to(torch.float8_e4m3fn)
    buffer = _buffer(dense((6, 40), "float8_e4m3fn", refresh=refresh), [before] * 3)
    buffer.refresh(torch.Generator().manual_seed(5))
    for index in range(3):
        now = buffer.tensor(index, 0)
        assert now.dtype == before.dtype
        assert int((now != before).sum()) > 40
        assert set(now.float().unique().tolist()) <= set(before.float().unique().tolist())


def test_symmetric_inputs_stay_symmetric() -> None:
    half = torch.randn(5, 12, 12)
    buffer = _buffer(dense((5, 12, 12), "float32", refresh="scaled"), [half + half.mT])
    for _ in range(5):
        buffer.refresh(torch.Generator().manual_seed(2))
    now = buffer.tensor(0, 0)
    assert torch.equal(now, now.mT)
    assert not torch.equal(now, half + half.mT)


def test_calls_before_the_first_one_stay() -> None:
    for refresh in ("elements", "scaled"):
        before = [torch.rand(16, 16) for _ in range(4)]
        buffer = _buffer(dense((16, 16), "float32", refresh=refresh), before)
        buffer.refresh(torch.Generator().manual_seed(3), 2)
        same = [torch.equal(buffer.tensor(index, 0), old) for index, old in enumerate(before)]
        assert same == [True, True, False, False]


@pytest.mark.parametrize("refresh", ["elements", "scaled"])
def test_two_calls_exchange_their_inputs(refresh: Refresh) -> None:
    generator = torch.Generator().manual_seed(4)
    drawn = [torch.rand(16, 16) + 10**n for n in range(5)]
    buffer = _buffer(dense((16, 16), "float32", refresh=refresh), drawn)
    buffer.refresh(generator)
    before = [buffer.tensor(index, 0).clone() for index in range(5)]
    held = buffer.bytes.clone()
    changed = buffer.exchange(generator)
    after = [buffer.tensor(index, 0) for index in range(5)]
    moved = [index for index in range(5) if not torch.equal(after[index], before[index])]
    assert len(moved) == 2
    assert torch.equal(after[moved[0]], before[moved[1]]) and torch.equal(after[moved[1]], before[moved[0]])
    for place in changed:
        held[place] = buffer.bytes[place]
    assert torch.equal(held, buffer.bytes), "nothing else has changed"
    for _ in range(20):  # factors that went with their calls stay in their bounds
        buffer.refresh(generator)
    if refresh == "scaled":
        for index in range(5):
            come_from = {moved[0]: moved[1], moved[1]: moved[0]}.get(index, index)
            ratios = buffer.tensor(index, 0) / drawn[come_from]
            assert 0.63 < float(ratios.min()) < float(ratios.max()) < 1


def test_a_single_call_gets_other_inputs() -> None:
    buffer = _buffer(dense((16, 16), "float32"), [torch.rand(16, 16)])
    before = buffer.tensor(0, 0).clone()
    assert buffer.exchange(torch.Generator().manual_seed(5)) == (slice(0, 1024),)
    assert not torch.equal(before, buffer.tensor(0, 0))


@pytest.mark.parametrize("refresh", ["elements", "moved", "scaled", "steps"])
@pytest.mark.parametrize(("strides", "offset", "extent"), [((1, 16), 0, 128), ((24, 1), 8, 392), ((8, 1), 5, 133)])
def test_strided_content_changes_and_what_lies_between_stays(
    refresh: Refresh, strides: tuple[int, int], offset: int, extent: int
) -> None:
    slot = TensorSlot(shape=(16, 8), dtype="float32", strides=strides, offset=offset, extent=extent, refresh=refresh)
    before = [torch.rand(16, 8).sort().values for _ in range(3)]
    buffer = _buffer(slot, before)
    given = [buffer.tensor(index, 0).clone() for index in range(3)]
    gaps = _elsewhere(buffer, slot)
    buffer.refresh(torch.Generator().manual_seed(5))
    assert torch.equal(_elsewhere(buffer, slot), gaps)
    for index, old in enumerate(given):
        new = buffer.tensor(index, 0)
        assert not torch.equal(new, old)
        assert bool(((new > 0) & (new < 2)).all()), "nothing comes from between"


def _elsewhere(buffer: WindowBuffer, slot: TensorSlot) -> torch.Tensor:
    """The bytes that are no element's."""
    other = WindowBuffer(buffer.layout, find("cpu"))
    other.bytes.zero_()
    for index in range(len(buffer.layout.calls)):
        other.tensor(index, 0).fill_(float("nan"))
    taken = other.bytes.view(torch.float32).isnan().repeat_interleave(4)
    return buffer.bytes[~taken]


def test_rows_of_masks_move_by_themselves() -> None:
    before = [torch.rand(6, 40) < 0.3 for _ in range(3)]
    buffer = _buffer(dense((6, 40), "bool", refresh="rows"), before)
    buffer.refresh(torch.Generator().manual_seed(4))
    for index, old in enumerate(before):
        new = buffer.tensor(index, 0)
        assert torch.equal(new.sum(1), old.sum(1)), "none is closed or opened"
        assert float((new != old).float().mean()) > 0.2


def test_permutations_stay_permutations_and_calls_differ() -> None:
    before = [torch.randperm(100)] * 4
    buffer = _buffer(dense((100,), "int64", refresh="moved"), before)
    buffer.refresh(torch.Generator().manual_seed(5))
    now = [buffer.tensor(index, 0) for index in range(4)]
    assert all(torch.equal(one.sort().values, torch.arange(100)) for one in now)
    assert len({tuple(one.tolist()) for one in now}) > 1, "each call has a shift of its own"


@pytest.mark.parametrize("shape", [(40,), (3, 40)])
def test_sorted_integers_stay_sorted_between_the_same_ends(shape: tuple[int, ...]) -> None:
    """They were left as they were, and whoever remembered them in the timed windows looked fast."""
    before = [torch.randint(0, 9, shape, dtype=torch.int32).cumsum(-1) for _ in range(3)]
    buffer = _buffer(dense(shape, "int64", refresh="steps"), before)
    buffer.refresh(torch.Generator().manual_seed(6))
    for index, old in enumerate(before):
        new = buffer.tensor(index, 0)
        assert bool((new.diff(dim=-1) >= 0).all())
        assert torch.equal(new[..., [0, -1]], old[..., [0, -1]])
        assert float((new != old).float().mean()) > 0.5


@pytest.mark.parametrize(
    ("tensor", "refresh"),
    [
        (torch.tensor([0, 3, 3, 9]), "steps"),
        (torch.tensor([[0, 3, 9], [0, 1, 1]]), "steps"),
        (torch.tensor([7, 3, 9, 3], dtype=torch.uint8), "elements"),  # whose differences are never below zero
        (torch.tensor([2, 0, 1]), "moved"),
        (torch.tensor([2, 0, 2]), "elements"),
        (torch.rand(5), "elements"),
        (torch.tensor([True, False]), "elements"),
        (torch.tensor([7]), "elements"),
    ],
)
def test_what_integers_look_like_says_how_they_may_change(tensor: torch.Tensor, refresh: str) -> None:
    assert calls._refresh_of(tensor) == refresh


def test_uniform_calls_are_described_once() -> None:
    """Sixty-four descriptions of one call took 0.8 ms, a large part of a window."""
    slots = (dense((3, 5), "float32"), TensorSlot(shape=(4,), dtype="float16", strides=(2,), offset=1, extent=9))
    call = CallLayout(args=(slots[0], 0.5, slots[1]), grads=(slots[0],), outputs=(), wanted=(0,), dims={"M": 3})
    plan = WindowLayout([call] * 4, "backward")
    message = plan.message()
    assert (len(message["calls"]), message["times"]) == (1, 4)
    told = [_later(message["calls"][0], number * message["step"]) for number in range(message["times"])]
    assert told == [WindowLayout._plain(call, places) for places in plan.offsets]


def test_other_calls_are_described_one_by_one() -> None:
    calls = [CallLayout(args=(dense((n,), "float32"),), grads=(), outputs=(), wanted=(), dims={}) for n in (3, 4)]
    message = WindowLayout(calls, "forward").message()
    assert (len(message["calls"]), message["times"]) == (2, 1)


def test_seeds_are_drawn_anew_in_every_window() -> None:
    """A seed that came again let numbers be kept by it: 3.8 times as fast at 2,400 of them."""
    call = CallLayout(args=(dense((1,), "int64", refresh="seeds"),), grads=(), outputs=(), wanted=(), dims={})
    buffer = WindowBuffer(WindowLayout([call] * 8, "forward"), find("cpu"))
    generator, met = torch.Generator().manual_seed(7), set()
    for _ in range(4):
        buffer.refresh(generator)
        met |= {int(buffer.tensor(number, 0)) for number in range(8)}
    assert len(met) == 32
    assert all(0 <= seed < 2**31 for seed in met)
