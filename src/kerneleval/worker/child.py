"""The worker: runs one candidate and answers the judge's messages. Everything it says is a claim.

It holds no secret: inputs appear in memory that the judge allocated, outputs are copied to places there, and the judge
says only after the computation which call's outputs go where. The messages carry shapes, not values.

A window is ``go`` (run every prepared call, wait for the device, say so) and ``collect`` (copy the outputs to the
places named). Correctness and timing use the same two messages, so a candidate cannot know which it is in. Between
``observe`` and ``observed``, windows are watched: what they dispatch and launch is counted, or own kernels do nothing,
or inputs and outputs are there and read in the order of the current stream alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneleval import devices, languages
from kerneleval.devices.common.call_graph import CallGraph, NotRecordedError
from kerneleval.devices.cpu import allow_processors, allowed_processors
from kerneleval.records import Candidate, InfrastructureError, Trust, from_plain, to_plain, without_hub
from kerneleval.sandbox import lifecycle
from kerneleval.sandbox.slot import ResourceLimits, Slot
from kerneleval.worker.bell import Bell
from kerneleval.worker.calls import Calling, PreparedCall, form_of, mismatch, outputs_of
from kerneleval.worker.compiling import CompileWatch
from kerneleval.worker.guarding import Guard
from kerneleval.worker.observing import Observing, triton_binaries
from kerneleval.worker.staging import InOrder, Moved, Staging
from kerneleval.worker.wire import LOST, STUCK, Channel, Closed, decode_plain

_TRACEBACK_CHARS = 4000
_LOOKS_A_POLL, _NAP_S = 64, 2e-4
"""So many looks at the bell for one at the socket; what an armed worker sleeps between them when it waited long."""
_RECOMPILATIONS = {"cache_size_limit": 256, "accumulated_cache_size_limit": 2048}  # as PyTorch 2.6 names them, too
"""Least limits for candidates that use ``torch.compile``; the defaults are 8 and 256."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Calls that are launched without the host."""

    forward: CallGraph
    """Forward calls, where gradients are recorded by themselves."""
    graph: CallGraph
    results: list[list[Any]]
    """Outputs of each call: a launch fills them anew."""
    sources: list[list[Any]]
    """The same, as they are copied when they are collected."""


