"""Processes that work through a list, a job at a time each. One that crashes or takes too long costs its job alone."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal

from kerneleval.records import InfrastructureError

__all__ = ["Broken", "work_through"]


class Broken(Exception):  # noqa: N818 - it tells of its process
    """Raised by a job whose process is beyond use from then on, as after an illegal access on a GPU."""


@dataclass
class _Worker:
    process: BaseProcess
    channel: Connection
    state: Literal["starting", "idle", "busy"] = "starting"
    job: Any = None
    since: float = 0.0


def work_through(
    jobs: Sequence[Any],
    function: Callable[[Any], Any],
    processes: int,
    *,
    seconds_each: float,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Any, Any, str]]:
    """Each job with what the function returns, as they are done, and why there is nothing: it raised, its process died
    or took too long; empty where there is.

    Args:
        jobs: what can be pickled.
        function: of a module, by whose name the processes find it.
        processes: how many work at once.
        seconds_each: how long a job may take.
        go_on: asked before a job is begun; those that are under way are waited for.

    Raises:
        InfrastructureError: a process cannot be started, or does not find the function.
    """
    left = list(reversed(jobs))
    place = f"{function.__module__}:{function.__qualname__}"
    workers = [_started(place) for _ in range(min(processes, len(jobs)))]
    try:
        while True:
            for worker in workers:
                if worker.state == "idle" and left and go_on():
                    worker.job, worker.since, worker.state = left.pop(), time.monotonic(), "busy"
                    worker.channel.send(worker.job)
            waiting = [w for w in workers if w.state == "busy" or (w.state == "starting" and left and go_on())]
            if not waiting:
                return
            ready = wait([worker.channel for worker in waiting], timeout=1.0)
            for worker in waiting:
                if worker.state == "starting" and worker.channel in ready:
                    _greet(worker)
                elif worker.state == "busy" and worker.channel in ready:
                    yield worker.job, *_answer(worker)
                elif worker.state == "busy" and time.monotonic() - worker.since > seconds_each:
                    worker.process.kill()
                    worker.process.join()
                    worker.state = "idle"
                    yield worker.job, None, f"took longer than {seconds_each:g} s"
            workers = [_again(w, place) if w.state == "idle" and not w.process.is_alive() else w for w in workers]
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.channel.close()


def _greet(worker: _Worker) -> None:
    try:
        worker.channel.recv()
    except (EOFError, OSError) as error:
        raise InfrastructureError("a process ended before its first job; what it wrote above says why") from error
    worker.state = "idle"


def _answer(worker: _Worker) -> tuple[Any, str]:
    worker.state = "idle"
    try:
        result, error, usable = worker.channel.recv()
    except (EOFError, OSError):
        worker.process.join(10)
        return None, f"its process died (exit code {worker.process.exitcode})"
    if not usable:
        worker.process.kill()
        worker.process.join()
    return result, error


def _again(worker: _Worker, place: str) -> _Worker:
    """A process in the place of one that is gone."""
    worker.channel.close()
    return _started(place)


def _started(place: str) -> _Worker:
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads or a GPU may hang
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, place), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process=process, channel=ours)


def _serve(channel: Connection, place: str) -> None:
    """The process: job by job until its parent is gone. Ctrl-C is its parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, name = place.partition(":")
    function = getattr(importlib.import_module(module), name)
    channel.send("ready")
    while True:
        try:
            job = channel.recv()
        except EOFError:
            return
        try:
            answer = (function(job), "", True)
        except Broken as error:
            answer = (None, str(error), False)
        except Exception as error:  # noqa: BLE001 - whatever a job raises is told as its result
            answer = (None, f"{type(error).__name__}: {error}", True)
        channel.send(answer)
