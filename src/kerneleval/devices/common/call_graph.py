"""Calls recorded as one graph (a CUDA graph): what they launch, without what it costs to launch it from the host.

It is known which part of the graph each call has made, so that any run of the calls can be launched by itself: where a
window is cut is chosen after the candidate's code has run, and the same graph computes its parts.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

_KERNEL, _WORK = 0, (0, 1, 2)
"""Kinds of nodes that can be left out (``CUgraphNodeType``): kernel, memcpy, memset."""
_FIXED = (5, 6, 7)
"""Kinds that do nothing but order others: empty, event wait and event record."""


_HELD, _MOST_BETWEEN = 8, 200
"""Pieces of memory that are held between calls, and the most that each has (512 bytes). A logsumexp of
256 x 256, recorded twelve times, took 14.25 or 14.65 us on an H200 by where its tensors lay, each recording within
0.3 %; with these pieces 14.41 to 14.74 us."""


class NotRecordedError(Exception):
    """Calls cannot be recorded; the text says why."""


class CallGraph:
    """The graph of some calls.

    Args:
        driver: name of a function of CUDA's driver library and its arguments -> nothing. Raises where it fails.
    """

    def __init__(self, driver: Callable[..., None]) -> None:
        import torch

        self._driver = driver
        self._new = torch.cuda.CUDAGraph
        self._empty, self._bytes = torch.empty, torch.uint8
        self._stream = _stream()
        self._on: Callable[[Any], Any] = torch.cuda.stream
        self._current: Callable[[], Any] = torch.cuda.current_stream
        self._graph: Any = None  # it owns the memory of what calls return
        self._whole = ctypes.c_void_p()
        self._part = ctypes.c_void_p()  # the instance of a part of the calls that was launched last
        self._nodes: list[list[int]] = []  # of each call, those that do its work
        self._kernels = 0  # of all calls

    def record(self, calls: Iterable[Callable[[], Any]]) -> list[Any]:
        """What the calls return, which are recorded and not run: :meth:`launch` fills these tensors.

        Raises:
            NotRecordedError: one waits for the device, uses another stream, or launches nothing.
        """
        try:
            graph = self._new(keep_graph=True)
        except TypeError:
            raise NotRecordedError("this PyTorch cannot keep the graphs that it records; 2.8 can") from None
        pool, *_ = _pool()
        results: list[Any] = []
        between: list[Any] = []
        ends: list[tuple[int, list[int]]] = []
        with self._on(self._stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                for call in calls:
                    between = [*between[-_HELD:], self._between()]
                    results.append(call())
                    ends.append(self._recorded_nodes())
            except BaseException as error:
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise NotRecordedError(_first_line(error)) from error
            try:
                graph.capture_end()
            except RuntimeError as error:
                raise NotRecordedError(_first_line(error)) from error
        self._graph = graph
        recorded = ctypes.c_void_p(graph.raw_cuda_graph())
        self._divide(recorded, ends)
        self._whole = self._instance(recorded)
        return results

    def _between(self) -> Any:
        """Memory of a random size, so that the tensors of each call lie elsewhere."""
        return self._empty(random.randrange(1, _MOST_BETWEEN) << 9, dtype=self._bytes, device="cuda")

    def _instance(self, graph: ctypes.c_void_p) -> ctypes.c_void_p:
        ready = ctypes.c_void_p()
        self._driver("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        return ready

    def _recorded_nodes(self) -> tuple[int, list[int]]:
        """How many nodes the graph has that is being recorded, and the last ones."""
        status, graph, count, before = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        last = ctypes.POINTER(ctypes.c_void_p)()
        info = (ctypes.byref(one) for one in (graph, last, before))
        stream = ctypes.c_void_p(self._stream.cuda_stream)
        self._driver("cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), None, *info)
        if graph.value is None:
            raise NotRecordedError("the recording was ended from inside of a call")
        self._driver("cuGraphGetNodes", graph, None, ctypes.byref(count))
        return count.value, [node for node in last[: before.value] if node]

    def _divide(self, graph: ctypes.c_void_p, ends: list[tuple[int, list[int]]]) -> None:
        """Note which nodes are whose: they are listed in the order in which they were made, which is looked at."""
        count = ctypes.c_size_t(ends[-1][0])
        nodes = (ctypes.c_void_p * ends[-1][0])()
        if ends[-1][0]:
            self._driver("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
        start, listed = 0, set[int | None]()
        for end, last in ends:
            listed.update(nodes[start:end])
            kinds = {node: self._kind(node) for node in nodes[start:end] if node}
            if end == start or set(kinds.values()) <= set(_FIXED):
                raise NotRecordedError("a call launches nothing on PyTorch's current stream, where its work belongs")
            if set(last).isdisjoint(kinds) or not listed.issuperset(last):
                raise NotRecordedError("the driver does not list the work of a call by itself")
            if other := sorted(set(kinds.values()) - {*_WORK, *_FIXED}):
                raise NotRecordedError(f"a call has work in it of a kind that cannot be left out ({other[0]})")
            self._nodes.append([node for node, kind in kinds.items() if kind in _WORK])
            self._kernels += list(kinds.values()).count(_KERNEL)
            start = end

    def _kind(self, node: int) -> int:
        kind = ctypes.c_int()
        self._driver("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        return kind.value

    @property
    def launches(self) -> float:
        """Kernels of one call, on average; 0: nothing is recorded."""
        return self._kernels / max(1, len(self._nodes))

    def launch(self, start: int, stop: int) -> None:
        """Launch the calls from ``start`` on, one after another, on the current stream."""
        whole = (start, stop) == (0, len(self._nodes))
        if start < stop:
            stream = ctypes.c_void_p(self._current().cuda_stream)
            self._driver("cuGraphLaunch", self._whole if whole else self._part_of(start, stop), stream)

    def _part_of(self, start: int, stop: int) -> ctypes.c_void_p:
        """The same without the work of all other calls, which is taken out of a copy. Where it is switched off instead,
        as the driver can, nothing waits for a kernel before a memset that is off, not even the end of the graph: a
        product that cuBLAS splits was there 6 ms after the device seemed to rest.
        """
        copy, node = ctypes.c_void_p(), ctypes.c_void_p()
        self._driver("cuGraphClone", ctypes.byref(copy), ctypes.c_void_p(self._graph.raw_cuda_graph()))
        try:
            for original in itertools.chain(*self._nodes[:start], *self._nodes[stop:]):
                self._driver("cuGraphNodeFindInClone", ctypes.byref(node), ctypes.c_void_p(original), copy)
                self._driver("cuGraphDestroyNode", node)
            ready = self._instance(copy)
            self._forget(self._part)
            self._part = ready
        finally:
            self._driver("cuGraphDestroy", copy)
        return self._part

    def _forget(self, instance: ctypes.c_void_p) -> None:
        if instance.value is not None:
            self._driver("cuGraphExecDestroy", instance)

    def close(self) -> None:
        """Give the graph and its memory back."""
        self._forget(self._whole)
        self._forget(self._part)
        self._whole, self._part, self._graph = ctypes.c_void_p(), ctypes.c_void_p(), None


@functools.cache
def _stream() -> Any:
    """The stream on which this process records: gradients run on that of their forward call."""
    import torch

    return torch.cuda.Stream()


@functools.cache
def _pool() -> tuple[Any, ...]:
    """The memory of all graphs of this process, and what keeps it: a graph that uses it. What one graph had, the next
    one has then. PyTorch keeps the memory of a graph that is gone for no other: a baseline's process held 64 GiB after
    thirty verdicts.
    """
    import torch

    handle, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(_stream()):
        graph.capture_begin(pool=handle, capture_error_mode="thread_local")
        launched = torch.zeros(1, device="cuda")  # PyTorch warns of a graph that launches nothing
        graph.capture_end()
    return handle, graph, launched


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
