"""First calls of coming cases, drawn with their expectations while a worker computes.

On an accelerator a candidate's first calls compile, and the judge would wait. Only operators' small cases are drawn
ahead: weights of module problems are revealed to the worker when a case is bound, and large tensors fill the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from kerneleval.devices import Device
from kerneleval.judge.probes.bound_case import BoundCase, Drawn
from kerneleval.records import Case, InfrastructureError, Task, new_secret

__all__ = ["Prefetch"]

_MOST = 8
"""Cases that are held drawn at a time."""

_MOST_BYTES = 8 << 20
"""Arguments and outputs of a case that is drawn ahead; what the oracle holds is several times as much."""


class Prefetch:
    """Cases drawn ahead of their turn, in one thread, in their order."""

    def __init__(self, task: Task, device: Device, bind: Callable[[Case], BoundCase]) -> None:
        """``bind``: as :meth:`CellJudge.bind`, safe to be called in another thread."""
        self._task, self._bind = task, bind
        # where stopping a worker stops its work, it computes on the processors that drawing would take from it
        self._useful = not device.pauses and not task.module
        self._coming: deque[Case] = deque()
        self._turn: dict[Case, int] = {}
        self._drawn: dict[Case, Future[tuple[BoundCase, Drawn]]] = {}
        self._thread: ThreadPoolExecutor | None = None

    @contextmanager
    def over(self, cases: Sequence[Case]) -> Iterator[None]:
        """Draw these cases ahead inside the block; nothing is being drawn or held when it is left."""
        if not self._useful:
            yield
            return
        self._coming.extend(cases)
        self._turn = {case: turn for turn, case in enumerate(cases)}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        try:
            self._go_on()
            yield
        finally:
            self._coming.clear()
            self._turn.clear()
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None
            self._drawn.clear()

    def take(self, case: Case) -> tuple[BoundCase, Drawn]:
        """The case bound and its first call, drawn now if it was not drawn ahead.

        Raises:
            UsageError, InfrastructureError: as in :meth:`BoundCase.draw`.
        """
        future = self._drawn.pop(case, None)
        self._pass_over(case)
        self._go_on()
        if future is not None:
            with suppress(InfrastructureError):  # memory that was taken then may be free now
                return future.result()
        return self._draw(case)

    def _pass_over(self, case: Case) -> None:
        """Drop the cases before this one: their turn has been left out."""
        turn = self._turn.get(case, -1)
        while self._coming and self._turn[self._coming[0]] <= turn:
            self._coming.popleft()
        for held in [held for held in self._drawn if self._turn[held] < turn]:
            self._drawn.pop(held).cancel()

    def _go_on(self) -> None:
        """Have as many cases drawn as may be held."""
        while self._thread is not None and self._coming and len(self._drawn) < _MOST:
            case = self._coming.popleft()
            if self._task.bytes(case.dims_map, case.dtype) <= _MOST_BYTES:
                self._drawn[case] = self._thread.submit(self._draw, case)

    def _draw(self, case: Case) -> tuple[BoundCase, Drawn]:
        bound = self._bind(case)
        return bound, bound.draw(new_secret())
