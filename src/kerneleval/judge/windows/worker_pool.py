"""The worker pool: the workers of one device, kept warm, and how candidates and baselines get into one.

A pool owns a zygote and a spare worker that is made ready before the next candidate is known. Workers are made and
ended in a thread of its own while another candidate is judged, but never during a measurement:
:meth:`WorkerPool.quiet` waits for it. It calls no candidate: ``protocol.py`` does, through :attr:`Loaded.runner`.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy
import torch

from kerneleval import languages
from kerneleval.devices import Device
from kerneleval.devices.cpu import processors
from kerneleval.judge.windows import self_check
from kerneleval.judge.windows.locks import CpuPin
from kerneleval.judge.windows.protocol import Runner, TamperingClaim, tampering_claims
from kerneleval.languages.common.base import cpu_identity, known_kernel
from kerneleval.records import (
    Candidate,
    Case,
    Failed,
    Form,
    InfrastructureError,
    KernelEvalError,
    Machine,
    Origin,
    Protocol,
    Reason,
    Task,
    ToolError,
    Trust,
    UsageError,
    digest,
    to_plain,
)
from kerneleval.records.outcomes import TimeKind
from kerneleval.sandbox import processes
from kerneleval.sandbox.slot import ResourceLimits
from kerneleval.worker.host import Worker, WorkerError, WorkerFailure, zygote_of
from kerneleval.worker.waiting import LOAD_LONGEST_S, Patience, TimeLimit
from kerneleval.worker.wire import encode_plain

_BUILD_ENDS_S = 5.0
"""Seconds that a build has to end its compiler, and to say so."""
_SWAP_S = 20.0
_MOST_CLAIMS = 32
_MOST_BINARIES = 1024
_ARTIFACT_LIMIT_BYTES = 256 << 20
_TASKS = Path(__file__).resolve().parents[2] / "tasks"


class BuildFailed(Exception):  # noqa: N818 - an outcome of the candidate
    """The candidate does not build. ``reason``, the message and ``evidence`` go into the outcome."""

    stage = "build"

    def __init__(self, reason: Reason, message: str, evidence: dict[str, Any]) -> None:
        super().__init__(message)
        self.reason = reason
        self.evidence = evidence

    def outcome(self) -> Failed:
        """The outcome of every case."""
        return Failed(stage=self.stage, reason=self.reason, message=str(self), evidence=self.evidence)


class LoadFailed(BuildFailed):
    """The candidate's code does not load or has no entry point."""

    stage = "load"


