"""A root directory of the worker's own: a mount namespace that holds what it may see, and nothing else.

The system and the interpreter are bound read-only at their usual places, homes and the judge's files do not exist,
``/tmp`` and ``/dev/shm`` are new and bounded, ``/proc`` shows the worker's own processes. This also lets a worker of
another user run an interpreter in a closed home.
"""
# Paths are strings here: they end in system calls, and links among them must stay links.

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from kerneleval.sandbox import linux

TEMPORARY = "/tmp"
"""File system in memory, of bounded size, for temporary files."""

SCRATCH = "/tmp/worker"
"""Where those go that ask the environment: apart from what else may be bound below ``/tmp``."""

_INODES = 200_000
_HIDEPID_PER_MOUNT = (5, 8)
_DEVICE_LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


def build(
    target: str,
    *,
    readable: Sequence[str],
    writable: str,
    nodes: Sequence[str],
    disk_bytes: int,
    own_pids: bool,
    superuser: bool,
) -> str:
    """Mount the new root at the existing directory ``target``, in a mount namespace that is already this process's own.
    Returns why ``/proc`` still shows other processes; empty when it does not. Raises OSError: something could not be
    mounted; the namespace is as before but for mounts below ``target``, which nothing outside of it sees.

    Bound are ``readable`` (subtrees and files, none below another) read-only, the directory ``writable`` as it is, and
    the device ``nodes``; ``/tmp`` and ``/dev/shm`` have ``disk_bytes`` each. ``own_pids``: this process is in a new PID
    namespace, so ``/proc`` may be mounted anew; ``superuser``: mounting is the superuser's, not that of a user
    namespace.
    """
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    options = f"mode=0755,size=1m,nr_inodes={_INODES}"
    linux.mount("kerneleval", target, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    try:
        _bounded(target + TEMPORARY, disk_bytes)
        closed = [target + path for path in readable if _bind(target, path)]
        _devices(target, nodes, disk_bytes)
        _bind(target, writable)
        hidden = _proc(target + "/proc", own_pids=own_pids, superuser=superuser)
        for path in closed:
            linux.restrict_mount(path, recursive=True)
        linux.restrict_mount(target, recursive=False)
    except OSError:
        with contextlib.suppress(OSError):
            linux.umount(target, linux.MNT_DETACH)
        raise
    return hidden


def _bounded(path: str, size_bytes: int) -> None:
    os.makedirs(path, exist_ok=True)
    options = f"mode=1777,size={size_bytes},nr_inodes={_INODES}"
    linux.mount("kerneleval", path, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)


def _bind(target: str, path: str) -> bool:
    """Show ``path`` in the new root: links as links, the rest bound. Returns whether something was bound."""
    parent = os.path.dirname(path)
    if parent != "/" and not _parents(target, parent):
        return False  # an ancestor is a link; its target is on the list by its own name
    if os.path.lexists(target + path) and not os.path.isdir(path):
        return False
    if os.path.islink(path):
        os.symlink(os.readlink(path), target + path)
        return False
    if stat.S_ISDIR(os.stat(path).st_mode):
        os.makedirs(target + path, exist_ok=True)
    else:
        os.close(os.open(target + path, os.O_CREAT | os.O_CLOEXEC, 0o644))
    linux.mount(path, target + path, None, linux.MS_BIND | linux.MS_REC)
    return True


def _parents(target: str, parent: str) -> bool:
    """Make the directories down to ``parent``; False where one of them is a link, which is made in its place."""
    made = "/"
    for part in parent.strip("/").split("/"):
        made = os.path.join(made, part)
        if os.path.islink(made):
            if not os.path.lexists(target + made):
                os.symlink(os.readlink(made), target + made)
            return False
        if not os.path.isdir(target + made):
            os.mkdir(target + made, 0o755)
            os.chmod(target + made, 0o755)
    return True


def _devices(target: str, nodes: Sequence[str], disk_bytes: int) -> None:
    os.makedirs(target + "/dev", exist_ok=True)
    for path in nodes:
        _bind(target, path)
    for name, link in _DEVICE_LINKS.items():
        os.symlink(f"/proc/self/{link}", f"{target}/dev/{name}")
    _bounded(target + "/dev/shm", disk_bytes)


def _proc(target: str, *, own_pids: bool, superuser: bool) -> str:
    os.makedirs(target, exist_ok=True)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    reason = "only the superuser, or a PID namespace, gets a /proc of its own"
    if own_pids or (superuser and linux.kernel_version() >= _HIDEPID_PER_MOUNT):
        try:
            linux.mount("proc", target, "proc", flags, "" if own_pids else "hidepid=2")
            return ""
        except OSError as error:
            reason = f"mounting it anew failed: {error}"
    elif superuser:
        reason = "before Linux 5.8 hidepid would change the /proc of everybody"
    linux.mount("/proc", target, None, linux.MS_BIND | linux.MS_REC)
    return reason
