"""The sandbox of one worker: :func:`enter` in the fork, between ``slot.prepare`` and ``reaper.kill_all`` of the host.

Layers are tried strongest first, each for real; what could not be had is named with the reason in the
:class:`~kerneleval.records.Trust` that :func:`enter` returns. What each level stops: ``docs/threat-model.md``.

Levels:

* ``strong``: a user (or user namespace) of its own, network, IPC and mount namespaces, a root directory of its own,
  Landlock, seccomp, resource limits, no new privileges, and no signal reaches beyond it;
* ``standard``: at least two of own user or user namespace, Landlock and seccomp, and resource limits;
* ``weak``: anything less.
"""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerneleval.languages import torch_device
from kerneleval.records import InfrastructureError, Trust
from kerneleval.sandbox import landlock, linux, monitor, processes, reach, root_view, seccomp
from kerneleval.sandbox.reaper import mark_started
from kerneleval.sandbox.slot import ResourceLimits, Slot, device_nodes, first_closed

_PID_NAMESPACE_WORKS = ("cpu", "cuda", "opencl")
"""Device kinds whose drivers were seen to work in a PID namespace: memory shared through IPC handles included."""

_NAMESPACES = {"netns": linux.CLONE_NEWNET, "ipcns": linux.CLONE_NEWIPC, "mntns": linux.CLONE_NEWNS}

_THREAD_BYTES = 80 << 20
"""Address space, not memory, that one thread of the C library takes: a stack of 8 MiB and a heap arena of 64 MiB."""


class Entry:
    """What has been reached so far, and what each step cost."""

    def __init__(self, slot: Slot, limits: ResourceLimits, device: str, costs: dict[str, float] | None) -> None:
        self.slot, self.limits, self.device = slot, limits, device
        self.layers: list[str] = ["process"]
        self.missing: list[str] = []
        self.costs = {} if costs is None else costs
        self.superuser = os.geteuid() == 0
        self.scratch = os.path.join(slot.directory, "tmp")
        self.change_user = False

    def has(self, layer: str) -> bool:
        """Whether a layer is in force."""
        return layer in self.layers

    @contextlib.contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Try one layer: in force if the body ends, missing with its reason if it raises OSError."""
        started = time.perf_counter()
        try:
            yield
        except OSError as error:
            self.missing.append(f"{name}: {error.strerror or error}")
        else:
            self.layers.append(name)
        self.costs[name] = (time.perf_counter() - started) * 1e3

    def trust(self) -> Trust:
        """What is in force and what is missing."""
        return Trust(level=level_of(self.layers), layers=tuple(self.layers), missing=tuple(self.missing))


def level_of(layers: Sequence[str]) -> str:
    """``strong``, ``standard`` or ``weak`` for the layers in force."""
    have = set(layers)
    walls = sum((bool(have & {"uid", "userns"}), "landlock" in have, "seccomp" in have))
    deaf = have & {"uid", "pidns", "landlock-signals"}
    if walls == 3 and deaf and {"netns", "ipcns", "view", "rlimits", "no_new_privs"} <= have:
        return "strong"
    return "standard" if walls >= 2 and "rlimits" in have else "weak"


_entered: Entry | None = None
"""The worker's own sandbox, for :func:`seal`."""


def protect_host() -> None:
    """Called once in the judge: processes of the same user can then neither trace it nor read its memory."""
    if sys.platform.startswith("linux"):
        linux.prctl(linux.PR_SET_DUMPABLE, 0)


