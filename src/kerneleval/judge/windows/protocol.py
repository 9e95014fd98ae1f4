"""Windows: commit, reveal, compute, collect. The one way in which a candidate is ever called.

A window is K prepared calls. The judge holds the inputs in a private *buffer*; it reveals them with one copy into
memory that the worker maps, starts its clock, and stops it when the worker says that everything is computed. Then it
destroys the revealed inputs, names secret offsets for the outputs, lets the worker copy them there, and snapshots them:

* nothing right can exist before the reveal, so precomputed, cached or stale results are wrong;
* work put off until after the clock stopped finds its inputs gone, and what can still be put off shows as collecting
  time beyond the baseline's, which is charged;
* outputs that lie in inputs are destroyed before they are collected, and of calls that share a buffer the last is left;
* the copy of the outputs is outside the timed part: it costs no candidate anything, and none can save it.

Nothing is compared here: ``oracle`` does that, and ``probes/calls.py`` puts both together. ``buffers.py`` says what a
window's memory looks like, ``worker/child.py`` is the other end.
"""

from __future__ import annotations

import ast
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kerneleval.devices import Arena, Device, typed_view
from kerneleval.devices.cpu import own_threads
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout, dense
from kerneleval.records import DTYPES, Failed
from kerneleval.worker.bell import Go
from kerneleval.worker.host import ANSWER_S, Worker, WorkerError
from kerneleval.worker.waiting import TimeLimit

_FLOAT_POISON = 0xFF
"""Byte written over the outputs' memory before collection: NaN in every float type, -1 in the signed integers."""

_LARGE_BYTES = 2 << 30
"""Shared ranges above this are for a single window."""

_PART_BYTES = 256 << 20
"""Bytes that are compared at a time, because comparing takes as much memory again."""

_MAPPED_BYTES_S = 1 << 30
"""Bytes that a worker maps in a second at least."""

_LOOKED = 32
"""Calls of a window, secret ones, of which the worker says whether their arguments are still what was given: all of
those that are judged for correctness, and so few of a timed window's that collecting takes no longer."""


_PLACE = re.compile(
    r'File "(?!<|[^"\n]*/(?:lib|kerneleval)/)[^"\n]{0,200}?(?P<file>[^"/\n]{1,200})", line (?P<line>\d{1,7}), '
    r"in (?P<function>\S{1,80})\n"
)
"""A frame of no library in a traceback."""


class NotAtRestError(Exception):
    """The device is at work for others: what a window would take now says nothing."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """What one window gave."""

    elapsed_ns: float
    """Judge's clock from just before ``go`` to the worker's ``computed``."""
    collect_ns: float
    """Judge's clock over the collection."""
    unclocked_ns: float
    """How long the revealed inputs lay open outside of both clocks, before the first and between the two; 0 where
    workers are paused meanwhile."""
    event_ns: float
    """Device time of all calls as the worker claims it; 0 where there is no device timer."""
    outputs: torch.Tensor
    """Private snapshot (uint8) of everything collected; of a timed window until the runner's next one."""
    output_offsets: list[list[int]]
    """Where each call's outputs lie in the snapshot."""
    wrong: dict[str, Any] | None
    """The worker's own word that an output has the wrong number, type, shape, dtype or device."""
    mutated: str
    """What of the revealed memory changed during the computation, looked at only when asked: ``argument 1``; empty:
    nothing."""
    destroy_ns: float = 0.0
    """From the worker's ``computed`` until the inputs were destroyed: longer where it was said too early. 0: workers
    are paused meanwhile, or inputs were looked at too."""
    peak_bytes: int | None = None
    """The most memory that the worker's tensors held at once, as the worker says: the outputs of all calls are in it,
    revealed inputs, which lie in the judge's memory, are not. None: the device does not count it, or the calls were
    recorded."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Cuts a window in two: when the earlier calls are done, their inputs are destroyed and their outputs collected,
    and only then the inputs of the later calls are revealed. The time of such a window says nothing.
    """

    at: int
    """How many calls are made first, at least one."""
    before: torch.Tensor | None = None
    """Bytes that lie in the place of the later calls' inputs before, so that a candidate that reads them early computes
    something else; None: the first call's inputs."""


