"""What a window's calls are given: their layout in memory, and the judge's private copy of their content.

``strided`` has the strides of each memory layout, of which there are variants: those of one argument do not follow from
another's. ``TensorSlot`` is one tensor, ``CallLayout`` one call, ``WindowLayout`` all calls of a window,
``WindowBuffer`` their bytes. Values come from ``inputs.py``; ``protocol.py`` reveals a buffer to a worker.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from kerneleval.devices import Device, contiguous_strides, typed_view
from kerneleval.records import DTYPES, LAYOUTS, Direction, OutputForm, TensorSpec, UsageError, near, new_secret
from kerneleval.worker.wire import encode_plain

_ALIGN = 512
"""Bytes between starts of tensors: the allocators' alignment, and room that shows stray writes."""

_GAP = 0x7A
"""Byte between and beside the elements of strided inputs: large in every float type, so that a kernel that ignores
strides is wrong; but finite, because kernels that are right read a little beyond a row and multiply what is there by 0
(PyTorch 2.13's own bfloat16 matrix products on processors with AMX)."""

_ROLL_BYTES = 64 << 20
"""Bytes that the indices may take by which elements of a part of a buffer are moved along at once."""

_ROLL_CPU_BYTES = 16 << 10
"""The same for one call on the CPU, where above it a loop over the calls costs less than indices: 1.0 ms against 2.5
for 64 calls of 4,096 elements, 6.9 ms against 79 for 131,072 (two cores)."""

_SEEDS = 2**31
"""Seeds lie below this."""

_PAD = 3
"""Elements between the rows of a slice, and before a 1-D one."""

_PACKED = 3
"""Projections that lie in one tensor, as queries, keys and values do."""

_ROOM = 8
"""Elements between the columns of a transposed slice: none is misaligned that would not be without."""

Refresh = Literal["elements", "kept", "moved", "records", "rows", "scaled", "seeds", "steps"]


def strided(layout: str, spec: TensorSpec, variant: int = 0) -> tuple[int, tuple[int, ...], int]:
    """(elements of storage, strides, storage offset) that realise a layout, all in elements. Its forms are listed in
    ``docs/inputs.md``.

    Where a layout has several forms, the sizes say which; a ``variant`` (1 to 3) is the next of them, and so on: no
    layout has more than four. A tensor without elements is contiguous in every layout, and so is a scalar, except under
    ``offset``.

    Raises:
        UsageError: an unknown layout.
    """
    shape = spec.shape
    if layout not in LAYOUTS:
        raise UsageError(f"layout {layout!r} is unknown; {near(layout, LAYOUTS)}")
    plain = contiguous_strides(shape)
    if spec.numel == 0:
        return 0, plain, 0
    if layout == "offset":
        return spec.numel + 1, plain, 1
    if layout == "contiguous" or not shape:
        return spec.numel, plain, 0
    if layout == "transposed":
        return _transposed(shape, variant)
    if layout == "sliced":
        return _sliced(shape, variant)
    dims = expanded_dims(spec)
    reduced = [1 if dim in dims else size for dim, size in enumerate(shape)]
    strides = tuple(0 if dim in dims else step for dim, step in enumerate(contiguous_strides(reduced)))
    return math.prod(reduced), strides, 0


def _transposed(shape: tuple[int, ...], variant: int) -> tuple[int, tuple[int, ...], int]:
    if len(shape) == 1:
        return 2 * shape[0] - 1, (2,), 0
    dims, number = tuple(range(len(shape))), sum(shape)
    order, room = (*dims[:-2], dims[-1], dims[-2]), (number + variant) % 2
    if len(dims) == 3:
        order = (order, (1, 0, 2))[room]
    elif len(dims) > 3:
        heads, plain = (0, 2, 1, *dims[3:]), number // 3 % 2
        forms = ((order, 0), (heads, 1 - plain), ((0, *dims[2:], 1), 0), (heads, plain))
        order, room = forms[(number % 3 + variant) % 4]
    sizes = [shape[dim] for dim in order]
    if len(dims) == 2 and room:
        sizes[-1] += _ROOM
    if len(dims) == 4 and room:
        sizes[2] *= _PACKED
    inner = dict(zip(order, contiguous_strides(sizes), strict=True))
    return math.prod(sizes), tuple(inner[dim] for dim in range(len(shape))), 0