class Worker:
    """State between messages."""

    def __init__(self, channel: Channel, device_name: str) -> None:
        self.channel = channel
        self.device = devices.find(device_name)
        self.processors, self.shared_processor = allowed_processors(), -1
        self.cache = os.environ.get("TRITON_CACHE_DIR", "")  # as it is before a candidate may set another
        self.arenas: dict[str, devices.Arena] = {}
        self.loaded: languages.Loaded | None = None
        self.calls: list[PreparedCall] = []
        self.calling: Calling | None = None
        self.direction, self.uniform = "forward", False
        self.weights: list[Any] = []
        self.results: list[list[Any]] = []
        self.recorded: Recorded | None = None
        self.launched = False  # whether the results are those of recorded calls
        self.room: tuple[list[int], int] = [], 0  # of uniform calls: the first outputs' places, and bytes between calls
        self.slots: dict[tuple[int, ...], list[Any]] = {}  # of these: views of outputs' places, by offsets
        self.graphs: list[Any] = []  # of calls whose gradients come next
        self.spent: list[Any] = []  # graphs that are let go when no clock runs
        self.kept: list[tuple[PreparedCall, list[Any]]] = []
        self.plain_calls: list[Mapping[str, Any]] = []
        self.observing: Observing | None = None
        self.guard: Guard | None = None
        self.in_order: InOrder | None = None
        self.staging = Staging(self.device)
        self.input_bytes = 0  # of all prepared calls
        self.beside: Any = None  # a module made before the one that is called
        self.moved: list[Moved] = []
        self.recording: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.watching = contextlib.ExitStack()
        self.event_ns = 0.0
        self.timer: devices.EventTimer | None = None
        self.spin_s = 0.0
        self.bell: Bell | None = None
        self.watch = CompileWatch(lambda: channel.send({"op": "compiling"}))

    def serve(self) -> None:
        """Answer messages until ``quit``. Raises Closed: the judge is gone; or what using the wire raises."""
        while True:
            message = self._next()
            operation = str(message.pop("op"))
            self.spin_s = 0.0
            if operation == "quit":
                return
            try:
                answer = getattr(self, f"on_{operation}")(message)
            except BaseException as error:  # noqa: BLE001 - the candidate may raise anything, SystemExit included
                answer = _error(operation, error) | {"broken": self._broken()}
            self.channel.send(answer)

    def _next(self) -> dict[str, Any]:
        """The judge's next message, or what it rings for. While a window is about to open, this process stays awake."""
        if self.bell is None or not self.spin_s:
            return self.channel.recv(None, self.spin_s)
        awake_until, looks = time.monotonic() + self.spin_s, 0
        while (go := self.bell.heard()) is None:
            looks += 1
            if looks % _LOOKS_A_POLL == 0:
                if (message := self.channel.poll()) is not None:
                    return message
                if time.monotonic() > awake_until:
                    time.sleep(_NAP_S)
        return {"op": "go", "calls": [go.start, go.stop], "rounds": go.rounds, "recorded": go.recorded}

    def on_bell(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Map the page by which windows begin and end."""
        fd = self.channel.take_fd()
        self.bell = Bell(fd)
        os.close(fd)
        return {"op": "belled"}

    def _broken(self) -> bool:
        """Whether the device context of this process is beyond use, as after an illegal memory access."""
        try:
            self.device.warm_up()
        except Exception:  # noqa: BLE001 - whatever it raises, this process cannot compute any more
            return True
        return False

    # -- life ---------------------------------------------------------------------------------------------------------

    def on_warm(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Create the device context."""
        self.device.warm_up()
        return {"op": "warmed"}

    def on_arena(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Map a range that the judge allocated."""
        fd = self.channel.take_fd() if message["fd"] else -1
        old = self.arenas.pop(message["name"], None)
        if old is not None:
            self.calls = []
            self.results, self.slots = [], {}
            self.device.release(old)
        self.arenas[message["name"]] = self.device.open(message["handle"], fd)
        return {"op": "mapped"}

    def on_build(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Compile without running anything of the candidate."""
        candidate = from_plain(Candidate, message["candidate"])
        out_dir = Path(message["dir"])
        out_dir.mkdir(parents=True, exist_ok=True)
        languages.find(candidate.language).build(candidate, out_dir, self.device.name, message["arch"])
        return {"op": "built"}

    def on_binaries(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What Triton compiled here so far."""
        return {"op": "binaries", "files": triton_binaries(self.cache, int(message["most_bytes"]))}

    def on_load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Turn the candidate into a callable; its import-time code runs here."""
        candidate = from_plain(Candidate, message["candidate"])
        language = languages.find(candidate.language)
        # sources that need no compiler go to temporary memory; from here on nothing else can be written
        directory = Path(message["dir"]) if language.needs_build else Path(tempfile.mkdtemp())
        lifecycle.seal()
        _allow_tf32(bool(message["tf32"]))
        self.observing, self.in_order = Observing(type(self), self.device), InOrder(self.device)
        self.observing.watch_over(self.in_order, self.staging, self.watch)
        self.guard = Guard(directory)
        with contextlib.suppress(OSError, RuntimeError):  # for the judge's message alone
            faulthandler.register(STUCK, file=2, all_threads=False)
        self.observing.ready()
        with self.watch.over(bool(message.get("watch"))):
            self.loaded = language.load(candidate, directory, self.device.name, names=tuple(message["names"]))
        self.loaded.watch(False)
        self.calling = Calling(self.loaded, self._is_revealed)
        self.observing.watch_over(self.calling)
        allow_processors(self.processors)  # an OpenMP library of its own bound this thread
        claims = self._tampering()
        self.guard.when = "call"
        self.observing.loaded()
        return {"op": "loaded", "backward": self.loaded.backward is not None, "tampering": claims}

    def _tampering(self) -> list[dict[str, str]]:
        """What the candidate did so far to what it should leave alone."""
        assert self.observing is not None and self.guard is not None
        if self.observing.lost:
            self.guard.note("fail", "ended PyTorch's profiler, which counted its operators")
        return self.guard.claims(self.observing.changed())

    def on_module(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Build the candidate's module and name its state; ``beside``: the one before lives on beside it."""
        import torch

        assert self.loaded is not None
        self.beside = self.loaded.module if message["beside"] else None
        torch.manual_seed(int(message["seed"]))
        init, keywords = decode_plain(message["init"])
        hub = without_hub({}) if "transformers" in sys.modules else contextlib.nullcontext()
        with hub, self.watch.over(bool(message.get("watch"))):
            module = self.loaded.make_module(init, keywords=keywords)
        self.loaded.form = message["form"]
        state = module.state_dict()
        return {"op": "module", "state": [[name, list(t.shape), str(t.dtype)[6:]] for name, t in state.items()]}

    def on_swap(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call the module that lives beside the one called so far; ``drop``: let the other one go."""
        assert self.loaded is not None and self.loaded.module is not None and self.beside is not None
        module, self.beside = self.beside, None if message["drop"] else self.loaded.module
        self.loaded.call_module(module)
        return {"op": "swapped"}

    def on_weights(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Copy revealed weights into the module's state, in place."""
        import torch

        assert self.loaded is not None and self.loaded.module is not None
        state = self.loaded.module.state_dict()
        tensors = [(name, self._tensor(description, self._revealed)) for name, description in message["tensors"]]
        stop = max(place + nbytes for _, (place, nbytes, *_) in message["tensors"])
        with torch.no_grad():
            self.staging.stage(self.arenas["in"], stop)
            for name, tensor in tensors:
                state[name].copy_(tensor)
        self.device.synchronize()
        self.staging.retire(self.arenas["in"], stop)
        return {"op": "weighted"}

    def on_arm(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A window is about to open: stay awake for it, on the processor where every worker waits. What a timed one
        takes beyond its calls is gone through once, so that it is in the processor's caches whenever the last one was.
        """
        self.shared_processor = message["processor"]
        allow_processors(frozenset({self.shared_processor} - {-1}))
        if self.device.spin_s and message["timed"]:
            self._timed(lambda: None)
        self.spin_s = self.device.spin_s
        return {"op": "armed"}

    def _leave_processor(self) -> None:
        """Workers of an accelerator share a processor in windows alone: else what they do at once would take turns.
        The system moves a process that may run anywhere only after some ms, so for a moment this one may not stay.
        """
        if not self.device.pauses:
            allow_processors(self.processors - {self.shared_processor})
            allow_processors(self.processors)

    def _timed(self, make: Callable[[], None]) -> None:
        """Run the calls of a window between two marks of the device's timer, and wait for everything they started."""
        import torch

        self.timer = self.timer or self.device.timer()
        gc.disable()
        try:
            self.timer.start()
            with torch.no_grad():
                make()
            self.timer.stop()
            self.device.synchronize()
        finally:
            gc.enable()

    # -- windows ------------------------------------------------------------------------------------------------------

    def on_prepare(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Describe the calls of the coming windows; with ``window``, as in :meth:`on_arm`, the first opens at once."""
        if "window" not in message:
            self._leave_processor()
        _allow_many_shapes()
        self._forget_recorded()
        self.results, self.slots = [], {}
        self.plain_calls = [
            _later(plain, number * message["step"]) for plain in message["calls"] for number in range(message["times"])
        ]
        self.calls = [self._prepared(plain, self._revealed) for plain in self.plain_calls]
        self.weights = [
            c.args[i] for c, plain in zip(self.calls, self.plain_calls, strict=True) for i in plain["weights"]
        ]
        self.direction, self.uniform = message["direction"], message["times"] > 1
        self.input_bytes, self.room = message["input_bytes"], message["room"]
        if "window" in message:
            self.on_arm(message["window"])
        return {"op": "prepared"}

    def on_record(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Record the prepared calls, whose inputs are not there yet, so that ``go`` can launch them without the host;
        ``alone``: their forward calls by themselves. ``refused`` says why they cannot be recorded.
        """
        import torch

        assert self.calling is not None
        self._leave_processor()
        self._forget_recorded()
        gc.disable()
        try:
            forward, graph = self.device.call_graph(), self.device.call_graph()
            with torch.no_grad():
                if message["alone"]:
                    results = self.calling.recorded_gradients(forward, graph, self.calls)
                else:
                    results = self.calling.recorded(graph, self.direction, self.calls)
        except (NotRecordedError, InfrastructureError, RuntimeError) as error:
            return {"op": "recorded", "refused": str(error)}
        finally:
            gc.enable()
        wrong = next(filter(None, map(self._malformed, self.calls, results)), None)
        if wrong is not None:
            return {"op": "recorded", "refused": f"recorded, {wrong['got']}, not {wrong['want']}"}
        assert self.observing is not None
        with self.observing.plainly():
            sources = [self._detached(call, outputs) for call, outputs in zip(self.calls, results, strict=True)]
        self.recorded = Recorded(forward=forward, graph=graph, results=results, sources=sources)
        return {"op": "recorded", "refused": "", "launches": graph.launches}

    def _forget_recorded(self) -> None:
        if self.recorded is not None:
            self.recorded.forward.close()
            self.recorded.graph.close()
            self.recorded = None

    def on_graphs(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Call the forward of these calls, so that the next ``go`` takes their gradients alone."""
        import torch

        assert self.calling is not None
        start, stop = message["calls"]
        torch.autograd.graph.increment_version(self.weights)
        self.staging.stage(self.arenas["in"], self.input_bytes)
        if message["recorded"]:
            assert self.recorded is not None
            self.recorded.forward.launch(start, stop)
        else:
            self.graphs = self.calling.graphs(self.calls[start:stop])
        self.device.synchronize()
        return {"op": "graphed"}

    def on_go(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Run the prepared calls, or those of them whose turn it is, so many times; the judge's clock is running."""
        import torch

        assert self.calling is not None
        start, stop = message["calls"]
        if self.device.pauses:  # the processors are the device: from where it waited, the candidate may go anywhere
            allow_processors(self.processors)
        if not self.graphs:
            torch.autograd.graph.increment_version(self.weights)  # for candidates that pack them by version
        self.staging.stage(self.arenas["in"], self.input_bytes)
        self.results, self.launched = self.results[:start], message["recorded"]
        self.watching.enter_context(self.recording)  # until outputs are collected: work that was put off is seen too
        with self.watch.over(bool(message.get("watch"))):
            self._timed(lambda: self._make(start, stop, message["rounds"], recorded=message["recorded"]))
        if stop == len(self.calls):
            self.staging.retire(self.arenas["in"], self.input_bytes)
        if self.bell is not None:
            self.bell.end()
        assert self.timer is not None
        self.event_ns = self.timer.elapsed_ns()
        self.spent, self.graphs = [*self.spent, *self.graphs], []
        self.spin_s = self.device.spin_s  # outputs are collected at once
        return {"op": "computed"}

    def _make(self, start: int, stop: int, rounds: int, *, recorded: bool) -> None:
        assert self.calling is not None
        if self.moved and self.in_order is not None:
            one = self.calling.one(self.direction)
            self.results = self.in_order.run(self.moved, lambda call: outputs_of(one(call), call.form), list)
        elif recorded:
            assert self.recorded is not None
            self.recorded.graph.launch(start, stop)
            self.results += self.recorded.results[start:stop]
        elif self.graphs:
            self.results += self.calling.of_graphs(self.calls[start:stop], self.graphs)
        else:
            for _ in range(rounds):
                del self.results[start:]  # those of a round before need no room beside this one's
                self.results += self.calling.all(self.direction, self.calls[start:stop])

    def on_collect(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the outputs of calls that were made to the places that the judge named just now."""
        start, stop = message["calls"]
        calls, places, wrong = self.calls[start:stop], message["places"], None
        if self.launched and self.recorded is not None:
            of = (call.outputs for call in calls)
            self._copy_out(zip(self.recorded.sources[start:stop], of, places, strict=True), uniform=True)
        else:
            wrong = self._deliver(calls, self.results[start:stop], places, start, uniform=self.uniform)
        wrong = wrong or next(filter(None, (self.calls[index].changed() for index in message["look"])), None)
        if message["keep"] >= 0:
            self.kept.append((self.calls[message["keep"]], self.results[message["keep"]]))
        # what recorded calls hold is not asked for, and it takes 0.3 ms to see
        peak = None if self.launched else self.device.peak_memory_bytes()
        if stop == len(self.calls):
            self.results, self.spent = [], []
            self.device.reset_peak_memory()
        return {"op": "collected", "event_ns": self.event_ns, "wrong": wrong, "peak_bytes": peak}

    def on_back(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Where inputs were staged: what became of them goes to where the judge revealed them."""
        self.staging.give_back(self.arenas["in"])
        return {"op": "given_back"}

    def on_recall(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the outputs that were kept once more; no later call may have changed them."""
        calls, results = zip(*self.kept, strict=True)
        self.kept = []
        wrong = self._deliver(calls, results, message["places"])
        return {"op": "recalled", "wrong": wrong}

    def _deliver(
        self,
        calls: Sequence[PreparedCall],
        results: Sequence[list[Any]],
        places: Sequence[Sequence[int]],
        first: int = 0,
        *,
        uniform: bool = False,
    ) -> dict[str, Any] | None:
        """Copy outputs to places in memory shared with the judge; what is wrong with the first that does not fit.
        ``first``: number of the first of these calls.
        """
        assert self.observing is not None
        fit: list[tuple[list[Any], Any, Sequence[int]]] = []
        wrong: dict[str, Any] | None = None
        with self.observing.plainly():
            for index, (call, outputs, at) in enumerate(zip(calls, results, places, strict=True), first):
                if problem := self._malformed(call, outputs):
                    wrong = wrong or {"call": index, **problem}
                else:
                    fit.append((self._detached(call, outputs), call.outputs, at))
            self._copy_out(fit, uniform=uniform)
        return wrong

    def _detached(self, call: PreparedCall, outputs: Sequence[Any]) -> list[Any]:
        """The outputs of a call as tensors of the worker's own, without a graph; numbers as tensors."""
        import torch

        assert self.observing is not None
        detach = self.observing.detach
        if not any(type(output) in (bool, int, float) for output in outputs):
            return [detach(output) for output in outputs]
        return [
            torch.tensor(output, dtype=getattr(torch, spec.dtype), device=self.device.torch_device)
            if type(output) in (bool, int, float)
            else detach(output)
            for output, spec in zip(outputs, call.outputs, strict=True)
        ]

    def _copy_out(self, made: Iterable[tuple[Sequence[Any], Sequence[Any], Sequence[int]]], *, uniform: bool) -> None:
        """Copy the outputs of calls, whose specifications are given, to these places of each. ``uniform``: all are
        prepared calls of one layout, whose places come again.
        """
        import torch

        assert self.observing is not None
        if uniform and not self.slots:
            self.slots = self._every_slot()
        targets, sources = [], []
        for outputs, specs, places in made:
            views = self.slots.get(tuple(places)) if uniform else None
            if views is None:
                views = [self._slot(spec, place) for spec, place in zip(specs, places, strict=True)]
            for view, output in zip(views, outputs, strict=True):
                if view is not None:
                    targets.append(view)
                    sources.append(output)
        if targets:
            with torch.no_grad(), self.observing.plainly():
                self.observing.foreach_copy(targets, sources)
        self.device.synchronize()

    def _slot(self, spec: languages.OutputSpec, place: int) -> Any:
        """View of the place of an output in shared memory; None: it is empty."""
        return None if 0 in spec.shape else self._slots_of(spec, place, 1, 0)[0]

    def _every_slot(self) -> dict[tuple[int, ...], list[Any]]:
        """By their places, views of those of the outputs of each call; all calls are uniform."""
        (first, step), count = self.room, len(self.calls)
        rows = [
            [None] * count if 0 in spec.shape else self._slots_of(spec, place, count, step)
            for spec, place in zip(self.calls[0].outputs, first, strict=True)
        ]
        return {
            tuple(place + number * step for place in first): [views[number] for views in rows]
            for number in range(count)
        }

    def _slots_of(self, spec: languages.OutputSpec, place: int, count: int, step: int) -> Sequence[Any]:
        """Views of so many places of an output, so many bytes apart."""
        import torch

        assert self.observing is not None
        dtype, strides = getattr(torch, spec.dtype), devices.contiguous_strides(spec.shape)
        shape, start = (count, *spec.shape), place // dtype.itemsize
        memory = self.arenas["out"].bytes.view(dtype)
        every = self.observing.as_strided(memory, shape, (step // dtype.itemsize, *strides), start)
        views: Sequence[Any] = self.observing.unbind(every)  # one by one they take three times as long
        return views

    def on_observe(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Watch the coming windows: count launches and, with ``record``, ATen operators; make own kernels no-ops with
        ``mute``; give with ``look`` what lies in their arguments.

        ``in_order`` lets the calls that are prepared run in the order of the current stream alone.
        """
        assert self.loaded is not None and self.observing is not None and self.in_order is not None
        self.moved = [self._move(plain) for plain in self.plain_calls] if message["in_order"] else []
        self.recording = self.observing.begin(
            self.loaded,
            record=bool(message["record"]),
            mute=bool(message["mute"]),
            inputs=self.arenas["in"].bytes if message.get("look") else None,
        )
        return {"op": "observing"}

    def on_observed(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Watch no longer, and report what was seen."""
        assert self.loaded is not None and self.observing is not None
        self.watching.close()
        self.recording, self.moved = contextlib.nullcontext(), []
        return {"op": "observed", **self.observing.end(self.loaded), "tampering": self._tampering()}

    # -- tensors ------------------------------------------------------------------------------------------------------

    def _malformed(self, call: PreparedCall, outputs: Sequence[Any]) -> dict[str, str] | None:
        assert self.observing is not None
        wrong = mismatch(list(outputs), call.outputs, self.device.torch_device, self.observing.kinds)
        return wrong or self._alias(outputs)

    def _alias(self, outputs: Sequence[Any]) -> dict[str, str] | None:
        for position, output in enumerate(outputs):
            if self._is_revealed(output):
                return {"what": "alias", "got": f"output {position} is in an input's memory", "want": "its own"}
        return None

    def _is_revealed(self, value: Any) -> bool:
        """Whether a tensor is in the memory in which the judge reveals inputs, and destroys them."""
        import torch

        if not isinstance(value, torch.Tensor) or value.numel() == 0 or "in" not in self.arenas:
            return False
        inputs, mirror, start = self.arenas["in"].bytes, self.arenas["in"].mirror, value.untyped_storage().data_ptr()
        if mirror is not None:  # every input is a part of one storage, whose pointer need not be an address
            return bool(start == mirror.untyped_storage().data_ptr())
        return 0 <= start - inputs.data_ptr() < inputs.numel()

    def _prepared(self, plain: Mapping[str, Any], memory: Callable[[int, int], Any]) -> PreparedCall:
        """A call over ``memory(place, nbytes)``."""

        def argument(one: Mapping[str, Any]) -> Any:
            return self._tensor(one["tensor"], memory) if "tensor" in one else decode_plain(one["value"])

        outputs = [languages.OutputSpec(shape=tuple(shape), dtype=dtype) for shape, dtype in plain["outputs"]]
        arguments, upstream = [argument(a) for a in plain["args"]], [argument(a) for a in plain["grads"]]
        given = [form_of(argument) for argument in arguments]
        return PreparedCall(
            arguments,
            upstream,
            outputs,
            plain["wanted"],
            plain["dims"],
            plain["turn"],
            given,
            plain["form"],
            plain["shared"],
        )

    def _move(self, plain: Mapping[str, Any]) -> Moved:
        """The call over memory of its own, which the inputs reach in the order of the stream."""
        assert self.in_order is not None
        in_order, private, revealed = self.in_order, [], []

        def memory(place: int, nbytes: int) -> Any:
            private.append(in_order.private(nbytes))
            revealed.append(self._revealed(place, nbytes))
            return private[-1]

        return Moved(call=self._prepared(plain, memory), private=private, revealed=revealed)

    def _revealed(self, place: int, nbytes: int) -> Any:
        return self.device.own_storage(self.arenas["in"], place, nbytes)

    def _tensor(self, description: Sequence[Any], memory: Callable[[int, int], Any]) -> Any:
        import torch

        place, nbytes, dtype, shape, strides, offset = description
        return devices.typed_view(memory(place, nbytes), getattr(torch, dtype), shape, strides, offset)


def _later(plain: dict[str, Any], nbytes: int) -> dict[str, Any]:
    """A call of the same form whose inputs are so many bytes further on."""

    def moved(one: dict[str, Any]) -> dict[str, Any]:
        return {"tensor": [one["tensor"][0] + nbytes, *one["tensor"][1:]]} if "tensor" in one else one

    return plain | {part: [moved(one) for one in plain[part]] for part in ("args", "grads")} if nbytes else plain


def _allow_tf32(allowed: bool) -> None:
    """PyTorch lets cuDNN use TF32 by default; here it is the task's or the user's choice, never silent."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def _allow_many_shapes() -> None:
    """A judge calls one process with more sizes, layouts and modes than PyTorch's compiler takes before it gives up."""
    config = sys.modules.get("torch._dynamo.config")
    for name, least in _RECOMPILATIONS.items():
        if config is not None and getattr(config, name, least) < least:
            setattr(config, name, least)


def _error(operation: str, error: BaseException) -> dict[str, Any]:
    kind = type.__dict__["__name__"].__get__(type(error))  # a metaclass may have another
    try:
        said = str(error) if not isinstance(error, SystemExit) else f"the candidate called exit({error.code!r})"
        text = str.__getitem__(said, slice(_TRACEBACK_CHARS))  # of a string of another class too
        lines = "".join(traceback.format_exception(error))
        if len(lines) > _TRACEBACK_CHARS:  # the cause, which comes first, and where it led to
            half = _TRACEBACK_CHARS // 2
            lines = f"{lines[:half]}\n...\n{lines[5 - half :]}"
    except BaseException:  # noqa: BLE001 - its text is the candidate's code too
        text, lines = "its text cannot be read", ""
    return {
        "op": "error",
        "during": operation,
        "kind": kind,
        "unsupported": issubclass(type(error), NotImplementedError),  # __class__ may be the candidate's code
        "message": text,
        "traceback": lines,
    }


def main(
    worker_fd: int,
    output_fd: int,
    slot: Mapping[str, Any],
    limits: Mapping[str, Any],
    device: str,
    zygote_pid: int,
) -> None:
    """Enter the sandbox, say so, serve. Called in the forked process; never returns to the zygote's code."""
    for target in (1, 2):
        os.dup2(output_fd, target)
    os.close(output_fd)
    channel = Channel(socket.socket(fileno=worker_fd), accept_fds=True)
    with contextlib.suppress(Closed):  # the judge may be gone at any moment: then there is no one to answer
        try:
            trust: Trust = lifecycle.enter(
                from_plain(Slot, slot),
                from_plain(ResourceLimits, limits),
                device,
                keep_fds=(worker_fd,),
                parent_pid=zygote_pid,
            )
            channel.send({"op": "ready", "pid": os.getpid(), "trust": to_plain(trust)})
        except Exception as error:  # noqa: BLE001 - reported to the judge, whatever it is
            channel.send(_error("enter", error))
            return
        try:
            Worker(channel, device).serve()
        except Exception:  # noqa: BLE001 - whatever a candidate left of the wire
            os._exit(LOST)