@dataclass(frozen=True, kw_only=True)
class CallMode:
    """How the calls of a window are made. Its time is that of all passes, its outputs are the last one's."""

    rounds: int = 1
    """How often one pass goes through the calls without a word from the judge."""
    again: Callable[[float], torch.Generator | None] | None = None
    """Asked after each pass, with the time of all passes so far (ns). It gives the generator by which two secret calls
    exchange their inputs, in the buffer too, before the next pass; or None after the last pass."""
    gradient_alone: bool = False
    """Whether forward calls are made before the clock starts. Only for baselines, which are trusted not to do more in
    them, and one pass."""
    recorded: bool = False
    """Whether calls are launched as they were recorded; see :meth:`Runner.record`. One pass."""


_ORDINARY = CallMode()

_ANSWERS, _QUICK_NS, _PATIENCE_S = 6, 1_000_000, 0.5
"""Answers in a row by which a device is at rest, how soon each comes (ns), and how long they are waited for. At rest
the first takes 0.2 ms and the next ones 0.04 ms on an H200; at work for others, it turns to each for some 2 ms."""

_BUSY = f"the device was at work for {_PATIENCE_S:g} s while the candidate and the judge were not"

_SMALL_BYTES = 32 << 20
"""Inputs of less are revealed by one thread on a host, within a few ms."""


@dataclass(frozen=True, kw_only=True)
class _Collected:
    """What the collection of some calls' outputs gave."""

    answer: Mapping[str, Any]
    began_ns: int
    took_ns: int
    mutated: str
    """What the calls had changed of their inputs, if looked at; empty: nothing."""


