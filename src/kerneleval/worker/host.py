"""The trusted end: starts zygotes and workers, sends with a deadline, watches memory and output, kills and reaps.

Whatever a worker does wrong ends as a :class:`WorkerFailure` with a reason that names it; the judge goes on with a new
worker. No answer of a worker is believed beyond its form.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kerneleval.devices import find, names
from kerneleval.devices.cpu import SPIN_COUNT, threads
from kerneleval.languages import torch_device
from kerneleval.records import InfrastructureError, KernelEvalError, Reason, Trust, from_plain, to_plain
from kerneleval.sandbox import lifecycle, processes, reach, reaper
from kerneleval.sandbox.slot import ResourceLimits, Slot, prepare
from kerneleval.worker.bell import Bell, Go
from kerneleval.worker.pausing import Pauses
from kerneleval.worker.waiting import StolenTime, TimeLimit, Waiting
from kerneleval.worker.wire import LOST, STUCK, Channel, Closed, WireError, WireTimeout

_OUTPUT_LIMIT_BYTES = 4 << 20
_OUTPUT_KEPT_BYTES = 16 << 10
_POLL_S = 0.05
_START_TIMEOUT_S = 120.0

ANSWER_S = 15.0
"""Seconds for an answer that takes a worker milliseconds: a thread that holds the interpreter's lock, and objects of
the candidate's that are let go, can keep it."""

_TELLING_S = 2.0
"""Seconds that a worker which does not answer has to print where it is."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What Numba colours its errors with."""

_FRAME = re.compile(
    r'File "(?P<file>(?!<frozen |[^"\n]*/(?:lib|kerneleval)/)[^"\n]{1,200})", line (?P<line>\d{1,7}) '
    r"in (?P<function>\S{1,80})\n"
)
"""The innermost frame of no library in what it prints."""

_WHEN = {
    "build": "its build",
    "collect": "the copying of its outputs",
    "go": "its calls",
    "load": "its loading",
    "module": "the making of its module",
    "prepare": "the preparation of its calls",
}
"""What the worker did, for who does not know its messages."""

_WORKER_MESSAGE_BYTES = 4 << 20

_KEEP_PAGES = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Freed memory stays with the process, as a device allocator's does: else every output pays for its page faults."""

_BIND_HELPERS = {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}
"""OpenMP's helper threads stay on a processor each. Left to itself, a kernel that packs threads puts two on one, where
each waits for the other by keeping it busy: on two virtual processors a third of all 3 ms windows took five times as
long. The worker's own thread is let go again, for threads of other kinds inherit its mask."""


