"""The steps of entering a worker's sandbox, in their order. Each is tried for real; one that fails is named as missing.

Nothing is prepared or cleaned up here: ``slot.py`` makes what a worker gets, ``reaper.py`` ends it. ``lifecycle.py``
calls these steps; each layer has a module of its own (``root_view.py``, ``landlock.py``, ``seccomp.py``).
"""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerneleval.languages import torch_device
from kerneleval.records import InfrastructureError, Trust
from kerneleval.sandbox import landlock, linux, monitor, processes, reach, resource_limits, root_view, seccomp
from kerneleval.sandbox.resource_limits import ResourceLimits
from kerneleval.sandbox.slot import Slot, first_closed

__all__ = [
    "Entry",
    "change_view",
    "confine",
    "confine_elsewhere",
    "detach",
    "leave_namespaces",
    "level_of",
    "seal",
    "split",
]

_PID_NAMESPACE_WORKS = ("cpu", "cuda", "opencl")
"""Device kinds whose drivers were seen to work in a PID namespace: memory shared through IPC handles included."""

_NAMESPACES = {"netns": linux.CLONE_NEWNET, "ipcns": linux.CLONE_NEWIPC, "mntns": linux.CLONE_NEWNS}


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


# --------------------------------------------------------------------------------------------------------------------
# Before the fork of the monitor
# --------------------------------------------------------------------------------------------------------------------


def detach(entry: Entry, keep_fds: Sequence[int]) -> None:
    """In the forked process: a session of its own, standard input from nowhere, no descriptor but those to keep."""
    os.setsid()
    with entry.layer("descriptors"):
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        linux.close_from({0, 1, 2, *keep_fds})
        for fd in keep_fds:
            os.set_inheritable(fd, False)


def leave_namespaces(entry: Entry) -> None:
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


# --------------------------------------------------------------------------------------------------------------------
# Monitor and worker part
# --------------------------------------------------------------------------------------------------------------------


def split(entry: Entry, parent_pid: int | None) -> None:
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
        _become_second(write_end)
    os.setsid()
    monitor.leave_monitor()
    entry.layers.append(f"monitor-{reach_by}")
    entry.costs["monitor"] = (time.perf_counter() - started) * 1e3


def _become_second(report: int) -> None:
    """In a PID namespace: leave its first process, which cannot be signalled from inside, to reap."""
    child = os.fork()
    if child:
        monitor.become_init(child, report)
    os.close(report)


def _choose_reach(entry: Entry) -> str:
    if entry.has("pidns"):
        return monitor.Reach.PIDNS
    if entry.change_user:
        return monitor.Reach.UID
    try:
        landlock.scope_signals()
    except OSError:
        return monitor.Reach.TREE
    return monitor.Reach.DOMAIN


# --------------------------------------------------------------------------------------------------------------------
# In the worker
# --------------------------------------------------------------------------------------------------------------------


def confine(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> None:
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


def change_view(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> None:
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
            writable=(entry.slot.directory, *entry.slot.writable),
            nodes=nodes,
            disk_bytes=entry.limits.disk_bytes,
            own_pids=entry.has("pidns"),
            superuser=entry.superuser,
        )
    if not entry.has("view"):
        return
    try:
        root_view.enter(target)
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
    elif entry.has("userns") and resource_limits.counts_processes_per_namespace():
        counted = 2
    else:
        counted = len(processes.of_uid(os.getuid())) + 2
    started = time.perf_counter()
    failed = resource_limits.apply(entry.limits, entry.device, processes_now=counted)
    entry.layers.append("rlimits-partly" if failed else "rlimits")
    entry.missing += [f"rlimits-{what}" for what in failed]
    entry.costs["rlimits"] = (time.perf_counter() - started) * 1e3
    if entry.superuser and not entry.change_user:
        entry.missing.append("rlimits-processes: the kernel counts no processes of the superuser's id")


def _make_scratch(entry: Entry) -> None:
    for path in (entry.scratch, os.environ["HOME"]):
        os.makedirs(path, mode=0o700, exist_ok=True)


def _grants(entry: Entry, readable: Sequence[str], nodes: Sequence[str]) -> list[landlock.Grant]:
    grants = [landlock.Grant(path=path) for path in readable]
    grants += [landlock.Grant(path=path, device=True) for path in ("/proc", *nodes)]
    grants += [landlock.Grant(path=path, write=True) for path in (entry.slot.directory, *entry.slot.writable)]
    return grants + _temporary(entry)


def _temporary(entry: Entry) -> list[landlock.Grant]:
    """Where temporary files go; ``/dev/shm`` and ``/tmp`` only where they are the worker's own."""
    paths = [entry.scratch]
    if entry.has("view"):
        paths.append("/dev/shm")
        if not entry.slot.directory.startswith(root_view.TEMPORARY + "/"):  # else it would be granted along with it
            paths.append(root_view.TEMPORARY)
    return [landlock.Grant(path=path, write=True) for path in paths]


def seal(entry: Entry) -> None:
    """Take the right to write anywhere but to temporary files. Raises OSError where the kernel refuses."""
    grants = [landlock.Grant(path=path, device=True) for path in ("/proc", *reach.nodes(entry.device))]
    landlock.restrict([*grants, *_temporary(entry)], writes_only=True)


# --------------------------------------------------------------------------------------------------------------------
# Other systems
# --------------------------------------------------------------------------------------------------------------------


def confine_elsewhere(entry: Entry, keep_fds: Sequence[int]) -> None:
    """What POSIX alone gives: session, descriptors, environment and resource limits."""
    detach(entry, keep_fds)
    with entry.layer("environment"):
        os.environ.clear()
        os.environ.update(reach.worker_environment(entry.scratch))
        tempfile.tempdir = None
    _limit(entry)
    _make_scratch(entry)
    os.chdir(entry.slot.directory)
    for layer in ("uid", "netns", "ipcns", "view", "pidns", "proc", "no_new_privs", "landlock", "seccomp"):
        entry.missing.append(f"{layer}: {sys.platform} has no such thing that an ordinary program could use")