class Runner:
    """A worker and the memory that it shares with the judge."""

    def __init__(self, worker: Worker, device: Device, processor: int) -> None:
        self.worker = worker
        self.device = device
        self._arenas: dict[str, Arena] = {}
        self._layout: WindowLayout | None = None
        self._processor = processor
        self._private: torch.Tensor | None = None  # where snapshots of timed windows lie
        self.trusted = False
        """Whether it is a baseline's: it is not watched while it is paused, and its outputs that may come in an input's
        memory, which are compared with nothing, are not copied while the clock runs."""
        self.launches = 0.0
        """Kernels of one recorded call, as the worker says; 0: none are recorded."""

    def close(self) -> None:
        """Kill the worker and give the memory back."""
        self.worker.close()
        for arena in self._arenas.values():
            self.device.release(arena)
        self._arenas.clear()

    def reserve(self, input_bytes: int, output_bytes: int) -> None:
        """Have at least this much shared memory; grows by powers of two so that mapping is rare."""
        for name, nbytes in (("in", input_bytes), ("out", output_bytes)):
            old = self._arenas.get(name)
            if old is not None and old.nbytes >= nbytes:
                continue
            self._layout = None
            size = max(1 << 20, 1 << math.ceil(math.log2(max(nbytes, 1))))
            arena = self.device.allocate(size)
            message = {"name": name, "handle": arena.handle, "fd": arena.fd >= 0}
            fds = (arena.fd,) if arena.fd >= 0 else ()
            try:
                self.worker.request("arena", message, "mapped", timeout_s=ANSWER_S + size / _MAPPED_BYTES_S, fds=fds)
            except BaseException:
                self.device.release(arena)
                raise
            if old is not None:
                self.device.release(old)
            self._arenas[name] = arena

    def shrink(self) -> None:
        """Give large shared ranges back; the worker keeps its mapping until it gets another."""
        for name, arena in list(self._arenas.items()):
            if arena.nbytes > _LARGE_BYTES:
                self.device.release(arena)
                del self._arenas[name]
                self._layout = None

    def prepare(self, layout: WindowLayout) -> None:
        """Tell the worker the layout of the coming windows."""
        self.begin_preparing(layout)()

    def begin_preparing(self, layout: WindowLayout, window: Mapping[str, Any] | None = None) -> Callable[[], None]:
        """The same without waiting: what is returned waits, and raises WorkerError, WorkerFailure as :meth:`window`.
        ``window``, as for :meth:`Worker.arm`: given where the first window opens at once.
        """
        if layout is self._layout:
            return lambda: None
        self.reserve(layout.input_bytes, layout.output_bytes)
        message = layout.message()
        for call in message["calls"] if self.trusted else ():
            call["shared"] = []
        self.worker.tell("prepare", message | ({"window": window} if window else {}))

        def prepared() -> None:
            self.worker.request("prepare", None, "prepared", timeout_s=ANSWER_S, spin_s=self.device.spin_s)
            self.worker.armed = window
            self._layout = layout

        return prepared

    def begin_recording(self, *, gradient_alone: bool, timeout_s: float) -> Callable[[], str]:
        """Have the prepared calls recorded, whose inputs are not there yet. What is returned waits, and says why they
        cannot be recorded; empty: they are. It raises WorkerError, WorkerFailure as :meth:`window`.
        """
        self.worker.tell("record", {"alone": gradient_alone})

        def recorded() -> str:
            answer = self.worker.request("record", None, "recorded", timeout_s=timeout_s)
            self.launches = _claimed_number(answer.get("launches"))
            return str(answer.get("refused", ""))[:300]

        return recorded

    def write_input(self, offset: int, tensor: torch.Tensor) -> None:
        """Copy a contiguous tensor to a byte offset of the revealed memory, outside of any window."""
        flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
        self._arenas["in"].bytes[offset : offset + flat.numel()].copy_(flat)

    def clear_inputs(self, nbytes: int) -> None:
        """Zero the first bytes of the revealed memory."""
        self._arenas["in"].bytes[:nbytes].zero_()

    def forget_layout(self) -> None:
        """The next window prepares anew."""
        self._layout = None

    def reveal(self, buffer: WindowBuffer, first: int = 0) -> None:
        """Copy the inputs of all calls, or of those from one on, into the shared memory."""
        later, stop = buffer.later(first), buffer.layout.input_bytes
        self._arenas["in"].bytes[stop - len(later) : stop].copy_(later)

    def _hide(self, buffer: WindowBuffer, cut: Cut) -> None:
        """Lay something else where the inputs of the calls after the cut will be."""
        inputs, stop = self._arenas["in"].bytes, buffer.layout.input_bytes
        if cut.before is not None:
            inputs[stop - len(cut.before) : stop].copy_(cut.before)
            return
        nbytes = buffer.layout.calls[0].input_bytes
        if buffer.layout.uniform and nbytes:
            later = inputs[cut.at * nbytes : stop].view(-1, nbytes)
            later.copy_(buffer.bytes[:nbytes].expand_as(later))

    def window(
        self,
        buffer: WindowBuffer,
        *,
        limit: TimeLimit,
        check_mutation: bool,
        timed: bool = False,
        cut: Cut | None = None,
        keep: int = -1,
        mode: CallMode = _ORDINARY,
        places: list[list[int]] | None = None,
    ) -> Window:
        """Reveal, compute, destroy, collect, snapshot.

        Args:
            limit: how long its calls may take.
            check_mutation: whether to see if revealed memory changed.
            timed: whether the window's time counts; if so the device comes to rest first.
            cut: where the window is cut in two; None: nowhere.
            keep: the call whose outputs the worker holds until :meth:`unchanged` asks for them; -1: none.
            mode: how the calls are made.
            places: of the outputs, as :meth:`WindowLayout.shuffled_output_offsets` gives them; None: drawn here.

        Raises:
            WorkerError: the candidate raised.
            WorkerFailure: its process is gone.
        """
        layout = buffer.layout
        self.begin_preparing(layout, self._opening(timed))()
        offsets = layout.shuffled_output_offsets() if places is None else places
        outputs = self._snapshot(layout.output_bytes, timed)  # before the clock starts
        revealed, started = self._open(buffer, cut, timed)
        staged, first = self.device.sharing == "staged", cut.at if cut is not None else 0
        if mode.gradient_alone:
            started = self._forward(buffer, 0, first or len(layout.calls), limit, mode.recorded)
        look = check_mutation and not staged
        early = self._first_part(buffer, cut, offsets, limit, look, mode.recorded, outputs) if cut is not None else None
        if cut is not None and mode.gradient_alone:
            self._forward(buffer, first, len(layout.calls), limit, mode.recorded)
        elapsed = self._compute(buffer, started, limit, first, mode)
        late = self._collect(buffer, offsets, first, len(layout.calls), limit, look, keep)
        _take_calls(outputs, self._arenas["out"].bytes[: len(outputs)], layout, offsets[first:])
        mutated, wrong = late.mutated, _claimed_wrong(late.answer.get("wrong"))
        if early is not None:
            mutated, wrong = mutated or early.mutated, _claimed_wrong(early.answer.get("wrong")) or wrong
        if check_mutation and layout.input_bytes and staged:
            mutated = self._mutated_there(buffer, first, limit)
        return Window(
            elapsed_ns=float(elapsed),
            collect_ns=float(late.took_ns),
            unclocked_ns=0.0 if self.device.pauses else float(late.began_ns - revealed - elapsed),
            event_ns=_claimed_number(late.answer.get("event_ns")),
            outputs=outputs,
            output_offsets=offsets,
            wrong=wrong,
            mutated=mutated,
            destroy_ns=0.0 if self.device.pauses or look else float(late.began_ns - started - elapsed),
            peak_bytes=_claimed_bytes(late.answer.get("peak_bytes")),
        )

    def _open(self, buffer: WindowBuffer, cut: Cut | None, timed: bool) -> tuple[int, int]:
        """Reveal the inputs; when that began and when the device had come to rest after it (ns)."""
        # on a host by one thread: no helper thread is woken from here on, so the time since counts as waiting for them
        alone = self.device.pauses and buffer.layout.input_bytes < _SMALL_BYTES
        began = time.perf_counter_ns() if alone else 0
        if self.worker.armed != (opening := self._opening(timed)):
            self.worker.arm(opening, self.device.spin_s)
        with self.still(), own_threads() if alone else nullcontext():
            revealed = time.perf_counter_ns()
            self.reveal(buffer)
            if cut is not None:
                self._hide(buffer, cut)
            if timed:
                self.device.settle(began)
            else:
                self.device.synchronize()
        return revealed, self._opened_ns()

    def _opening(self, timed: bool) -> dict[str, Any]:
        return {"processor": self._processor, "timed": timed}

    def _opened_ns(self) -> int:
        """When the worker could begin with what was revealed just now: it was paused, and is not looked at any more."""
        return self.worker.released_ns if self.device.pauses else time.perf_counter_ns()

    def _forward(self, buffer: WindowBuffer, first: int, stop: int, limit: TimeLimit, recorded: bool) -> int:
        """Have the forward calls made of those calls whose gradients come next; when the device rests again (ns)."""
        self.worker.request(
            "graphs", {"calls": [first, stop], "recorded": recorded}, "graphed", timeout_s=limit.calls_s
        )
        self.worker.arm(self._opening(timed=True), self.device.spin_s)
        with self.still():
            # once more, so that device and worker are as they are after any reveal: it takes the device 0.15 ms to go
            # on with another process, and the host is 0.05 ms late where it need not
            self.reveal(buffer, first)
            self.device.settle()
        return self._opened_ns()

    def _compute(self, buffer: WindowBuffer, started_ns: int, limit: TimeLimit, first: int, mode: CallMode) -> int:
        """Have all calls from ``first`` on made in as many passes as asked for; the time of all of them (ns), the first
        since ``started_ns``.
        """
        count = len(buffer.layout.calls)
        elapsed = self._go(first, count, mode.rounds, limit, mode.recorded) - started_ns
        while mode.again is not None and (generator := mode.again(elapsed)) is not None:
            self.worker.computed()
            with self.still():
                for changed in buffer.exchange(generator):
                    self._arenas["in"].bytes[changed].copy_(buffer.bytes[changed])
                self.device.settle()
            resumed = self._opened_ns()
            elapsed += self._go(0, count, mode.rounds, limit) - resumed
        return elapsed

    def _go(self, first: int, stop: int, rounds: int, limit: TimeLimit, recorded: bool = False) -> int:
        """Have these calls made; when the worker said that they were (ns)."""
        go = Go(first, stop, rounds, recorded)
        return self.worker.go(go, limit=limit, spin_s=self.device.spin_s)

    def _first_part(
        self,
        buffer: WindowBuffer,
        cut: Cut,
        offsets: list[list[int]],
        limit: TimeLimit,
        look: bool,
        recorded: bool,
        outputs: torch.Tensor,
    ) -> _Collected:
        """Have the calls before the cut made, and take their outputs before the others' inputs are revealed: what was
        put off until a later call is not there.
        """
        self._go(0, cut.at, 1, limit, recorded)
        early = self._collect(buffer, offsets, 0, cut.at, limit, look)
        outputs.copy_(self._arenas["out"].bytes[: len(outputs)])
        with self.still():
            self.reveal(buffer, cut.at)
            self.device.synchronize()
        return early

    def _collect(
        self,
        buffer: WindowBuffer,
        offsets: list[list[int]],
        first: int,
        stop: int,
        limit: TimeLimit,
        look: bool,
        keep: int = -1,
    ) -> _Collected:
        """Destroy the inputs of these calls, and only then name the places of their outputs and take them."""
        layout = buffer.layout
        with self.still():
            mutated = self._destroy(buffer, first, stop, look)
            self._arenas["out"].bytes[: layout.output_bytes].fill_(_FLOAT_POISON)
            looked = secrets.SystemRandom().sample(range(first, stop), min(stop - first, _LOOKED))
            message = {"calls": [first, stop], "places": offsets[first:stop], "keep": keep, "look": looked}
            self.device.synchronize()  # not settled: threads that still spin here do so for both sides
            began = time.perf_counter_ns()
        self.worker.computed()
        answer = self.worker.request(
            "collect", message, "collected", timeout_s=limit.calls_s, spin_s=self.device.spin_s
        )
        took = time.perf_counter_ns() - began
        return _Collected(answer=answer, began_ns=began, took_ns=took, mutated=mutated)

    def _snapshot(self, nbytes: int, timed: bool) -> torch.Tensor:
        """Private memory for a window's outputs; of timed windows on a host the same each time. To copy 278 MB to new
        pages took 124 ms, and to pages in use 17 (one thread).
        """
        shared = self._arenas["out"].bytes
        if not timed or shared.device.type != "cpu" or nbytes > _LARGE_BYTES:
            return shared.new_empty(nbytes)
        if self._private is None or len(self._private) < nbytes:
            self._private = shared.new_empty(nbytes)
        return self._private[:nbytes]

    def _destroy(self, buffer: WindowBuffer, first: int, stop: int, look: bool) -> str:
        """Zero the revealed inputs of these calls; what had changed, if looked at."""
        layout = buffer.layout
        start, end = (*layout.starts, layout.input_bytes)[first], (*layout.starts, layout.input_bytes)[stop]
        inputs = self._arenas["in"].bytes[start:end]
        if look:
            self._allow(buffer, first, stop)
        mutated = _changed(inputs, buffer, start, end) if look and end > start else ""
        inputs.zero_()
        return mutated

    def _allow(self, buffer: WindowBuffer, first: int, stop: int) -> None:
        """Put back what the calls may have written."""
        for part in buffer.layout.written(first, stop):
            self._arenas["in"].bytes[part].copy_(buffer.bytes[part])

    def _mutated_there(self, buffer: WindowBuffer, first: int, limit: TimeLimit) -> str:
        """What of the staged inputs of the calls from ``first`` on changed on the device, by what the worker gives back
        of them.
        """
        start, nbytes = buffer.layout.starts[first], buffer.layout.input_bytes
        self.worker.request("back", {}, "given_back", timeout_s=limit.calls_s)
        inputs = self._arenas["in"].bytes[:nbytes]
        self._allow(buffer, first, len(buffer.layout.calls))
        mutated = _changed(inputs[start:], buffer, start, nbytes)
        inputs.zero_()
        return mutated

    def unchanged(self, held: Sequence[Sequence[torch.Tensor]], timeout_s: float) -> bool:
        """Whether the outputs that the worker kept are what they were when they were collected.

        Outputs belong to the caller: one that a later call wrote over lay in a buffer that was given out before.

        Args:
            held: the outputs of each call that was kept, in order, as they were.

        Raises:
            WorkerError, WorkerFailure: as in :meth:`window`.
        """
        outputs = [tuple((tuple(t.shape), str(t.dtype)[6:]) for t in call) for call in held]
        layout = WindowLayout(
            [CallLayout(args=(), grads=(), outputs=of_call, wanted=(), dims={}) for of_call in outputs], "forward"
        )
        self.reserve(0, layout.output_bytes)
        arena = self._arenas["out"].bytes
        with self.still():
            arena[: layout.output_bytes].fill_(_FLOAT_POISON)
            self.device.synchronize()
        self.worker.request("recall", {"places": layout.output_offsets}, "recalled", timeout_s=timeout_s)
        for kept, offsets in zip(held, layout.output_offsets, strict=True):
            for before, offset in zip(kept, offsets, strict=True):
                raw = before.reshape(-1).view(torch.uint8)
                if not torch.equal(arena[offset : offset + raw.numel()], raw):
                    return False
        return True

    def still(self) -> AbstractContextManager[None]:
        """The worker is paused in this block, on devices where that stops its work."""
        return self.worker.paused(trusted=self.trusted) if self.device.pauses else nullcontext()

    @contextmanager
    def aside(self, *, rest: bool = False) -> Iterator[None]:
        """The worker is paused in this block, in which another one is timed; but not where that stops nothing on the
        device and takes long, without ``/proc``.

        Args:
            rest: whether the device must have done what the worker queued there.

        Raises:
            WorkerFailure: as :meth:`Worker.paused`.
            NotAtRestError: the device is at work all the same.
        """
        if not (self.device.pauses or self.worker.quick_pauses):
            yield
            return
        with self.worker.paused(trusted=self.trusted):
            if rest and not self.trusted and not at_rest(self.device):
                raise NotAtRestError(_BUSY)
            yield