def enter(
    slot: Slot,
    limits: ResourceLimits,
    device: str,
    *,
    keep_fds: Sequence[int] = (),
    parent_pid: int | None = None,
    costs: dict[str, float] | None = None,
) -> Trust:
    """Contain the process that was just forked, before anything of a candidate is read.

    Returns in the process that is to run the candidate. That is a grandchild of the caller's parent: the forked process
    itself stays behind as monitor, never returns, kills whatever the worker leaves and ends with the worker's exit
    status or signal. So its id is the worker's handle, for :func:`kill_all`, :func:`resident_bytes` and reaping. Raises
    InfrastructureError: a step failed half-way; the process must end without running anything.

    On the device kind ``cpu`` more is taken away than a driver would bear. Descriptors other than ``keep_fds``,
    standard output and error are closed, so Python objects that own one must have been closed or detached before.
    ``parent_pid`` is the zygote's id, read before the fork: shows that the zygote died meanwhile. ``costs`` is filled
    with the milliseconds that each step took.
    """
    entered = Entry(slot, limits, device, costs)
    try:
        mark_started(slot)
        if not sys.platform.startswith("linux"):
            _confine_elsewhere(entered, keep_fds)
            return entered.trust()
        _detach(entered, keep_fds)
        _leave_namespaces(entered)
        readable, nodes = reach.readable_paths(slot, device), device_nodes(device)
        if entered.has("pidns"):
            _split(entered, parent_pid)  # first: only inside can the namespace's own /proc be mounted
            _change_view(entered, readable, nodes)
        else:
            _change_view(entered, readable, nodes)  # first: a monitor's Landlock domain ends all mounting
            _split(entered, parent_pid)
        _confine(entered, readable, nodes)
    except OSError as error:
        raise InfrastructureError(f"sandbox: {error}") from error
    global _entered
    _entered = entered
    return entered.trust()


def seal() -> bool:
    """Called in the worker between building and loading: from here on nothing of it outlives it.

    The private directory becomes read-only, so that built files stay what the compiler made and nothing is left to
    clean up; temporary files can still be written, to memory of bounded size where the worker has a root of its own. A
    process that is in no sandbox with Landlock is left as it is. Returns whether it is sealed. Raises OSError: the
    kernel refused.
    """
    if _entered is None or not _entered.has("landlock"):
        return False
    grants = [landlock.Grant(path=path, device=True) for path in ("/proc", *device_nodes(_entered.device))]
    landlock.restrict([*grants, *_temporary(_entered)], writes_only=True)
    return True


# -- Before the fork of the monitor ------------------------------------------------------------------------------------


def _detach(entry: Entry, keep_fds: Sequence[int]) -> None:
    """In the forked process: a session of its own, standard input from nowhere, no descriptor but those to keep."""
    os.setsid()
    with entry.layer("descriptors"):
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        linux.close_from({0, 1, 2, *keep_fds})
        for fd in keep_fds:
            os.set_inheritable(fd, False)


def _leave_namespaces(entry: Entry) -> None:
    """Leave the host's namespaces; a user other than the superuser needs a user namespace for it."""
    if not entry.superuser:
        with entry.layer("userns"):
            _own_user_namespace()
    for name, flag in _NAMESPACES.items():
        with entry.layer(name):
            linux.unshare(flag)
    if entry.device in _PID_NAMESPACE_WORKS:
        with entry.layer("pidns"):
            linux.unshare(linux.CLONE_NEWPID)
    else:
        entry.missing.append(f"pidns: not tried with the {entry.device} driver")


def _own_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else /proc/self belongs to root and the maps cannot be written
    linux.unshare(linux.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


# -- Monitor and worker part -------------------------------------------------------------------------------------------


def _split(entry: Entry, parent_pid: int | None) -> None:
    """Fork the worker off; the caller becomes its monitor (:mod:`kerneleval.sandbox.monitor`)."""
    started = time.perf_counter()
    reach_by = _choose_reach(entry)
    monitor.prepare_monitor()
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)  # the zygote died before it was watched
    own_pids = entry.has("pidns")
    read_end, write_end = os.pipe() if own_pids else (None, None)
    monitor_pid = os.getpid()
    child = os.fork()
    if child:
        monitor.become_monitor(child, read_end, reach_by, entry.slot.uid)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if not own_pids and os.getppid() != monitor_pid:
        os._exit(1)
    if write_end is not None and read_end is not None:
        os.close(read_end)
        # the first process of a PID namespace cannot be signalled from inside: it only reaps
        if second := os.fork():
            monitor.become_init(second, write_end)
        os.close(write_end)
    os.setsid()
    monitor.leave_monitor()
    entry.layers.append(f"monitor-{reach_by}")
    entry.costs["monitor"] = (time.perf_counter() - started) * 1e3