def _sliced(shape: tuple[int, ...], variant: int) -> tuple[int, tuple[int, ...], int]:
    if len(shape) == 1:
        return shape[0] + 2 * _PAD, (1,), _PAD
    *outer, rows, width = shape
    every, offset = 1, 0
    match (sum(shape) + variant) % 3, len(shape):
        case 0, _:
            sizes, offset = (*outer, rows, 2 * width), width
        case 1, _:
            sizes = (*outer, rows, width + _PAD + width % 2)
        case _, 2:
            sizes, every = (3 * rows, width), 3  # not 2: the right half of wider rows has the same strides
        case _:
            sizes, offset = (*outer, rows + _PAD, width), width
    strides = contiguous_strides(sizes)
    return math.prod(sizes), (every * strides[0], *strides[1:]), offset


def gradient_of(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    """The upstream gradient of an output."""
    return TensorSpec(name="gradient", shape=shape, dtype=dtype, role="gradient")


def laid_out(tensor: torch.Tensor, layout: str, spec: TensorSpec) -> torch.Tensor:
    """A copy, lying as the layout says, of a tensor of the spec's shape; along a stride of 0 the first element counts.

    Raises:
        UsageError: an unknown layout.
    """
    extent, strides, offset = strided(layout, spec)
    out = tensor.new_zeros(extent).as_strided(spec.shape, strides, offset)
    target = out
    for dim, stride in enumerate(strides):
        if stride == 0 and spec.shape[dim] > 1:
            target, tensor = target.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    target.copy_(tensor)
    return out


def expanded_dims(spec: TensorSpec) -> tuple[int, ...]:
    """The dims along which the ``expanded`` layout repeats: the first with more than one element; of upstream gradients
    the sizes choose (``docs/inputs.md``). In more dims all are not: gradients of normalisations are nothing then.
    """
    dims = [dim for dim, size in enumerate(spec.shape) if size > 1]
    if spec.role != "gradient" or not dims:
        return tuple(dims[:1])
    match sum(spec.shape) % 3, len(spec.shape):
        case 0, _:
            return (dims[0],)
        case 1, 2:
            return tuple(dims)
    return (dims[-1],)


@dataclass(frozen=True, kw_only=True)
class TensorSlot:
    """One tensor argument: shape, dtype and where its elements lie in its own storage."""

    shape: tuple[int, ...]
    dtype: str
    """Key of ``records.DTYPES``."""
    strides: tuple[int, ...]
    """In elements."""
    offset: int
    """Storage offset in elements."""
    extent: int
    """Elements of storage, offset included."""
    refresh: Refresh = "elements"
    """How timing windows get new content: ``elements`` move along and some are exchanged; all are ``moved`` along and
    none is lost (permutations); each of the ``rows`` moves by itself (masks: none may be closed); ``records`` move as
    ``elements`` do, row by row (boxes); rows and columns are ``scaled`` (where elements depend on one another);
    ``seeds`` are drawn anew; the ``steps`` from element to element of each row are moved along (sorted numbers, which
    stay sorted and keep their ends); or all is ``kept`` (where a problem file takes nothing else)."""
    weight: bool = False
    """Whether it is a weight. Weights change by PyTorch's own operators, which raise a tensor's version, so a candidate
    may keep packed weights by version. Data comes from anywhere, and results kept by its version are stale."""
    written: bool = False
    """Whether a call may write to it, because the reference of a problem file does."""

    @property
    def nbytes(self) -> int:
        """Bytes of storage."""
        return self.extent * DTYPES[self.dtype]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie row-major from the start of the storage."""
        return self.offset == 0 and self.strides == contiguous_strides(self.shape)


def dense(shape: Sequence[int], dtype: str, *, refresh: Refresh = "elements") -> TensorSlot:
    """The contiguous slot of a shape."""
    strides, extent = contiguous_strides(shape), math.prod(shape)
    return TensorSlot(shape=tuple(shape), dtype=dtype, strides=strides, offset=0, extent=extent, refresh=refresh)


@dataclass(frozen=True, kw_only=True)
class CallLayout:
    """Shapes, dtypes and strides of one call, and its plain arguments; no values of tensors."""

    args: tuple[TensorSlot | Any, ...]
    """Slots, or plain values for scalars."""
    grads: tuple[TensorSlot, ...]
    """Upstream gradients; empty for forward."""
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    """(shape, dtype) of what must come out."""
    wanted: tuple[int, ...]
    """Positions of the arguments whose gradients are asked for; empty for forward."""
    dims: dict[str, int]
    """The case's dims, for native launchers."""
    form: OutputForm = None
    """Of what a module must return (``records/nested.py``); None: any that holds the outputs in order."""
    shared: tuple[int, ...] = ()
    """Positions of the outputs that may come in an input's memory, because those of a problem file's reference do."""
    gradient_rank: int = 0
    """In windows that make every forward call before the first gradient: gradients are taken by ascending rank."""

    @functools.cached_property
    def slots(self) -> tuple[TensorSlot, ...]:
        """Every tensor that is revealed, arguments before upstream gradients."""
        return tuple(a for a in self.args if isinstance(a, TensorSlot)) + self.grads

    def contiguous(self, indices: Collection[int]) -> CallLayout:
        """The same call with the tensors at these indices of :attr:`slots` contiguous."""
        return self._with_slots(
            [
                replace(slot, strides=contiguous_strides(slot.shape), offset=0, extent=math.prod(slot.shape))
                if i in indices
                else slot
                for i, slot in enumerate(self.slots)
            ]
        )

    def mixed(self, other: CallLayout, indices: Collection[int]) -> CallLayout:
        """The same call with the tensors at these indices of :attr:`slots` as they are in another."""
        both = zip(self.slots, other.slots, strict=True)
        return self._with_slots([theirs if i in indices else own for i, (own, theirs) in enumerate(both)])

    def given(self, values: Sequence[Any], outputs: Sequence[torch.Tensor]) -> CallLayout:
        """The same call with plain arguments from other values, which give these outputs. Some problem files draw
        plain numbers.
        """
        args = tuple(a if isinstance(a, TensorSlot) else value for a, value in zip(self.args, values, strict=True))
        return replace(self, args=args, outputs=tuple((tuple(out.shape), str(out.dtype)[6:]) for out in outputs))

    def _with_slots(self, slots: Sequence[TensorSlot]) -> CallLayout:
        left = iter(slots)
        args = tuple(next(left) if isinstance(arg, TensorSlot) else arg for arg in self.args)
        return replace(self, args=args, grads=tuple(left))

    @functools.cached_property
    def input_bytes(self) -> int:
        """Room that the revealed tensors take."""
        return sum(_aligned(slot.nbytes) for slot in self.slots)

    @functools.cached_property
    def output_bytes(self) -> int:
        """Room that the outputs take."""
        return sum(_aligned(math.prod(shape) * DTYPES[dtype]) for shape, dtype in self.outputs)

    @property
    def nbytes(self) -> int:
        """Room that revealed tensors and outputs take together."""
        return self.input_bytes + self.output_bytes


def _aligned(nbytes: int) -> int:
    return (nbytes + _ALIGN - 1) // _ALIGN * _ALIGN


def offsets(sizes: Sequence[Sequence[int]]) -> tuple[list[list[int]], int]:
    """Where each tensor of each call starts when they follow one another, by their bytes; and where the last ends."""
    found, position = [], 0
    for of_call in sizes:
        offsets = []
        for nbytes in of_call:
            offsets.append(position)
            position += _aligned(nbytes)
        found.append(offsets)
    return found, position


InTraining = Literal["training", "interleaved", "after_backward", "backward_twice"]
"""Ways in which training calls (``worker/calls.py``)."""


class WindowLayout:
    """Byte offsets of the tensors of K calls in shared memory. One layout serves any number of windows."""

    def __init__(self, calls: Sequence[CallLayout], direction: Direction | InTraining) -> None:
        self.calls = tuple(calls)
        self.direction = direction
        self.offsets, self.input_bytes = offsets([[slot.nbytes for slot in call.slots] for call in self.calls])
        sizes = [[math.prod(shape) * DTYPES[dtype] for shape, dtype in call.outputs] for call in self.calls]
        self.output_offsets, self.output_bytes = offsets(sizes)
        self.starts = [0, *itertools.accumulate(call.input_bytes for call in self.calls)][:-1]
        first = self.calls[0] if self.calls else None
        self.uniform = all(call == first for call in self.calls)

    @property
    def nbytes(self) -> int:
        """Room that revealed tensors and outputs take together."""
        return self.input_bytes + self.output_bytes

    def written(self, first: int, stop: int) -> list[slice]:
        """The bytes of tensors that may be written to, of the calls from ``first`` up to ``stop``."""
        return [
            slice(offset, offset + slot.nbytes)
            for call, places in zip(self.calls[first:stop], self.offsets[first:stop], strict=True)
            for slot, offset in zip(call.slots, places, strict=True)
            if slot.written
        ]

    def where(self, byte: int) -> str:
        """What lies at a byte of the inputs: an argument or an upstream gradient by its number, or the room behind."""
        call = bisect.bisect_right(self.starts, byte) - 1
        places = [f"argument {i}" for i, arg in enumerate(self.calls[call].args) if isinstance(arg, TensorSlot)]
        places += [f"upstream gradient {i}" for i in range(len(self.calls[call].grads))]
        index = bisect.bisect_right(self.offsets[call], byte) - 1
        inside = byte < self.offsets[call][index] + self.calls[call].slots[index].nbytes
        return places[index] if inside else f"memory behind {places[index]}"

    def message(self) -> dict[str, Any]:
        """The ``prepare`` message: the calls; where they are uniform the first one, how many there are, how many bytes
        lie between them and where the first one's outputs have room; and the bytes of all inputs.
        """
        count = 1 if self.uniform else len(self.calls)
        described = zip(self.calls[:count], self.offsets[:count], strict=True)
        return {
            "direction": self.direction,
            "calls": [self._plain(c, p) for c, p in described],
            "times": len(self.calls) if self.uniform else 1,
            "step": self.calls[0].input_bytes if self.calls else 0,
            "room": [self.output_offsets[0], self.calls[0].output_bytes] if self.calls else [[], 0],
            "input_bytes": self.input_bytes,
        }

    @staticmethod
    def _plain(call: CallLayout, offsets: list[int]) -> dict[str, Any]:
        tensors = [
            {"tensor": [offset, slot.nbytes, slot.dtype, list(slot.shape), list(slot.strides), slot.offset]}
            for slot, offset in zip(call.slots, offsets, strict=True)
        ]
        arriving = iter(tensors)
        arguments = [next(arriving) if isinstance(a, TensorSlot) else {"value": encode_plain(a)} for a in call.args]
        return {
            "args": arguments,
            "weights": [i for i, a in enumerate(call.args) if isinstance(a, TensorSlot) and a.weight],
            "grads": list(arriving),
            "outputs": [[list(shape), dtype] for shape, dtype in call.outputs],
            "form": call.form,
            "shared": list(call.shared),
            "wanted": list(call.wanted),
            "dims": call.dims,
            "turn": call.gradient_rank,
        }

    def shuffled_output_offsets(self) -> list[list[int]]:
        """Output offsets, shuffled among calls of equal layout: which call goes where is secret until collection."""
        order = list(range(len(self.calls)))
        if self.uniform:
            random.Random(new_secret()).shuffle(order)  # SystemRandom takes four times as long for 256 calls
        return [self.output_offsets[i] for i in order]


class WindowBuffer:
    """The judge's private copy of a window's inputs, byte for byte what will be revealed.

    Args:
        content: the tensors of each call, as far as they are known; see :meth:`fill`.
    """

    def __init__(self, layout: WindowLayout, device: Device, content: Iterable[Sequence[torch.Tensor]] = ()) -> None:
        self.layout = layout
        self._device = device
        nbytes = max(layout.input_bytes, 1)
        self.bytes = torch.full((nbytes,), _GAP, dtype=torch.uint8, device=device.judge_device)
        self.source: Callable[[int], Sequence[torch.Tensor]] | None = None
        """seed -> the tensors of one call, where there is time to draw every call anew."""
        self._factors: dict[int, list[torch.Tensor]] = {}
        self._copy: torch.Tensor | None = None
        for call, tensors in enumerate(content):
            self.fill(call, tensors)

    def tensor(self, call: int, index: int) -> torch.Tensor:
        """View of the index-th revealed tensor of a call."""
        slot = self.layout.calls[call].slots[index]
        start = self.layout.offsets[call][index] // DTYPES[slot.dtype]
        return typed_view(self.bytes, getattr(torch, slot.dtype), slot.shape, slot.strides, start + slot.offset)

    def fill(self, call: int, tensors: Sequence[torch.Tensor]) -> None:
        """Write the tensors of one call; along a stride of 0 the first element is taken. What is shorter than the slot
        along a dim is repeated along it.
        """
        for index, given in enumerate(tensors):
            target, source = self.tensor(call, index), given
            longer = next((d for d, n in enumerate(given.shape) if n and n != target.shape[d]), None)
            if longer is not None:
                target, source = target.unflatten(longer, (-1, given.shape[longer])), given.unsqueeze(longer)
            for dim, stride in enumerate(target.stride()):
                if stride == 0 and target.shape[dim] > 1:
                    target, source = target.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
            target.copy_(source)

    def fill_all(self, drawn: Sequence[Sequence[torch.Tensor]]) -> None:
        """Write the tensors of all calls, which are uniform: of the first ones those given, then of these in turn."""
        count, known = len(self.layout.calls), len(drawn)
        for call, tensors in enumerate(drawn[:count]):
            self.fill(call, tensors)
        if count > known and self.layout.input_bytes:
            every = self.bytes.view(count, -1)
            for call in range(known):
                every[known + call :: known] = every[call]

    def refresh(self, generator: torch.Generator, first: int = 0) -> None:
        """Draw every call anew, from one call on. Without a source some elements of its tensors change, or all by
        secret factors, as their slots say. Exchanged values come from other positions of the same argument, so that
        every distribution, index range and dtype stays what it was: about 1 in 256 elements, at least four a tensor.
        """
        if not self.layout.calls or not self.layout.uniform:
            raise ValueError("only windows of uniform calls are refreshed")
        count = len(self.layout.calls)
        if self.source is not None:
            for call in range(first, count):
                self.fill(call, self.source(new_secret()))
            return
        for index, slot in enumerate(self.layout.calls[0].slots):
            if slot.extent == 0 or slot.refresh == "kept":
                continue
            elements = self._every(index, slot)
            every = elements.reshape(count, -1)  # a copy where elements lie apart: what is between them stays there
            if slot.refresh == "scaled":
                now = self._factors.setdefault(index, _ones(slot.shape, count, every.device))
                _scale(every[first:], slot.shape, [factors[first:] for factors in now], generator)
            elif slot.refresh in _BY_ROWS:
                _BY_ROWS[slot.refresh](every[first:], slot.shape, generator)
            elif slot.refresh == "seeds":
                every[first:].random_(0, _SEEDS, generator=generator)
            else:
                _roll(every[first:], generator, across=slot.refresh == "elements")
                if slot.refresh == "elements":
                    _exchange(every[first:], generator)
            if every.data_ptr() != elements.data_ptr():
                elements.copy_(every.view(elements.shape))

    def _every(self, index: int, slot: TensorSlot) -> torch.Tensor:
        """View of the index-th revealed tensor of all calls, (calls, *shape); of one that repeats along a stride of 0
        the storage, (calls, extent).
        """
        size = DTYPES[slot.dtype]
        start, step = self.layout.offsets[0][index] // size, self.layout.calls[0].input_bytes // size
        shape, strides, offset = slot.shape, slot.strides, slot.offset
        if any(stride == 0 and size > 1 for stride, size in zip(strides, shape, strict=True)):
            shape, strides, offset = (slot.extent,), (1,), 0
        # what only moves needs no type, and PyTorch moves no floating numbers of eight bits
        count, dtype = len(self.layout.calls), torch.uint8 if size == 1 else getattr(torch, slot.dtype)
        return typed_view(self.bytes, dtype, (count, *shape), (step, *strides), start + offset)

    def exchange(self, generator: torch.Generator) -> tuple[slice, ...]:
        """Exchange the inputs of two secret calls; a single call is refreshed. Returns which bytes have changed."""
        count = len(self.layout.calls)
        if count < 2:
            self.refresh(generator)
            return (slice(0, self.layout.input_bytes),)
        pair = secrets.SystemRandom().sample(range(count), 2)
        size = self.layout.calls[0].input_bytes
        one, other = (slice(self.layout.starts[call], self.layout.starts[call] + size) for call in pair)
        held = self.bytes[one].clone()
        self.bytes[one] = self.bytes[other]
        self.bytes[other] = held
        for factors in self._factors.values():
            for of in factors:
                of[pair] = of[pair[::-1]]
        return one, other

    def later(self, first: int) -> torch.Tensor:
        """The bytes of the calls from one on."""
        return self.bytes[self.layout.starts[first] : self.layout.input_bytes]

    def copy_of_later(self, first: int) -> torch.Tensor:
        """A copy of these bytes, until the next such copy: new pages take a host longer than copying to them."""
        later = self.later(first)
        if later.device.type != "cpu":
            return later.clone()
        if self._copy is None:
            self._copy = torch.empty_like(self.bytes)
        return self._copy[: len(later)].copy_(later)


def _ones(shape: tuple[int, ...], count: int, device: torch.device) -> list[torch.Tensor]:
    """Factors of each call's rows and columns, which are the same ones where the last two dims are equal."""
    if len(shape) < 2:
        return [torch.ones(count, math.prod(shape), device=device)]
    sizes = shape[-1:] if shape[-2] == shape[-1] else shape[-2:]
    return [torch.ones(count, size, device=device) for size in sizes]


def _scale(every: torch.Tensor, shape: tuple[int, ...], now: list[torch.Tensor], generator: torch.Generator) -> None:
    """Multiply rows and columns of each call's tensor by factors; the product of all of them, ``now``, stays within
    [0.64, 0.99]: nothing becomes larger than it was drawn, so probabilities stay what they are.

    Zeros stay zeros and, because rows and columns of square matrices have the same factors, symmetric ones stay so. One
    factor for a whole tensor would leave an old result right but for that factor.
    """
    count, extent = every.shape
    wanted = [torch.empty_like(factors).uniform_(0.8, 0.995, generator=generator) for factors in now]
    at_once = max(1, _ROLL_BYTES // max(extent * 4, 1))
    for start in range(0, count, at_once):
        part = slice(start, start + at_once)
        change = _outer([w[part] for w in wanted], shape) / _outer([n[part] for n in now], shape)
        rows = every[part].view(len(change), -1, *change.shape[1:])
        rows.mul_(change[:, None].to(every.dtype))
    for factors, new in zip(now, wanted, strict=True):
        factors.copy_(new)


def _outer(factors: list[torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    if len(shape) < 2:
        return factors[0]
    return factors[0][:, :, None] * factors[-1][:, None, :]


def _roll(every: torch.Tensor, generator: torch.Generator, *, across: bool = False) -> None:
    """Move all elements but the first and the last of each call along, by a secret number of places of its own;
    ``across``: they may come from the call before, which takes a third of the time where there are many of them.

    Else nearly everything would stay where it was, and a candidate that kept the last product would only add what the
    few other elements change: a hundredth of the work. Rows do not stay together, so results of whole rows are worth
    nothing; and calls that began as copies of one another do not stay equal.
    """
    count, extent = every.shape
    if extent < 4:
        return
    inner = extent - 2
    if extent * 8 > (_ROLL_CPU_BYTES if every.device.type == "cpu" else _ROLL_BYTES):
        calls, held = every[:, 1:-1], every[-1, 1:-1].clone()
        for number in reversed(range(count)):
            if not across:
                held.copy_(calls[number])
            source, by = calls[number - 1] if across and number else held, 1 + secrets.randbelow(inner - 1)
            calls[number, by:], calls[number, :by] = source[:-by], source[-by:]
        return
    shifts = torch.randint(1, inner, (count, 1), generator=generator, device=every.device)
    indices = torch.arange(inner, device=every.device)
    at_once = max(1, _ROLL_BYTES // (extent * 8))
    for part, by in zip(every[:, 1:-1].split(at_once), shifts.split(at_once), strict=True):
        part.copy_(part.gather(1, (indices + by) % inner))


def _roll_rows(every: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator) -> None:
    """Move the elements of each row along, by a secret number of places of its own."""
    count, width = len(every), shape[-1] if shape else 1
    rows = every.view(count, -1, width)
    shifts = torch.randint(width, (*rows.shape[:2], 1), generator=generator, device=every.device)
    indices = torch.arange(width, device=every.device)
    at_once = max(1, _ROLL_BYTES // (every.shape[1] * 8))
    for part, by in zip(rows.split(at_once), shifts.split(at_once), strict=True):
        part.copy_(part.gather(2, (indices + by) % width))


def _move_records(every: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator) -> None:
    """Move the rows of each call along as wholes, and exchange a few of them."""
    rows = every.view(len(every), -1, shape[-1])
    for call in rows:
        call.copy_(call.roll(1 + secrets.randbelow(len(call) - 1), 0))
    _exchange(rows, generator)


def _move_steps(every: torch.Tensor, shape: tuple[int, ...], generator: torch.Generator) -> None:
    """Put the steps between neighbours of each row in another order: what was sorted stays so, between the same ends.

    The first step and the last one stay where they are, and the others keep their order but for a secret shift.
    """
    at_once = max(1, _ROLL_BYTES // (every.shape[1] * 8))
    for part in every.split(at_once):
        rows = part.reshape(-1, shape[-1] if shape else 1).clone()
        steps = rows.diff(dim=1)
        if steps.numel():
            _roll(steps, generator)
            rows[:, 1:] = torch.minimum(rows[:, :1] + steps.cumsum(1), rows[:, -1:])  # beyond it by rounding
            part.copy_(rows.view(part.shape))


_BY_ROWS = {"rows": _roll_rows, "records": _move_records, "steps": _move_steps}


def _exchange(every: torch.Tensor, generator: torch.Generator) -> None:
    count, extent = every.shape[:2]
    shape = (count, max(4, extent // 256))
    device = every.device
    target = torch.randint(extent, shape, generator=generator, device=device)
    source = torch.randint(extent, shape, generator=generator, device=device)
    origin = torch.randint(count, shape, generator=generator, device=device)
    rows = torch.arange(count, device=device)[:, None].expand(shape)
    every[rows, target] = every[origin, source]
