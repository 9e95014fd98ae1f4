"""Candidates of generators: taken where there are some, asked for, many at a time, where they are made on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import OnEvent, tell
from kerneleval.records import Answer, Limits, Machine, Origin, Request, Task

if TYPE_CHECKING:
    from kerneleval.generators import Asked, Generator
    from kerneleval.store.store import Store

__all__ = ["Kept", "answers_of", "ask_all"]


class Kept:
    """Answers in a store that is opened when the first one is looked up: wrong settings leave no store behind."""

    def __init__(self, store_url: str | None) -> None:
        self._url, self._lock = store_url, threading.Lock()
        self._store: Store | None = None

    def _opened(self) -> Store:
        from kerneleval.store import open_store

        with self._lock:
            if self._store is None:
                self._store = open_store(self._url)
            return self._store

    def response(self, key: str) -> dict[str, Any] | None:
        """See :meth:`kerneleval.store.store.Store.response`."""
        return self._opened().response(key)

    def put_response(self, key: str, body: dict[str, Any]) -> None:
        """See :meth:`kerneleval.store.store.Store.put_response`."""
        self._opened().put_response(key, body)


def answers_of(
    maker: Generator | Asked,
    suite: Sequence[Task],
    machine: Machine,
    limits: Limits | None,
    on_event: OnEvent | None = None,
) -> dict[str, list[Answer]]:
    """What a generator has for each task, by task name: an answer a sample, one without candidate where it has nothing.

    Raises:
        UsageError: the generator's own input or settings are wrong.
    """
    from kerneleval.generators import Asked

    if isinstance(maker, Asked):
        requests = [
            Request(task=task, device=machine.device, machine=machine, limits=limits, sample=sample)
            for task in suite
            for sample in range(maker.samples)
        ]
        found: dict[str, list[Answer]] = {task.name: [] for task in suite}
        for request, answer in zip(requests, ask_all(maker, requests, on_event), strict=True):
            found[request.task.name].append(answer)
        return found
    return {task.name: list(_given(maker, task, machine.device)) for task in suite}


def _given(maker: Generator, task: Task, device: str) -> Iterator[Answer]:
    candidates = list(maker.candidates(task, device))
    for candidate in candidates:
        yield Answer(candidate=candidate, origin=candidate.origin)
    if not candidates:
        message = f"{maker.name} gave no candidate for {task.name}"
        yield Answer(candidate=None, origin=Origin(generator=maker.name), message=message)


def ask_all(maker: Asked, requests: Sequence[Request], on_event: OnEvent | None = None) -> list[Answer]:
    """The answers to all requests, in their order; as many are under way at once as the generator bears.

    Ctrl-C, and an error of one request, end the others as soon as they come back; what they brought is in the cache.

    Raises:
        UsageError: the generator's settings are wrong.
    """
    total = len(requests)
    if not total:
        return []
    stop = threading.Event()

    def ask(request: Request) -> Answer | None:
        return None if stop.is_set() else maker.ask(request)

    text = f"{maker.name}: asking"
    tell(on_event, "generate", 0, total, text)
    threads = ThreadPoolExecutor(max_workers=max(1, maker.concurrency), thread_name_prefix="kerneleval-ask")
    try:
        futures = [threads.submit(ask, request) for request in requests]
        found = _gathered(futures, lambda done: tell(on_event, "generate", done, total, text))
    finally:
        stop.set()
        threads.shutdown(wait=False, cancel_futures=True)
    return found


def _gathered(futures: Sequence[Future[Answer | None]], on_done: Callable[[int], None]) -> list[Answer]:
    open_ = set(futures)
    while open_:
        done, open_ = wait(open_, timeout=0.5, return_when=FIRST_COMPLETED)  # wakes up for Ctrl-C
        for future in done:
            future.result()  # raises what went wrong at once, not after all the others
        if done:
            on_done(len(futures) - len(open_))
    answers = [future.result() for future in futures]
    return [answer for answer in answers if answer is not None]