def _choose_reach(entry: Entry) -> monitor.Reach:
    if entry.has("pidns"):
        return "pidns"
    return "uid" if entry.change_user else monitor.reach_alone()


# -- In the worker -----------------------------------------------------------------------------------------------------


def _confine(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> None:
    """In the worker: environment, limits, user, rights; see the layers of :class:`Entry`."""
    slot = entry.slot
    _change_environment(entry)
    _limit(entry)
    if entry.superuser or entry.has("userns"):
        with entry.layer("bounding_set"):
            linux.drop_bounding_set()
    if entry.change_user:
        with entry.layer("uid"):
            os.setgroups(slot.groups)
            os.setresgid(slot.uid, slot.uid, slot.uid)
            os.setresuid(slot.uid, slot.uid, slot.uid)
    elif slot.uid >= 0:
        os.chown(slot.directory, os.getuid(), os.getgid())
    with entry.layer("capabilities"):
        linux.drop_capabilities()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user cleared it
    with entry.layer("no_new_privs"):
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    _make_scratch(entry)
    os.chdir(entry.scratch)
    with entry.layer("landlock"):
        reached = landlock.restrict(_grants(entry, readable, nodes))
    if entry.has("landlock"):
        entry.layers += [f"landlock-{part}" for part in reached]
        unknown = sorted({"tcp", "devices", "signals"} - set(reached))
        entry.missing += [f"landlock-{part}: this kernel's Landlock cannot confine them" for part in unknown]
    with entry.layer("seccomp"):
        seccomp.install(memfd=torch_device(entry.device) != "cpu")


def _change_view(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> None:
    """Enter a root directory of its own; only then it is known whether another user could work there."""
    _change_root(entry, readable, nodes)
    entry.change_user = _may_change_user(entry, readable)


def _change_root(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> None:
    if not entry.has("mntns"):
        entry.missing.append("view: needs a mount namespace")
        return
    target = os.path.join(entry.slot.base, "view")
    with entry.layer("view"):
        shown = root_view.build(
            target,
            readable=readable,
            writable=entry.slot.directory,
            nodes=nodes,
            disk_bytes=entry.limits.disk_bytes,
            own_pids=entry.has("pidns"),
            superuser=entry.superuser,
        )
    if not entry.has("view"):
        return
    try:
        linux.pivot_into(target)
    except OSError as error:
        raise InfrastructureError(f"sandbox: the worker's own root could not be entered: {error}") from error
    entry.scratch = root_view.SCRATCH
    if shown:
        entry.missing.append(f"proc: {shown}")
    else:
        entry.layers.append("proc")


def _change_environment(entry: Entry) -> None:
    mark = {} if entry.change_user else {"KERNELEVAL_SLOT": entry.slot.token}
    wanted = reach.worker_environment(entry.scratch) | mark
    with entry.layer("environment"):
        os.environ.clear()
        os.environ.update(wanted)
        tempfile.tempdir = None
        _wipe_environment_block()


def _wipe_environment_block() -> None:
    """Overwrite the block that this program was started with: a fork keeps it, and could read it."""
    fields = Path("/proc/self/stat").read_text()
    words = fields[fields.rindex(")") + 2 :].split()
    start, end = int(words[47]), int(words[48])
    if start and end > start:
        ctypes.memset(start, 0, end - start)


def _may_change_user(entry: Entry, readable: Sequence[str]) -> bool:
    """Whether another user could still import what this interpreter has not imported yet."""
    if entry.slot.uid < 0:
        return False
    if not entry.superuser:
        entry.missing.append("uid: only the superuser can change it")
        return False
    for path in readable:
        mode = os.stat(path).st_mode
        closed = first_closed(path)
        needed = 0o005 if stat.S_ISDIR(mode) else 0o004
        if closed or mode & needed != needed:
            if not any(path == p or p.startswith(path + "/") for p in (sys.prefix, sys.base_prefix)):
                continue
            entry.missing.append(f"uid: other users cannot read the interpreter in {closed or path}")
            return False
    return True


def _limit(entry: Entry) -> None:
    if entry.change_user:
        counted = 1
    elif entry.has("userns") and linux.kernel_version() >= (5, 14):  # counts from zero in a new user namespace
        counted = 2
    else:
        counted = len(processes.of_uid(os.getuid())) + 2
    started = time.perf_counter()
    failed = _set_limits(entry.limits, entry.device, processes_now=counted)
    entry.layers.append("rlimits-partly" if failed else "rlimits")
    entry.missing += [f"rlimits-{what}" for what in failed]
    entry.costs["rlimits"] = (time.perf_counter() - started) * 1e3
    if entry.superuser and not entry.change_user:
        entry.missing.append("rlimits-processes: the kernel counts no processes of the superuser's id")


def _set_limits(limits: ResourceLimits, device: str, *, processes_now: int) -> tuple[str, ...]:
    """Set the limits of this process. Returns ``name: reason`` for each limit that could not be set. On devices other
    than the host the address space stays free: their drivers reserve terabytes of it. Processes that the kernel already
    counts against this user (``processes_now``) are allowed on top.
    """
    wanted = {
        "CORE": (0, 0),
        "CPU": (limits.cpu_seconds, limits.cpu_seconds + 1),
        "NOFILE": (limits.open_files,) * 2,
        "FSIZE": (limits.file_bytes,) * 2,
        "NPROC": (limits.processes + processes_now,) * 2,
        "RTPRIO": (0, 0),
        "MSGQUEUE": (0, 0),
    }
    failed = []
    if sys.platform != "linux":
        del wanted["NPROC"]  # it counts every process of the user, and the system does not say how many those are
        failed.append("processes: only Linux can limit those of a worker")
    if torch_device(device) == "cpu" and sys.platform == "linux":
        threads = 2 * (os.cpu_count() or 1)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        wanted["AS"] = (mapped + limits.memory_bytes + threads * _THREAD_BYTES,) * 2
    for name, values in wanted.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue  # the system does not know this resource
        _, ceiling = resource.getrlimit(kind)
        soft, hard = values if ceiling == resource.RLIM_INFINITY else (min(v, ceiling) for v in values)
        try:
            resource.setrlimit(kind, (soft, hard))
        except (OSError, ValueError) as error:
            failed.append(f"{name.lower()}: {error}")
    return tuple(failed)


def _make_scratch(entry: Entry) -> None:
    for path in (entry.scratch, os.environ["HOME"]):
        os.makedirs(path, mode=0o700, exist_ok=True)


def _grants(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> list[landlock.Grant]:
    grants = [landlock.Grant(path=path) for path in readable]
    grants += [landlock.Grant(path=path, device=True) for path in ("/proc", *nodes)]
    return [*grants, landlock.Grant(path=entry.slot.directory, write=True), *_temporary(entry)]


def _temporary(entry: Entry) -> list[landlock.Grant]:
    """Where temporary files go; ``/dev/shm`` and ``/tmp`` only where they are the worker's own."""
    paths = [entry.scratch]
    if entry.has("view"):
        paths.append("/dev/shm")
        if not entry.slot.directory.startswith(root_view.TEMPORARY + "/"):  # else it would be granted along with it
            paths.append(root_view.TEMPORARY)
    return [landlock.Grant(path=path, write=True) for path in paths]


# -- Other systems -----------------------------------------------------------------------------------------------------


def _confine_elsewhere(entry: Entry, keep_fds: Sequence[int]) -> None:
    """What POSIX alone gives: session, descriptors, environment and resource limits."""
    _detach(entry, keep_fds)
    with entry.layer("environment"):
        os.environ.clear()
        os.environ.update(reach.worker_environment(entry.scratch))
        tempfile.tempdir = None
    _limit(entry)
    _make_scratch(entry)
    os.chdir(entry.slot.directory)
    for layer in ("uid", "netns", "ipcns", "view", "pidns", "proc", "no_new_privs", "landlock", "seccomp"):
        entry.missing.append(f"{layer}: {sys.platform} has no such thing that an ordinary program could use")
