"""Cases in which offsets exceed 31 bits (``tasks/far_offsets.far_cases``): few items far apart, and many rows.

Of many rows a few are drawn, which the others repeat, so the reference runs on few. Parts of the outputs are compared
with what is right for these: the first, the last, those about offset 2^31, and secret ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, compare
from kerneleval.judge.probes.calls import BoundCase, Calls, Drawn
from kerneleval.judge.windows.buffers import CallLayout, TensorSlot, dense
from kerneleval.judge.windows.protocol import claimed, output_views
from kerneleval.records import (
    FAR,
    Arg,
    Case,
    Failed,
    InfrastructureError,
    Outcome,
    Passed,
    TensorSpec,
    UsageError,
    new_secret,
)
from kerneleval.tasks.far_offsets import FAR_ELEMENTS, FAR_PARTS, far_apart, repeated_rows

_SECRET_PARTS = 4
"""Parts of many rows that are compared at secret places."""

_BYTES_PER_S, _HOST_BYTES_PER_S = 5e10, 2e9
"""What a candidate that is no slower than it should be reads and writes at least, on an accelerator and a host."""

_HOST_ROOM_BYTES = 12 << 30
"""Room for such a case on processors, where a worker may map 8 GiB."""


def room_bytes(device: Device) -> int:
    """Memory that one such case may take: three quarters of an accelerator's, half of the host's that is free."""
    if device.sharing == "staged":
        return 0
    room = FAR_PARTS * device.largest_case_bytes()
    return min(room, _HOST_ROOM_BYTES) if device.pauses else room


class FarOffsets:
    """Judges such cases of one candidate."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def judge(self, case: Case) -> Outcome:
        """The outcome of one window with one call.

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        calls, name = self._calls, self._calls.task.table.folded
        bound, rows = calls.bind(replace(case, layout="contiguous")), 0
        if case.layout != FAR:
            rows = repeated_rows(case, name)
            dims = tuple((dim, rows if dim == name else size) for dim, size in case.dims)
            bound = calls.bind(replace(case, dims=dims))
        drawn = bound.draw(new_secret())
        layout = self._spread(bound, drawn) if not rows else self._many(bound, drawn, case)
        rate = _HOST_BYTES_PER_S if calls.device.pauses else _BYTES_PER_S
        drawn = replace(drawn, took_s=max(drawn.took_s, layout.nbytes / rate))
        try:
            window, placed = calls.call(bound, [drawn], look=False, layouts=[layout])
            if window.wrong is not None:
                return claimed(window.wrong)
            outputs = output_views(window, placed, 0)
            outcome = self._compared(outputs, drawn, rows)
            del window, outputs
        finally:
            calls.loaded.runner.shrink()
        if isinstance(outcome, Failed) and not self._native_is_right(bound, drawn, layout, rows):
            return Passed(evidence={"native_is_wrong": 1})
        return outcome

    def _spread(self, bound: BoundCase, drawn: Drawn) -> CallLayout:
        """The call with the items of its first argument far apart."""
        layout = bound.call_layout(drawn)
        slot = layout.slots[0]
        extent, strides = far_apart(slot.shape)
        return replace(layout, args=(replace(slot, strides=strides, extent=extent), *layout.args[1:]))

    def _many(self, bound: BoundCase, drawn: Drawn, case: Case) -> CallLayout:
        """The call with all rows of the case."""
        task, layout = bound.task, bound.call_layout(drawn)
        specs = task.arguments(case.dims_map, case.dtype)
        args = tuple(
            dense(spec.shape, arg.dtype) if isinstance(arg, TensorSlot) and isinstance(spec, TensorSpec) else arg
            for arg, spec in zip(layout.args, specs, strict=True)
        )
        sizes = task.table.sizes(case.dims_map)
        shapes = [out.shape_at(sizes) for out in task.table.outputs]
        outputs = tuple((shape, dtype) for shape, (_, dtype) in zip(shapes, layout.outputs, strict=True))
        return replace(layout, args=args, outputs=outputs, dims=case.dims_map)

    def _compared(self, outputs: Sequence[torch.Tensor], drawn: Drawn, rows: int) -> Outcome:
        """What the judge makes of the outputs; where rows repeat, of some parts of them."""
        for part in self._parts(outputs, drawn, rows) if rows else [outputs]:
            result = compare(part, drawn.expectation)
            if not isinstance(result, Match):
                return Failed(
                    stage="correctness", reason=result.reason, message=result.message, evidence=result.evidence
                )
        return Passed(evidence=result.evidence)

    def _parts(self, outputs: Sequence[torch.Tensor], drawn: Drawn, rows: int) -> Iterator[list[torch.Tensor]]:
        table = self._calls.task.table
        dims = [out.shape.split().index(table.folded) for out in table.outputs]
        first = next(i for i, arg in enumerate(table.args) if isinstance(arg, Arg))
        count = outputs[0].shape[dims[0]] // rows
        middle = FAR_ELEMENTS // drawn.args[first].numel()
        chance = secrets.SystemRandom()
        behind = range(min(middle, count - 1), count)
        places = {0, count - 1, *behind[:2], *(chance.randrange(count) for _ in range(_SECRET_PARTS))}
        for place in sorted(places):
            yield [out.narrow(dim, place * rows, rows).contiguous() for out, dim in zip(outputs, dims, strict=True)]

    def _native_is_right(self, bound: BoundCase, drawn: Drawn, layout: CallLayout, rows: int) -> bool:
        """Whether PyTorch itself is right there; True where memory may not do to tell: of many rows PyTorch makes wider
        copies, which fill a host.
        """
        calls = self._calls
        if rows and calls.device.pauses:
            return True
        try:
            args, _ = bound.laid_out(drawn, layout, calls.device)
            where = reference.native_place(calls.device)
            outputs = reference.native(bound.task, bound.case, args, None, tf32=bound.tf32, native_on=where)
            return isinstance(self._compared(outputs, drawn, rows), Passed)
        except UsageError:
            return False
        except (InfrastructureError, torch.OutOfMemoryError, MemoryError):
            return True