class WorkerFailure(KernelEvalError):  # noqa: N818 - an outcome of the candidate, not an error of ours
    """The worker is gone or was killed.

    ``reason`` is one of crash, exit, timeout, memory_limit, output_flood, device_error, protocol.
    """

    def __init__(self, reason: Reason, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.evidence = evidence or {}


class WorkerError(KernelEvalError):
    """The worker lives and says that the operation raised; ``evidence`` has kind, message, traceback and output."""

    def __init__(self, kind: str, message: str, *, unsupported: bool, evidence: dict[str, Any]) -> None:
        super().__init__(message)
        self.kind = kind
        self.unsupported = unsupported
        self.evidence = evidence


class Zygote:
    """The forking server of one device kind. A context manager; ending it ends every worker.

    It loads PyTorch, for seconds, while its caller does something else: the first request waits for that. Threads may
    share it: one request is answered before the next is sent.

    Args:
        arch: for what compilers are made ready (``Machine.arch``; empty: for nothing); None: :meth:`prepare` says so.
    """

    def __init__(self, device: str, arch: str | None = "") -> None:
        self.device = device
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        root = Path(__file__).resolve().parents[2]
        reaper.sweep()
        self.root = reaper.make_root()
        if os.geteuid() != 0:  # root's memory is out of reach of a worker, which has another user
            lifecycle.protect_host()
        self._started = time.perf_counter()
        with theirs:
            self._process = self._start(theirs.fileno(), _environment(device, root))
        self.channel = Channel(ours)
        self._slots: set[int] = set()
        self._preloaded: set[str] = set()
        self.start_s = 0.0
        """Until it was ready; 0 before."""
        self.loaded: dict[str, Any] = {}
        """What it loaded, and how long that took."""
        if arch is not None:
            self.prepare(arch)

    def prepare(self, arch: str) -> None:
        """Have compilers made ready for ``Machine.arch``; once, before the first worker."""
        with contextlib.suppress(WireError):  # it is gone: the first request says so
            self.channel.send({"op": "prepare", "arch": arch})

    def _start(self, fd: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Begin the process, with the descriptor of its end of the wire."""
        return subprocess.Popen(
            [sys.executable, "-m", "kerneleval.worker.zygote", str(fd), self.device],
            pass_fds=(fd,),
            env=environment,
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # a Ctrl-C at the terminal is the judge's to answer
        )

    def _ready(self) -> None:
        with self._lock:
            if self.start_s:
                return
            try:
                self.loaded = self.channel.recv(_START_TIMEOUT_S)["loaded"]
            except WireError as error:
                raise InfrastructureError(f"the worker zygote for {self.device} did not start: {error}") from error
            self.start_s = time.perf_counter() - self._started

    def fork(self, limits: ResourceLimits, readable: Sequence[str] = ()) -> Worker:
        """A new worker in its sandbox, which may read these paths too. Raises InfrastructureError: none can be made."""
        self._ready()
        with self._lock:
            number = next(n for n in range(1 << 16) if n not in self._slots)
            self._slots.add(number)
            slot = prepare(number, self.root, readable=readable)
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        started = time.perf_counter()
        try:
            request = {"op": "fork", "slot": to_plain(slot), "limits": to_plain(limits)}
            with self._lock:
                self.channel.send(request, fds=(theirs.fileno(), write_end))
                forked = self.channel.recv(_START_TIMEOUT_S)
        except WireError as error:
            raise InfrastructureError(f"the worker zygote died: {error}") from error
        finally:
            theirs.close()
            os.close(write_end)
        os.set_blocking(read_end, False)
        channel = Channel(ours, limit_bytes=_WORKER_MESSAGE_BYTES)
        worker = Worker(self, number, slot, int(forked["pid"]), channel, read_end, limits.memory_bytes)
        ready = worker.request("enter", None, "ready", timeout_s=_START_TIMEOUT_S)
        worker.trust = from_plain(Trust, ready["trust"])
        worker.know_own()
        if find(self.device).spin_s and Bell.possible():
            worker.share_bell()
        worker.fork_s = time.perf_counter() - started
        return worker

    def preload(self, language: str, arch: str) -> None:
        """Have workers to come find loaded what candidates in a language load; waits for nothing."""
        if language not in self._preloaded:
            self._preloaded.add(language)
            self._ready()
            with self._lock, contextlib.suppress(WireError):  # it is gone: the next request says so
                self.channel.send({"op": "preload", "language": language, "arch": arch})

    def reap(self, pid: int, wait_s: float) -> int | None:
        """Exit code of a worker (negative: the signal), None while it lives or when it is not known."""
        with self._lock:
            self.channel.send({"op": "reap", "pid": pid, "wait_s": wait_s})
            answer = self.channel.recv(wait_s + 30.0)
        return int(answer["code"]) if answer["known"] else None

    def forget(self, number: int) -> None:
        """A worker's slot is free again."""
        self._slots.discard(number)

    def close(self) -> None:
        """End the zygote; its workers die with it."""
        if not self.start_s:  # it has none yet, and reads no messages
            self._process.kill()
        with contextlib.suppress(WireError):
            self.channel.send({"op": "quit"}, timeout_s=1.0)
        self.channel.close()
        try:
            self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        reaper.remove(str(self.root))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


_AHEAD: list[Zygote] = []
"""Begun by :func:`ahead`, and not taken yet."""


@contextlib.contextmanager
def ahead(device: str | None) -> Iterator[None]:
    """Begin the zygote of a device (None: the default one) for :func:`zygote_of` in the block, which may then load
    PyTorch at the same time. Where this process has it, or only PyTorch can tell the device, nothing is begun.
    """
    name = device or _default_without_torch()
    if "torch" in sys.modules or name not in names():
        yield
        return
    zygote = Zygote(name, None)
    _AHEAD.append(zygote)
    try:
        yield
    finally:
        if zygote in _AHEAD:
            _AHEAD.remove(zygote)
            zygote.close()


def zygote_of(device: str, arch: str) -> Zygote:
    """The zygote that was begun ahead, or a new one, with compilers ready for ``Machine.arch``."""
    begun = next((zygote for zygote in _AHEAD if zygote.device == device), None)
    if begun is None:
        return Zygote(device, arch)
    _AHEAD.remove(begun)
    begun.prepare(arch)
    return begun


def _default_without_torch() -> str:
    """The default device as the system's files tell it; empty: they do not, since which of a GPU's names PyTorch has
    for it depends on its build.
    """
    if os.path.exists("/dev/nvidiactl"):
        return "cuda"
    others = ("/dev/kfd", "/dev/dri", "/dev/dxg")
    return "" if sys.platform == "darwin" or any(map(os.path.exists, others)) else "cpu"


class Worker:
    """One sandboxed process, as the judge sees it."""

    def __init__(
        self, zygote: Zygote, number: int, slot: Slot, pid: int, channel: Channel, output: int, memory: int
    ) -> None:
        self._zygote = zygote
        self._number = number
        self._slot = slot
        self.pid = pid
        self._channel = channel
        self._output = output
        self._memory_bytes = memory
        self._printed = 0
        self._kept = b""
        self._pauses = Pauses()
        self.released_ns = 0
        """When its processes were last let go on (``perf_counter_ns``)."""
        self._uncounted_s = 0.0
        self._stolen = StolenTime(self._family)
        self._bell: Bell | None = None
        self.armed: Mapping[str, Any] | None = None
        """The window for which it stays awake, as :meth:`arm` was told."""
        self._unread_s = 0.0
        self._own: frozenset[int] = frozenset()
        self.charge: Callable[[float, float, float], str] = lambda took_s, own_s, compiled_s: ""
        """Told of every wait for an answer: how long it took, the same without what others kept the worker from
        running, and for how long of it something was compiled, as it looks. Why the worker is to end, or empty."""
        self.alive = True
        self.trust = Trust(level="weak")
        self.fork_s = 0.0

    def know_own(self) -> None:
        """The processes that there are now are no programs that the candidate started."""
        self._own = frozenset(self._family())

    def share_bell(self) -> None:
        """Let windows begin and end without messages."""
        fd = Bell.file()
        try:
            self.request("bell", {}, "belled", timeout_s=_START_TIMEOUT_S, fds=(fd,))
            self._bell = Bell(fd)
        finally:
            os.close(fd)

    @property
    def directory(self) -> Path:
        """The worker's private directory: it owns everything in there."""
        return Path(self._slot.directory)

    @property
    def printed(self) -> str:
        """The last 16 KiB that the candidate printed."""
        return self._kept.decode(errors="replace")

    def request(
        self,
        operation: str,
        message: Mapping[str, Any] | None,
        expect: str,
        *,
        timeout_s: float,
        fds: Sequence[int] = (),
        spin_s: float = 0.0,
        longest_s: float = 0.0,
    ) -> dict[str, Any]:
        """Send (unless ``message`` is None) and wait for the answer ``expect``, at first without sleeping; for so long
        in all, if for longer, where something is compiled meanwhile (of ``go``, ``load`` and ``module``). Raises
        WorkerError: the operation raised in the worker, which lives on; WorkerFailure: the worker is gone, and all of
        it was killed.
        """
        if message is not None:
            self.computed()  # else what was left unread would be taken for the answer to this
        self.armed = None
        limit = TimeLimit(timeout_s, longest_s)
        try:
            if message is not None:
                watch = {"watch": True} if limit.watched else {}
                with self._counted():
                    self._channel.send({"op": operation, **message, **watch}, fds, timeout_s=timeout_s)
            answer, no_more = self._wait(operation, limit, spin_s)
        except Closed:
            raise self._ended(operation) from None
        except WireTimeout as error:
            raise self._kill("timeout", f"{_when(operation)} did not end {error}{self._where()}") from None
        except WireError as error:
            raise self._kill("protocol", f"the worker broke the protocol during '{operation}': {error}") from error
        if no_more:
            raise self._kill("timeout", no_more)
        if answer.get("op") == "error":
            raise self._device_lost(answer) if answer.get("broken") else self._raised(answer)
        if answer.get("op") != expect:
            said = repr(answer.get("op"))[:60]
            raise self._kill("protocol", f"the worker answered {said} to '{operation}' instead of '{expect}'")
        return answer

    def go(self, go: Go, *, limit: TimeLimit, spin_s: float) -> int:
        """Have calls made; when the worker said that they were (``perf_counter_ns``). It may say so on the bell alone:
        :meth:`computed` waits for its message. Raises WorkerError, WorkerFailure.
        """
        rings = self.armed is not None and self.armed["timed"]  # else another thread works here while this one looks
        if self._bell is None or not rings or not go.fits or limit.watched:
            message = {"calls": [go.start, go.stop], "rounds": go.rounds, "recorded": go.recorded}
            longest_s = limit.longest_s
            self.request("go", message, "computed", timeout_s=limit.calls_s, spin_s=spin_s, longest_s=longest_s)
            return time.perf_counter_ns()
        self._bell.ring(go)
        self.armed, self._unread_s = None, limit.calls_s
        with self._counted():
            ended = self._bell.ended(spin_s)
        if ended:
            return ended
        self.computed()
        return time.perf_counter_ns()

    def arm(self, window: Mapping[str, Any], spin_s: float = 0.0) -> None:
        """A window is about to open: the worker is to stay awake, on ``processor`` (-1: any); if ``timed``, it goes
        through an empty one first. Raises WorkerError, WorkerFailure.
        """
        self.request("arm", window, "armed", timeout_s=ANSWER_S, spin_s=spin_s)
        self.armed = window

    def computed(self) -> None:
        """Wait for the message that calls were made, if only the bell said so. Raises WorkerError, WorkerFailure."""
        if self._unread_s:
            timeout_s, self._unread_s = self._unread_s, 0.0
            self.request("go", None, "computed", timeout_s=timeout_s)

    def tell(self, operation: str, message: Mapping[str, Any]) -> None:
        """Send without waiting for an answer, for which :meth:`request` without a message can ask later. Raises
        WorkerError, WorkerFailure.
        """
        self.computed()
        try:
            with self._counted():
                self._channel.send({"op": operation, **message}, timeout_s=30.0)
        except Closed:
            raise self._ended(operation) from None
        except WireTimeout:
            raise self._kill("timeout", f"the worker did not read '{operation}'") from None

    @property
    def quick_pauses(self) -> bool:
        """Whether :meth:`paused` takes less than a millisecond."""
        return processes.HAS_PROC

    @contextlib.contextmanager
    def paused(self, *, trusted: bool = False) -> Iterator[None]:
        """No process of the worker runs inside the block: work done there would not be seen by the clock. Raises
        WorkerFailure: one did, or cannot be stopped; a process can have signals sent to itself that let it go on. Of a
        ``trusted`` worker nobody looks whether it does.
        """
        try:
            self._pauses.stop(self._family, trusted=trusted)
            self._end_for_offence()
            yield
            self._pauses.look()
        finally:
            self.released_ns = time.perf_counter_ns()
            self._pauses.release()
        self._end_for_offence()

    def _end_for_offence(self) -> None:
        if self._pauses.offence is not None:
            raise self._kill(*self._pauses.offence)

    def end(self, reason: Reason, message: str) -> WorkerFailure:
        """Kill it for a reason that the caller found; what to raise."""
        return self._kill(reason, message)

    def _family(self) -> list[int]:
        """Every process of the worker but its monitor."""
        own = [] if any(layer.startswith("monitor") for layer in self.trust.layers) else [self.pid]
        return [*own, *processes.descendants(self.pid)]

    def _wait(self, operation: str, limit: TimeLimit, spin_s: float) -> tuple[dict[str, Any], str]:
        """An answer, and why the worker is to end, or empty."""
        waiting, spin_until = Waiting(limit, self._family, self._own), time.monotonic() + spin_s
        message = None
        try:
            while spin_s and message is None and time.monotonic() < spin_until:
                message = self._channel.poll()
            message = message or self._answer(operation, limit, waiting)
        finally:
            took_s, own_s, compiled_s = waiting.spent()
            further_s, self._uncounted_s = self._uncounted_s + self._stolen.taken_s(took_s), 0.0
            no_more = self.charge(further_s + took_s, further_s + own_s, compiled_s)
        return message, no_more

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """What the block waits for the worker is charged with its next answer."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self._uncounted_s += time.monotonic() - began_s

    def _answer(self, operation: str, limit: TimeLimit, waiting: Waiting) -> dict[str, Any]:
        channel = self._channel.fileno()
        watched, look_at = [channel, self._output], time.monotonic() + _POLL_S
        while True:
            message = self._channel.poll()
            if message is not None:
                if not limit.watched or message.get("op") != "compiling":
                    return message
                waiting.sign()
            if waiting.is_over():
                raise WireTimeout(waiting.why())
            ready, _, _ = select.select(watched, [], [], max(0.0, min(waiting.left_s, _POLL_S)))
            if self._output in ready and not self._drain():
                watched = [channel]
            if time.monotonic() >= look_at:  # however much it prints or sends meanwhile
                waiting.look()
                self._check_memory(operation)
                look_at = time.monotonic() + _POLL_S

    def _drain(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, 1 << 16):
                self._printed += len(data)
                self._kept = (self._kept + data)[-_OUTPUT_KEPT_BYTES:]
                if self._printed > _OUTPUT_LIMIT_BYTES:
                    limit = _OUTPUT_LIMIT_BYTES >> 20
                    raise self._kill("output_flood", f"the candidate printed more than {limit} MiB")
            return False
        return True

    def _where(self) -> str:
        """What its own process does that does not answer, to be told; empty where that is not known."""
        own = [pid for pid in self._family() if pid in self._own and not processes.is_namespace_init(pid)]
        if not own:
            return ""
        states = set(processes.thread_states(own[0]))
        if states and states <= {"T", "t"}:
            return ": the process is stopped, as SIGSTOP does"
        before, kept = self._printed, self._kept
        processes.signal_each(own[:1], STUCK)
        until, found = time.monotonic() + _TELLING_S, None
        while found is None and time.monotonic() < until:  # frames are printed one by one
            if select.select([self._output], [], [], _POLL_S)[0] and not self._drain():
                until = 0.0
            said = self._kept[-min(self._printed - before, _OUTPUT_KEPT_BYTES) :] if self._printed > before else b""
            found = _FRAME.search(said.decode(errors="replace"))
        self._kept = kept
        if found is None:
            return ""
        return f": it is in {found['function']}, line {found['line']} of {os.path.basename(found['file'])}"

    def _check_memory(self, operation: str) -> None:
        used = reaper.resident_bytes(self._slot, self.pid)
        if used > self._memory_bytes:
            sizes = f"{used >> 20} MiB of memory; the limit is {self._memory_bytes >> 20} MiB"
            raise self._kill("memory_limit", f"during {_when(operation)} it took {sizes}")

    def _raised(self, answer: Mapping[str, Any]) -> WorkerError:
        kind = str(answer.get("kind", ""))[:200]
        text = _COLOURS.sub("", str(answer.get("message", "")))[:4000]
        evidence = {"kind": kind, "traceback": str(answer.get("traceback", ""))[-4000:]}
        if self._output >= 0:
            self._drain()
        if self._kept:
            evidence["printed"] = self.printed[-2000:]
        return WorkerError(kind, text, unsupported=bool(answer.get("unsupported")), evidence=evidence)

    def _device_lost(self, answer: Mapping[str, Any]) -> WorkerFailure:
        raised = self._raised(answer)
        failure = self._kill("device_error", f"{raised.kind}: {raised}"[:1000])
        failure.evidence |= raised.evidence
        return failure

    def _ended(self, operation: str) -> WorkerFailure:
        if self._output >= 0:
            self._drain()
        code = self._zygote.reap(self.pid, 2.0)
        failure = self._kill("crash", "")
        if code is None:
            text = f"the worker closed its connection during '{operation}'"
            return WorkerFailure("protocol", text, failure.evidence)
        failure.evidence["exit_code"] = code
        when = _when(operation)
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            if -code == signal.SIGXCPU:
                text = f"the CPU-time limit was used up during {when}"
                return WorkerFailure("timeout", text, failure.evidence)
            beyond = ": it read or wrote outside of its memory" if -code == signal.SIGSEGV else ""
            return WorkerFailure("crash", f"the process died with {name} during {when}{beyond}", failure.evidence)
        text = f"the process exited with code {code} during {when}"
        if code == LOST:
            text = f"{text}: the candidate closed the worker's connection, or left it no memory or files to answer with"
        return WorkerFailure("exit", text, failure.evidence)

    def _kill(self, reason: Reason, message: str) -> WorkerFailure:
        evidence: dict[str, Any] = {}
        if self._kept:
            evidence["printed"] = self.printed[-2000:]
        evidence |= self.close()
        return WorkerFailure(reason, message, evidence)

    def close(self) -> dict[str, Any]:
        """Kill everything of this worker and remove its directory; returns what could not be removed."""
        if not self.alive:
            return {}
        self.alive = False
        self._channel.close()
        os.close(self._output)
        self._output = -1
        leftovers = reaper.kill_all(self._slot, self.pid)
        with contextlib.suppress(WireError):
            self._zygote.reap(self.pid, 0.5)
        self._zygote.forget(self._number)
        return {"leftovers": leftovers} if leftovers else {}


def _environment(device: str, root: Path) -> dict[str, str]:
    """Environment of the zygote: nothing of the judge's but what finding the interpreter and the device needs."""
    environment = reach.clean_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *reach.package_folders()])
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
    environment["OMP_NUM_THREADS"] = environment["POCL_MAX_PTHREAD_COUNT"] = str(threads())
    environment["CUDA_MODULE_LOADING"] = "LAZY"
    environment.pop("TRITON_INTERPRET", None)
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    if torch_device(device) == "cpu":
        environment |= _KEEP_PAGES | _BIND_HELPERS
    return environment


def _when(operation: str) -> str:
    return _WHEN.get(operation, f"'{operation}'")