class Loaded:
    """A worker with something loaded, and how to load it again when the worker dies.

    ``trusted`` code (baselines) gets a worker that can read the built-in tasks; a candidate's cannot. ``patience_s`` is
    how long it may keep the judge waiting (:class:`~kerneleval.worker.waiting.Patience`).

    Raises:
        ToolError: see :meth:`WorkerPool.require`.
        BuildFailed: the candidate does not build or load.
    """

    def __init__(
        self,
        pool: WorkerPool,
        candidate: Candidate,
        names: Sequence[str],
        *,
        trusted: bool = False,
        tf32: bool = False,
        patience_s: float = math.inf,
    ) -> None:
        pool.require(candidate)
        self.pool = pool
        self.candidate = candidate
        self.names = tuple(names)
        self.trusted = trusted
        self._tf32 = tf32
        self.runner: Runner = self._fresh_runner()
        self.crashes = 0
        self.module_key: Any = None
        self._module: dict[str, Any] = {}
        self.reference_s = 0.0
        """What the judge needed to make its own module of these sizes."""
        self.state: list[tuple[str, tuple[int, ...], str]] = []
        self.explicit_backward = False
        self.paces: dict[tuple[Case, TimeKind], float] = {}
        """Of a baseline: what one call took when a case was last timed (ns)."""
        self.tampering: dict[str, TamperingClaim] = {}
        """Its workers' claims of tampering, by what was done; the first time counts."""
        self.binaries: set[str] = set()
        """Triton's hashes of the binaries that its workers saw launched."""
        try:
            self._build()
            self.patience = Patience(candidate, pool.device.name, patience_s)
            self._load()
        except BaseException:
            self.close()
            raise

    def _fresh_runner(self) -> Runner:
        return self.pool.warm_runner((str(_TASKS),)) if self.trusted else self.pool.take_spare()

    @property
    def _directory(self) -> Path:
        return self.runner.worker.directory / "build"

    def _build(self) -> None:
        try:
            self.pool.build(self.runner.worker, self.candidate, self._directory)
        except WorkerError as error:
            raise BuildFailed("build_error", str(error), error.evidence) from None
        except WorkerFailure as failure:
            raise BuildFailed(failure.reason, str(failure), failure.evidence) from None

    def _load(self) -> None:
        self.runner.worker.charge = self.patience.charge
        message = {
            "candidate": to_plain(self.candidate),
            "dir": str(self._directory),
            "names": list(self.names),
            "tf32": self._tf32,
        }
        answer = self._ask_to_load("load", message, "loaded")
        self.explicit_backward = answer.get("backward") is True
        self.note(answer)
        if self._module:
            self._build_module(self._module)

    def _ask_to_load(self, request: str, message: dict[str, Any], reply: str) -> dict[str, Any]:
        """The worker's answer; what it raises is a failure to load."""
        limit = TimeLimit(LOAD_LONGEST_S) if self.trusted else self.patience.limit_of_loading(self.reference_s)
        try:
            return self.runner.worker.request(
                request, message, reply, timeout_s=limit.calls_s, longest_s=limit.longest_s
            )
        except WorkerError as error:
            raise LoadFailed("load_error", f"{_kind(error)}{error}", error.evidence) from None
        except WorkerFailure as failure:
            raise LoadFailed(failure.reason, str(failure), failure.evidence) from None

    def make_module(
        self,
        init_args: Any,
        seed: int,
        form: Form | None = None,
        *,
        keywords: Mapping[str, Any] | None = None,
        beside: bool = False,
    ) -> None:
        """Build the candidate's module from plain arguments; ``state`` then names its tensors.

        Args:
            form: how it takes the arguments of a call (``records/nested.py``).
            keywords: arguments of the constructor by name.
            beside: whether the module before is kept; :meth:`swap_modules` goes back to it.
        """
        init = encode_plain([list(init_args), dict(keywords or {})])
        self._module = {"init": init, "seed": seed, "form": form, "beside": False}
        self._build_module(self._module | {"beside": beside})

    def _build_module(self, message: dict[str, Any]) -> None:
        answer = self._ask_to_load("module", message, "module")
        try:
            self.state = [(str(n), tuple(int(v) for v in shape), str(d)) for n, shape, d in answer["state"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:  # the worker's word is only a claim
            raise LoadFailed("protocol", f"the worker named no state: {error}"[:300], {}) from None
        self.runner.forget_layout()

    def swap_modules(self, *, drop: bool = False) -> None:
        """Call the other module that is kept from now on; ``drop``: and forget the one that was called so far.

        Raises:
            WorkerError, WorkerFailure: the worker has none, or died.
        """
        self.runner.worker.request("swap", {"drop": drop}, "swapped", timeout_s=_SWAP_S)

    def note(self, answer: Mapping[str, Any]) -> None:
        """Keep what an answer of the worker says of tampering, and of binaries that were launched."""
        for claim in tampering_claims(answer):
            if sum(known.level == claim.level for known in self.tampering.values()) < _MOST_CLAIMS:
                self.tampering.setdefault(claim.what, claim)
        launched = answer.get("binaries")
        for found in launched[:_MOST_BINARIES] if isinstance(launched, list) else ():
            if isinstance(found, str) and len(self.binaries) < _MOST_BINARIES:
                self.binaries.add(found[:64])

    def revive(self) -> None:
        """A new worker after a crash, with the same things loaded."""
        self.crashes += 1
        self._reload()

    def renew(self) -> None:
        """A new worker on purpose, with the same things loaded."""
        self.module_key = None
        self._reload()

    def _reload(self) -> None:
        self.runner.close()
        self.runner = self._fresh_runner()
        self._build()
        self._load()

    def close(self) -> None:
        """End the worker, in the pool's own time."""
        self.pool.end(self.runner)


def _kind(error: WorkerError) -> str:
    return "" if error.kind in ("LoadError", "BuildError") else f"{error.kind}: "


class WorkerPool:
    """Workers of one device. A context manager; leaving it ends every process and removes every file."""

    def __init__(
        self, device: Device, machine: Machine, cache_dir: str | Path | None = None, worker_memory_bytes: int = 0
    ) -> None:
        self.device = device
        self.machine = machine
        self.cache_dir = Path(cache_dir) if cache_dir else default_cache_dir()
        self.zygote = zygote_of(device.name, machine.arch)
        self.trust = Trust(level="weak")
        self._limits = _limits(worker_memory_bytes or _worker_memory_bytes(device))
        self._cpu_pin = CpuPin(alone=device.spin_s > 0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pool")
        self._spare: Future[Runner] | None = None
        self._ending: list[Future[None]] = []
        self._self_checks: dict[str, str] = {}
        """Key of a self-check -> what is wrong; empty: nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker and the zygote."""
        if self._spare is not None:
            self._spare.cancel()  # what was begun is waited for, as is the end of every other worker
        self._thread.shutdown(wait=True)
        try:
            if self._spare is not None and not self._spare.cancelled() and self._spare.exception() is None:
                self._spare.result().close()
            for ending in self._ending:
                ending.result()
        finally:
            self._spare, self._ending = None, []
            self._cpu_pin.leave()
            self.zygote.close()

    def require(self, candidate: Candidate) -> None:
        """Have the tools that a candidate needs on this device, and have seen them, and the device, compute rightly.

        Raises:
            ToolError: a tool is missing, or a known kernel does not run or gives wrong answers.
        """
        language, kind = languages.find(candidate.language), self.device.name
        if kind not in (*language.devices, *language.baseline_devices):
            return  # the candidate is for another device, and its verdict says so
        if missing := language.missing_for(candidate, kind):
            raise ToolError(f"{language.name} candidates need {missing}")
        device_check = languages.find("torch")
        if kind in (*device_check.devices, *device_check.baseline_devices):
            self._self_check(device_check, device_check.known[0])
        if known := language.known_for(candidate):
            self._self_check(language, known)
        if language.preload_when_met:
            self.zygote.preload(language.name, self.machine.arch)

    def _self_check(self, language: languages.Language, known: str) -> None:
        """Run a known kernel, unless it gave the known answers here before with the same tools.

        Only a pass is kept in the cache: what failed may have been repaired.
        """
        machine = self.machine
        try:
            tools = language.toolchain(self.device.name, machine.arch)
        except KernelEvalError as error:  # a compiler that does not start
            raise ToolError(f"{language.name} candidates cannot be built: {error}") from error
        source = known_kernel(known)
        versions = f"{sys.version} torch {torch.__version__} numpy {numpy.__version__}"
        key = digest("self-check/2", machine.fingerprint, cpu_identity(), versions, tools, known, source)
        passed = self.cache_dir / "self-checks" / key
        if key not in self._self_checks:
            self._self_checks[key] = "" if passed.is_file() else self._failure(language, known)
        if reason := self._self_checks[key]:
            named = dict.fromkeys((machine.name, machine.driver, *tools.splitlines()[1:2]))
            by = ", ".join(line for line in named if line)
            raise ToolError(f"{language.name} on device {self.device.name!r} ({by}): {reason}")
        if not passed.is_file():
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.touch()

    def _failure(self, language: languages.Language, known: str) -> str:
        with contextlib.closing(self.warm_runner()) as runner:
            return self_check.failure(runner, language, known, self.machine.arch)

    def warm_runner(self, readable: Sequence[str] = ()) -> Runner:
        """A new worker with its device context, and some shared memory.

        Raises:
            InfrastructureError: the machine cannot make one, for want of device memory for example.
        """
        runner = Runner(self.zygote.fork(self._limits, readable), self.device, self._cpu_pin.processor)
        try:
            runner.worker.request("warm", {}, "warmed", timeout_s=120.0)
            runner.reserve(1 << 20, 1 << 20)
        except BaseException as error:
            runner.close()
            if isinstance(error, (WorkerError, WorkerFailure)):  # nothing of a candidate has run in it
                raise InfrastructureError(f"no worker can be made ready on {self.device.name}: {error}") from error
            raise
        return runner

    def make_spare(self) -> None:
        """Begin to make a warm worker ready for the next candidate."""
        if self._spare is None:
            self._spare = self._thread.submit(self.warm_runner)

    def take_spare(self) -> Runner:
        """The warm worker; there is none afterwards."""
        self.make_spare()
        assert self._spare is not None
        spare, self._spare = self._spare, None
        runner = spare.result()
        self.trust = runner.worker.trust
        return runner

    def end(self, runner: Runner) -> None:
        """Begin to end a worker and to free its memory."""
        self._ending = [ending for ending in self._ending if not ending.done() or ending.exception() is not None]
        self._ending.append(self._thread.submit(runner.close))

    def quiet(self) -> None:
        """Wait until no worker is being made or ended, so that nothing of it disturbs a measurement.

        Raises:
            InfrastructureError: the machine could not make or end one.
        """
        while self._ending:
            self._ending.pop(0).result()
        if self._spare is not None and self._spare.exception() is not None:
            self.take_spare()  # raises what went wrong

    def build_ahead(self, candidates: Iterable[Candidate], on_build: Callable[[int, int, Candidate], None]) -> None:
        """Have the build outputs of these candidates in the cache, each built in a worker of its own, as many at a time
        as there are processors. What cannot be built fails when it is judged.

        Args:
            candidates: in any language; those that need no build, and those built before, cost nothing.
            on_build: called with (done, in all, candidate) before each that is waited for.
        """
        every = {self.built(c): c for c in candidates if languages.find(c.language).needs_build and self._has_tools(c)}
        wanted = [candidate for path, candidate in every.items() if not path.is_dir()]
        workers: list[Worker] = []
        stopped = threading.Event()

        def build(candidate: Candidate) -> None:
            worker = self.zygote.fork(self._limits, ())
            workers.append(worker)
            try:
                if not stopped.is_set():  # else this one would never be ended
                    self.build(worker, candidate, worker.directory / "build")
            except (WorkerError, WorkerFailure, BuildFailed):
                pass  # its verdict will say so
            finally:
                worker.close()

        with ThreadPoolExecutor(min(len(wanted), processors()) or 1, thread_name_prefix="build") as executor:
            building = [executor.submit(build, candidate) for candidate in wanted]
            try:
                for done, (candidate, one) in enumerate(zip(wanted, building, strict=True)):
                    on_build(done, len(wanted), candidate)
                    one.result()
            except BaseException:  # Ctrl-C, say: do not wait for compilers
                stopped.set()
                executor.shutdown(wait=False, cancel_futures=True)
                processes.signal_each([worker.pid for worker in workers if worker.alive], signal.SIGKILL)
                raise

    def _has_tools(self, candidate: Candidate) -> bool:
        try:
            self.require(candidate)
        except ToolError:
            return False  # said when it is judged
        return True

    def build(self, worker: Worker, candidate: Candidate, directory: Path) -> None:
        """Have the candidate's build outputs in ``directory``: from the cache by content, else compiled in the worker.

        The worker compiles before any of the candidate's code has run in it, so what it leaves is the compiler's.
        """
        language = languages.find(candidate.language)
        if not language.needs_build:
            return
        cached = self.built(candidate)
        if cached.is_dir():
            shutil.copytree(cached, directory)
            owner = directory.parent.stat()  # the private directory's
            for path in (directory, *directory.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
            return
        message = {"candidate": to_plain(candidate), "dir": str(directory), "arch": self.machine.arch}
        worker.request("build", message, "built", timeout_s=language.longest_build_s + _BUILD_ENDS_S)
        _keep(directory, cached)

    def built(self, candidate: Candidate) -> Path:
        """Where the build outputs of a candidate are kept, out of its reach; there is nothing before it was built."""
        tools = languages.find(candidate.language).toolchain(self.device.name, self.machine.arch)
        key = digest(candidate.hash, self.machine.arch, self.machine.host, candidate.language, tools)
        return self.cache_dir / "builds" / key


def _keep(source: Path, target: Path) -> None:
    """Copy what a worker built into the cache; whole or not at all. Links and special files are refused."""
    staging = target.with_name(f"{target.name}.{os.getpid()}")
    staging.mkdir(parents=True, exist_ok=True)
    try:
        _copy_tree(source, staging, _ARTIFACT_LIMIT_BYTES)
        try:
            staging.rename(target)
        except OSError:
            if not target.is_dir():  # else another process kept the same content first
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _copy_tree(source: Path, target: Path, room_bytes: int) -> int:
    """Copy regular files and directories below ``source``; returns the room that is left."""
    for entry in os.scandir(source):
        path, copy = Path(entry.path), target / entry.name
        if entry.is_dir(follow_symlinks=False):
            copy.mkdir()
            room_bytes = _copy_tree(path, copy, room_bytes)
            continue
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        status = os.fstat(fd)
        room_bytes -= status.st_size
        if not stat.S_ISREG(status.st_mode) or room_bytes < 0:
            os.close(fd)
            raise BuildFailed("build_error", f"the build left {entry.name}, which is no file of sane size", {})
        with os.fdopen(fd, "rb") as file, copy.open("wb") as out:
            shutil.copyfileobj(file, out)
        copy.chmod(0o755)
    return room_bytes


def _worker_memory_bytes(device: Device) -> int:
    """Host memory that one worker may take: half of the host's, at most 8 GiB, or 16 where a driver needs room too."""
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min((8 if device.torch_device == "cpu" else 16) << 30, host_bytes // 2)


def _limits(memory_bytes: int) -> ResourceLimits:
    return ResourceLimits(
        memory_bytes=memory_bytes, cpu_seconds=3600, processes=512, open_files=1024, file_bytes=1 << 30
    )


def default_cache_dir() -> Path:
    """``KERNELEVAL_CACHE_DIR``, else ``kerneleval`` under the user's cache directory."""
    if given := os.environ.get("KERNELEVAL_CACHE_DIR"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kerneleval"


_KINDS = ("eager", "compile")

_OPERATOR = """import importlib.util
import sys

import torch

import kerneleval

# a worker may read the tasks but not list the package's directory, so the finder needs their place
_place = kerneleval.__path__[0] + "/tasks"
_spec = importlib.util.spec_from_file_location(
    "kerneleval.tasks", _place + "/__init__.py", submodule_search_locations=[_place]
)
_tasks = sys.modules.get("kerneleval.tasks") or importlib.util.module_from_spec(_spec)
if "kerneleval.tasks" not in sys.modules:
    sys.modules["kerneleval.tasks"] = _tasks
    _spec.loader.exec_module(_tasks)
{reference}
{flags}

def run(*args):
    return _reference(*args)
"""

_BUILT_IN = "_reference = _tasks.find({name!r}).reference"

_OWN = """_own = {{"__name__": __name__}}
exec(compile({text!r}, "baseline.py", "exec"), _own)
_reference = {{task.name: task for task in _own["TASKS"]}}[{name!r}].reference"""
"""A user's file has names of its own, ``run`` among them."""

_FLAGS = """
torch.backends.cuda.matmul.allow_tf32 = {tf32}
torch.backends.cudnn.allow_tf32 = {tf32}
"""

_COMPILED = """
torch._dynamo.config.cache_size_limit = 256  # beyond it PyTorch would go on in eager mode, and say nothing
torch._dynamo.config.fail_on_cache_limit_hit = True
"""

_COMPILED_FUNCTION = """
_eager = run
run = torch.compile(_eager)
"""

_COMPILED_MODULE = """
class KernelEvalCompiled(Model):  # Model keeps its name: it may call super(Model, self)
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile()
"""


def baseline_candidate(task: Task, protocol: Protocol) -> Candidate:
    """The baseline of a task as a candidate: the reference itself, eager or under ``torch.compile``.

    Raises:
        UsageError: no such baseline.
    """
    if protocol.baseline not in _KINDS:
        raise UsageError(f"baseline {protocol.baseline!r} is unknown; known are {', '.join(_KINDS)}")
    flags = _FLAGS.format(tf32=protocol.tf32)
    if task.module:
        source = task.baseline_source + "\n\nimport torch\n" + flags
    else:
        reference = (_OWN if task.baseline_source else _BUILT_IN).format(name=task.name, text=task.baseline_source)
        source = _OPERATOR.format(reference=reference, flags=flags)
    if protocol.baseline == "compile":
        source += _COMPILED + (_COMPILED_MODULE if task.module else _COMPILED_FUNCTION)
    entry = "run" if not task.module else "KernelEvalCompiled" if protocol.baseline == "compile" else "Model"
    origin = Origin(generator=protocol.baseline)
    return Candidate(files=(("baseline.py", source),), language="torch", entry=entry, origin=origin)


class Baselines:
    """Loaded baselines, those of the last few tasks kept for the next candidate of the same one. Each is loaded in two
    processes: how far those are apart says how far equal code looks apart.
    """

    _KEPT = 2

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._loaded: dict[tuple[str, str, bool], tuple[Loaded, ...]] = {}

    def get(self, task: Task, protocol: Protocol, *, fresh: bool = False) -> tuple[Loaded, ...]:
        """Both processes of the loaded baseline; ``fresh`` replaces them first.

        Raises:
            InfrastructureError: the trusted baseline does not load.
        """
        candidate = baseline_candidate(task, protocol)
        key = (candidate.hash, protocol.baseline, protocol.tf32)
        paces: dict[tuple[Case, TimeKind], float] = {}
        if fresh and key in self._loaded:
            paces = self._loaded[key][0].paces
            self._end(key)
        if key not in self._loaded:
            while len(self._loaded) >= self._KEPT:
                self._end(next(iter(self._loaded)))
            loaded: list[Loaded] = []
            try:
                for _ in range(2):
                    loaded.append(Loaded(self._pool, candidate, ("run",), trusted=True, tf32=protocol.tf32))
            except BuildFailed as error:
                raise InfrastructureError(f"the {protocol.baseline} baseline of {task.name} failed: {error}") from error
            finally:
                if len(loaded) == 1:
                    loaded[0].close()
            loaded[0].paces = paces
            self._loaded[key] = tuple(loaded)
        return self._loaded[key]

    def _end(self, key: tuple[str, str, bool]) -> None:
        for loaded in self._loaded.pop(key):
            loaded.close()

    def close(self) -> None:
        """End every baseline worker."""
        for key in list(self._loaded):
            self._end(key)
