"""The same request again after a mishap: exponential waits with jitter, and the pauses that an endpoint asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kerneleval.generators.llm.endpoint import Declined, Mishap
from kerneleval.generators.llm.settings import Settings
from kerneleval.records.errors import optional

_FIRST_S = 1.0
"""Expected first wait is half of it; each further one is twice as long (full jitter: Brooker 2015, "Exponential Backoff
and Jitter", AWS Architecture Blog)."""

_LONGEST_S = 60.0
"""Longest wait that is ours; an endpoint may ask for more."""

_T = TypeVar("_T")


class Stopped(Exception):  # noqa: N818 - the answer is not wanted any more
    """The work was given up by its owner."""


class Retries:
    """Sends requests again, from many threads; a pause that the endpoint asks one of them for holds for all."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._until = 0.0

    def stop(self) -> None:
        """The answers are not wanted any more; all calls raise :class:`Stopped`."""
        self._stop.set()

    def call(self, send: Callable[[], _T]) -> tuple[_T, list[str]]:
        """What ``send`` gives, and what went wrong before.

        Raises:
            Mishap: it went wrong as often as the settings allow, or the endpoint asks for too long a pause; the message
                says how often, and why the last time.
            Declined: as ``send`` raises it.
            Stopped: it was given up.
        """
        with optional("asking models needs"):
            import tenacity

        mishaps: list[str] = []

        def once() -> _T:
            self._hold()
            try:
                return send()
            except Mishap as mishap:
                mishaps.append(str(mishap))
                self._pause(mishap)
                raise
            except Declined:
                raise
            except Exception:
                if self._stop.is_set():  # its connection was closed under it
                    raise Stopped from None
                raise

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._again),
            stop=tenacity.stop_after_attempt(self._settings.tries),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_S, max=_LONGEST_S),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(once), mishaps
        except Mishap as mishap:
            if self._stop.is_set():
                raise Stopped from None
            times = f"{len(mishaps)} times" if len(mishaps) > 1 else "once"
            raise Mishap(f"asked {times}; the last time: {mishap}", mishap.wait_s) from mishap

    def _again(self, error: BaseException) -> bool:
        return isinstance(error, Mishap) and error.wait_s <= self._settings.max_wait_s and not self._stop.is_set()

    def _pause(self, mishap: Mishap) -> None:
        if 0 < mishap.wait_s <= self._settings.max_wait_s:
            with self._lock:
                self._until = max(self._until, time.monotonic() + mishap.wait_s)

    def _hold(self) -> None:
        """Wait until the endpoint's pause is over."""
        while True:
            with self._lock:
                left = self._until - time.monotonic()
            if left <= 0 and not self._stop.is_set():
                return
            self._sleep(left)

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped
