"""Candidates of generators: taken where they exist, requested, many at a time, where they are made on demand."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kerneleval.generators.common.base import Stoppable
from kerneleval.records import Answer, Candidate, OnEvent, Origin, Request, Task, UsageError, tell

if TYPE_CHECKING:
    from kerneleval.generators import Asked, Generator
    from kerneleval.store.store import Store


class Caps:
    """What may be spent on asking generators (US dollars; tokens, prompt and completion together), and for how many
    hours a run may go on from now, asking and judging; None: no limit. Shared by all threads.

    All answers of a run count, those that an earlier, interrupted call of it paid for too. What is under way when a
    limit is reached is finished, and is counted beforehand as the mean of the answers before it. Raises UsageError for
    a limit that is not above 0.
    """

    def __init__(self, usd: float | None = None, tokens: int | None = None, hours: float | None = None) -> None:
        for name, value in (("--max-usd", usd), ("--max-tokens", tokens), ("--max-hours", hours)):
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0, not {value:g}")
        self._usd, self._tokens, self._hours = usd, tokens, hours
        self._until = None if hours is None else time.monotonic() + hours * 3600
        self._lock = threading.Lock()
        self._spent_usd, self._spent_tokens, self._answers, self._open = 0.0, 0, 0, 0

    def begin(self) -> str:
        """Whether one more may be asked: empty, and it counts as under way until :meth:`end`; else why not."""
        with self._lock:
            said = self._reached()
            self._open += not said
            return said

    def end(self, origin: Origin, *, answered: bool = True) -> None:
        """What one answer cost. Raises UsageError where money is limited, and the price of this answer is not known."""
        with self._lock:
            self._open -= 1
            self._answers += answered
            self._spent_usd += origin.money_usd
            self._spent_tokens += origin.tokens_in + origin.tokens_out
        if self._usd is not None and answered and not origin.prices:
            raise UsageError(
                f"--max-usd cannot be kept: what {origin.generator} costs is not known ({origin.model or 'no model'} "
                "is in no price list, or the endpoint does not report its usage); give it a table [generator.prices], "
                "or limit --max-tokens"
            )

    def out_of_time(self) -> str:
        """Why nothing more is judged; empty: there is time."""
        if self._until is not None and time.monotonic() >= self._until:
            return f"--max-hours {self._hours:g} is over"
        return ""

    def _reached(self) -> str:
        if said := self.out_of_time():
            return said
        ahead = self._open / max(1, self._answers)
        if self._usd is not None and self._spent_usd * (1 + ahead) >= self._usd:
            return f"--max-usd {self._usd:g} is reached: {self._spent_usd:.4f} were spent"
        if self._tokens is not None and self._spent_tokens * (1 + ahead) >= self._tokens:
            return f"--max-tokens {self._tokens} is reached: {self._spent_tokens} were used"
        return ""


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


def answers_of(maker: Generator, suite: Sequence[Task], device: str) -> dict[str, list[Answer]]:
    """What a generator has, by task name: an answer a sample, one without candidate where it has nothing."""
    found = {}
    for task in suite:
        message = f"{maker.name} gave no candidate for {task.name}"
        nothing = Answer(candidate=None, origin=Origin(generator=maker.name), message=message)
        answers = [Answer(candidate=one, origin=one.origin) for one in maker.candidates(task, device)]
        found[task.name] = answers or [nothing]
    return found


def ask_all(
    maker: Asked,
    requests: Sequence[Request],
    on_event: OnEvent | None = None,
    *,
    caps: Caps | None = None,
    check: Callable[[Candidate, Task], tuple[bool, str]] | None = None,
) -> list[Answer]:
    """The answers to all requests, in their order; as many are under way at once as the generator allows.

    Ctrl-C, and an error of one request, end the others without waiting for them; what they brought is in the cache.
    Requests beyond ``caps`` are answered by the problem ``budget``. ``check`` judges a draft for a generator that tries
    before it answers; it is called in this thread alone. Raises UsageError where the generator's settings are wrong, or
    what it costs cannot be limited.
    """
    total = len(requests)
    if not total:
        return []
    desk = _Desk(maker, requests, caps, check)
    text = f"{maker.name}: asking"
    tell(on_event, "generate", 0, total, text)
    try:
        desk.open()
        for done in desk.serve():
            tell(on_event, "generate", done, total, text)
    finally:
        desk.close()
    return [desk.answers[i] for i in range(total)]


class _Desk:
    """Requests that threads take to the generator, and their answers; drafts are judged in the thread that serves it.

    Its threads are daemons: a connection that hangs does not keep the program from ending.
    """

    def __init__(
        self,
        maker: Asked,
        requests: Sequence[Request],
        caps: Caps | None,
        check: Callable[[Candidate, Task], tuple[bool, str]] | None,
    ) -> None:
        self._maker, self._caps, self._check = maker, caps, check
        self._todo = iter(enumerate(requests))
        self._open = len(requests)
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.answers: dict[int, Answer] = {}

    def open(self) -> None:
        """Begin."""
        for number in range(max(1, min(self._maker.concurrency, self._open))):
            threading.Thread(target=self._work, name=f"kerneleval-ask-{number}", daemon=True).start()

    def close(self) -> None:
        """The answers are not wanted any more."""
        self._stop.set()
        if self._open and isinstance(self._maker, Stoppable):
            self._maker.stop()

    def serve(self) -> Iterator[int]:
        """Do what threads cannot, until all answers are there; how many are, after each."""
        while self._open:
            with contextlib.suppress(queue.Empty):
                before = self._open
                self._events.get(timeout=0.5)()  # wakes up for Ctrl-C
                if self._open < before:
                    yield len(self.answers)

    # What follows runs in the desk's threads, but for what they put into the queue.

    def _work(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                number, request = next(self._todo, (-1, None))
            if request is None:
                return
            try:
                answer = self._ask(request)
            except BaseException as error:  # noqa: BLE001 - raised where the answers are awaited
                self._events.put(functools.partial(_raise, error))
                return
            self._events.put(functools.partial(self._keep, number, answer))

    def _keep(self, number: int, answer: Answer) -> None:
        self.answers[number] = answer
        self._open -= 1

    def _ask(self, request: Request) -> Answer:
        if self._check is not None:
            request = replace(request, check=functools.partial(self._checked, request.task))
        if self._caps is None:
            return self._maker.ask(request)
        if said := self._caps.begin():
            origin = Origin(generator=self._maker.name, sample=request.sample, round=request.round)
            return Answer(candidate=None, origin=origin, problem="budget", message=said)
        answer = self._maker.ask(request)
        self._caps.end(answer.origin, answered=answer.problem != "endpoint")
        return answer

    def _checked(self, task: Task, candidate: Candidate) -> tuple[bool, str]:
        """The result of judging a draft in the judge's thread."""
        said: Future[tuple[bool, str]] = Future()
        self._events.put(functools.partial(self._judge, candidate, task, said))
        while not said.done():
            if self._stop.wait(0.05):
                return False, "The judge is not there any more."
        return said.result()

    def _judge(self, candidate: Candidate, task: Task, said: Future[tuple[bool, str]]) -> None:
        assert self._check is not None
        try:
            said.set_result(self._check(candidate, task))
        except Exception as error:
            said.set_exception(error)
            raise


def _raise(error: BaseException) -> None:
    raise error
