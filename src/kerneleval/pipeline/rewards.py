"""Rewards for training, from a judge that stays warm; the rules are in ``scores/common/rewards.py``."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from kerneleval.pipeline.checking import check_dtypes, open_task
from kerneleval.records import Candidate, InfrastructureError, Machine, Protocol, Task, ToolError, UsageError, filled
from kerneleval.scores.common.rewards import Reward, of_verdict

_REMEMBERED = 4096


class Rewarder:
    """Rewards from one warm judge on one device; may be called from many threads, thousands of times.

    >>> with Rewarder("cuda") as rewarder:  # doctest: +SKIP
    ...     futures = [rewarder.submit(text, "softmax", language="triton") for text in samples]
    ...     values = [future.result().value for future in futures]

    Candidates are judged one after another, since a measurement owns its device; those that wait are built together
    before, on all of the host's processors. The same candidate for the same task is judged once.

    The options are fields of :class:`~kerneleval.records.Protocol`. Unless they say otherwise, the tier is ``quick``,
    the dtype the task's first one, and the seed of the shapes drawn in secret, so that a policy cannot learn them.
    Raises UsageError where there is no such device, or it is not usable here; for an unknown option.
    """

    def __init__(self, device: str | None = None, *, cache_dir: str | Path | None = None, **options: Any) -> None:
        self._protocol = filled(Protocol, {"tier": "quick", "suite_seed": secrets.randbelow(2**31), **options})
        self._device, self._cache_dir = device, cache_dir
        self._judge: Any = None
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], Future[Reward]] = OrderedDict()
        self._waiting: OrderedDict[tuple[str, str], Candidate] = OrderedDict()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kerneleval-reward")
        self._closed = False
        self._thread.submit(self._warm).result()

    @property
    def machine(self) -> Machine:
        """Where it judges."""
        found: Machine = self._thread.submit(self._warm).result().machine
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the judge and every process of it; what waits is cancelled."""
        with self._lock:
            self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread.shutdown(wait=True)
        if self._judge is not None:
            self._judge.close()
            self._judge = None

    def submit(self, candidate: Candidate | str, task: str | Task, *, language: str = "") -> Future[Reward]:
        """Have a candidate, or a source text, judged on a task (its name, the path of a problem file, or itself).
        Without a ``language`` it is found from the text, which must be Python then.

        Raises UsageError: no such task or language, an empty text, or the rewarder is closed. The future raises it for
        what is found later, ToolError where a tool of the language is missing or computes wrongly, and
        InfrastructureError where the machine failed otherwise.
        """
        subject = open_task(task, self._protocol)
        check_dtypes(subject, self._protocol)
        if isinstance(candidate, str):
            from kerneleval.languages import candidate_of

            candidate = candidate_of(candidate, language)
        key = candidate.hash, subject.name
        with self._lock:
            if self._closed:
                raise UsageError("the rewarder is closed; make a new one")
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            self._waiting[key] = candidate
            future = self._thread.submit(self._reward, key, candidate, subject)
            self._known[key] = future
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return future

    def __call__(self, candidate: Candidate | str, task: str | Task, *, language: str = "") -> Reward:
        """The same, waiting for the result."""
        return self.submit(candidate, task, language=language).result()

    # What follows runs in the judge's own thread.

    def _warm(self) -> Any:
        if self._judge is None:
            from kerneleval.judge import Judge

            self._judge = Judge(self._device, self._cache_dir)
        return self._judge

    def _reward(self, key: tuple[str, str], candidate: Candidate, task: Task) -> Reward:
        judge = self._warm()
        with self._lock:
            waiting = dict(self._waiting)
            self._waiting.clear()
        if len(waiting) > 1:
            judge.build_ahead(list(waiting.values()))
        protocol = self._protocol
        if not protocol.dtypes:
            protocol = replace(protocol, dtypes=(task.dtypes[0],))
        try:
            return of_verdict(judge.check(candidate, task, protocol))
        except InfrastructureError as error:
            with self._lock:
                self._known.pop(key, None)
            if not isinstance(error, ToolError):  # the judge itself is sound
                self._judge = None
                judge.close()
            raise


_SHARED: dict[tuple[Any, ...], Rewarder] = {}
_SHARING = threading.Lock()


def reward(
    candidate: Candidate | str, task: str | Task, *, language: str = "", device: str | None = None, **settings: Any
) -> Reward:
    """The reward of one candidate, by a judge that stays warm until the program ends. Arguments and errors as in
    :meth:`Rewarder.submit`; each device and set of settings of :class:`Rewarder` has a judge of its own.
    """
    key = (device, *sorted((name, str(value)) for name, value in settings.items()))
    with _SHARING:
        if key not in _SHARED:
            import atexit

            _SHARED[key] = Rewarder(device, **settings)
            atexit.register(_SHARED[key].close)
        rewarder = _SHARED[key]
    return rewarder(candidate, task, language=language)