def at_rest(device: Device) -> bool:
    """Whether the device answers at once, several times in a row, within half a second: at work for several processes,
    it turns to each for a few ms.
    """
    device.synchronize()  # what this process queued
    began, quick = time.monotonic(), 0
    while quick < _ANSWERS:
        if time.monotonic() > began + _PATIENCE_S:
            return False
        quick = quick + 1 if device.answer_ns() < _QUICK_NS else 0
    return True


def _take_calls(
    into: torch.Tensor, outputs: torch.Tensor, layout: WindowLayout, places: Sequence[Sequence[int]]
) -> None:
    """Copy the outputs of the last calls, which lie at these places, into a snapshot."""
    if len(places) == len(layout.calls):
        into.copy_(outputs)
        return
    size = layout.calls[0].output_bytes
    if layout.uniform and size and into.device.type != "cpu":
        rows = torch.tensor([place[0] // size for place in places], device=into.device)
        count = len(layout.calls)
        # eight bytes at a time, as in :func:`_changed`
        whole, late = (one[: count * size].view(torch.int64).view(count, -1) for one in (into, outputs))
        whole[rows] = late[rows]
        return
    for call, place in zip(layout.calls[-len(places) :], places, strict=True):
        part = slice(place[0], place[0] + call.output_bytes) if place else slice(0)
        into[part] = outputs[part]


def output_views(window: Window, layout: WindowLayout, call: int) -> tuple[torch.Tensor, ...]:
    """The private outputs of one call."""
    views = []
    for (shape, dtype), offset in zip(layout.calls[call].outputs, window.output_offsets[call], strict=True):
        slot = dense(shape, dtype)
        views.append(typed_view(window.outputs, getattr(torch, dtype), shape, slot.strides, offset // DTYPES[dtype]))
    return tuple(views)


def _changed(inputs: torch.Tensor, buffer: WindowBuffer, start: int, end: int) -> str:
    """What of the inputs from byte ``start`` on is not as it was; empty: all is. Eight bytes are compared at a time,
    which takes a seventh of the time: offsets of tensors, and so sizes of whole layouts, are multiples of 512 bytes.
    """
    words = (inputs.view(torch.int64), buffer.bytes[start:end].view(torch.int64))
    parts = zip(*(part.split(_PART_BYTES // 8) for part in words), strict=True)
    for number, (one, other) in enumerate(parts):
        if not torch.equal(one, other):
            first = int((one.view(torch.uint8) != other.view(torch.uint8)).int().argmax())
            return buffer.layout.where(start + number * _PART_BYTES + first)
    return ""


def _claimed_number(value: Any) -> float:
    """What a worker claims, from 0 on; 0 for what is no number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return 0.0
    try:
        claimed = float(value)
    except OverflowError:  # JSON has integers of any size
        return 0.0
    return claimed if math.isfinite(claimed) and claimed >= 0 else 0.0


def _claimed_bytes(value: object) -> int | None:
    """A worker's number of bytes; None: it is none."""
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _claimed_wrong(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    return {str(k)[:40]: str(v)[:200] for k, v in list(value.items())[:8]}


_WRONG = ("count", "type", "shape", "dtype", "device")
"""What a worker may say is wrong with an output; the reason is ``wrong_`` and one of these."""

_MOST_CLAIMS = 32
"""Claims of tampering that are read from one answer."""


_CAUSE = re.compile(r"(?P<kind>\w+)\((?P<text>.*?),?\)", re.DOTALL)
"""What Triton's interpreter says of an error that it met: how Python shows it."""

_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""One text in quotes. Nothing else that a candidate wrote is read as Python, which deep nesting could overflow."""


def raised(error: WorkerError) -> Failed:
    """The outcome of a candidate that raised during a call."""
    if error.kind == "GradientWrittenError":
        return Failed(stage="honesty", reason="input_mutation", message=str(error)[:500], evidence=error.evidence)
    if error.unsupported:
        evidence = {"no_gradient": True} if error.kind == "NoGradientError" else {}
        return Failed(stage="call", reason="unsupported", message=str(error)[:500], evidence=evidence)
    if error.kind == "MissingGradientError":
        evidence = error.evidence | {"what": "gradient"}
        return Failed(stage="call", reason="exception", message=str(error)[:500], evidence=evidence)
    kind, text = error.kind, str(error)
    while kind == "InterpreterError" and (cause := _CAUSE.fullmatch(text)):  # one for each function that called another
        kind, text = cause["kind"], cause["text"]
        if _TEXT.fullmatch(text):
            with suppress(ValueError, SyntaxError):  # an escape that is none
                text = str(ast.literal_eval(text))
    message = f"{kind}: {text}"[:900] + place(error)
    return Failed(stage="call", reason="exception", message=message, evidence=error.evidence)


def place(error: WorkerError) -> str:
    """Where in the candidate it was raised, to be told; empty where none of its lines had run."""
    lines = error.evidence.get("traceback", "")
    parts = [lines]
    if error.kind == "InterpreterError":  # Triton's tells in which launch; its cause, which comes first, in which line
        parts = lines.split("\nThe above exception was the direct cause")
    places = next(filter(None, map(_PLACE.findall, parts)), [])
    return " ({}:{}, in {})".format(*places[-1]) if places else ""


def claimed(wrong: dict[str, Any]) -> Failed:
    """The outcome of a candidate whose own worker says that an output has the wrong form."""
    what = wrong.get("what", "")
    if what == "argument":
        now, given = wrong.get("got", "an argument is another tensor"), wrong.get("want", "otherwise")
        message = f"after the call {now}; it was given {given}"
        return Failed(stage="honesty", reason="input_mutation", message=message, evidence=dict(wrong))
    if what == "alias":
        message = f"{wrong.get('got', 'an output lies in the memory of an input')}: outputs must be new tensors"
        return Failed(stage="correctness", reason="output_alias", message=message, evidence=dict(wrong))
    if what not in _WRONG:  # a reason is a slug for programs: no text of a worker's becomes one
        message = "the worker says that an output is wrong in a way that there is not"
        return Failed(stage="correctness", reason="protocol", message=message, evidence=dict(wrong))
    message = f"{wrong.get('got', 'something else')}; expected {wrong.get('want', 'another form')}"
    return Failed(stage="correctness", reason=f"wrong_{what}", message=message, evidence=dict(wrong))


@dataclass(frozen=True, kw_only=True)
class TamperingClaim:
    """One thing that the candidate did that it should leave alone, as its worker says."""

    what: str
    """Verb and object, for people."""
    level: Literal["warn", "fail"]
    """``warn`` for what an honest candidate might do."""
    when: Literal["load", "call"]
    """Whether it was there when the candidate had been loaded, before any call."""


def tampering_claims(answer: Mapping[str, Any]) -> list[TamperingClaim]:
    """The claims in a worker's answer; what is no claim is left out."""
    listed = answer.get("tampering")
    found = []
    for one in listed[:_MOST_CLAIMS] if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("what"), str):
            found.append(
                TamperingClaim(
                    what=one["what"][:200],
                    level="warn" if one.get("level") == "warn" else "fail",
                    when="load" if one.get("when") == "load" else "call",
                )
            )
    return found
