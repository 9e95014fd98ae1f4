"""Linux system calls that the standard library does not offer, through ctypes. Nothing here decides anything.

Every wrapper raises :class:`OSError` with the errno of the call. On systems without the call it raises
``OSError(ENOSYS)``, so that callers report a missing layer in one way.
"""
# Paths are strings here: they end in system calls on names that another process chose.

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import sys
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
PR_SET_SECCOMP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 22, 47, 4

_CAPABILITY_VERSION_3 = 0x20080522
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_NUMBERS = {
    # the number on x86-64, on aarch64
    "capset": (126, 91),
    "pivot_root": (155, 41),
    "close_range": (436, 436),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}


def machine() -> str:
    """``x86_64`` or ``aarch64`` on Linux, else empty: the architectures whose system-call numbers are known here."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    known = sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8 and name in ("x86_64", "aarch64")
    return name if known else ""


def kernel_version() -> tuple[int, int]:
    """Major and minor version of the running kernel; (0, 0) when its name has another form."""
    parts = platform.release().split(".")
    try:
        return int(parts[0]), int("".join(c for c in parts[1] if c.isdigit()))
    except (IndexError, ValueError):
        return 0, 0


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _function(name: str) -> Any:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, f"{name} exists only on Linux")
    try:
        return getattr(_libc(), name)
    except AttributeError:
        raise OSError(errno.ENOSYS, f"the C library has no {name}") from None


def _checked(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def syscall(name: str, *arguments: object) -> int:
    """A raw system call; integers are passed as 64-bit values, the rest as ctypes converts it."""
    if not machine():
        raise OSError(errno.ENOSYS, f"no system-call numbers for {platform.machine()} on {sys.platform}")
    number = _NUMBERS[name][0 if machine() == "x86_64" else 1]
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    function = _function("syscall")
    function.restype = ctypes.c_long
    return _checked(name, function(ctypes.c_long(number), *values))


def prctl(option: int, *arguments: int) -> int:
    """``prctl`` with integer arguments; the unused ones are zero, as some options demand."""
    values = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(f"prctl({option})", _function("prctl")(ctypes.c_int(option), *values))


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags``."""
    _checked(f"unshare({flags:#x})", _function("unshare")(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """``mount(2)``."""
    result = _function("mount")(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    )
    _checked(f"mount({target})", result)


def umount(target: str, flags: int = 0) -> None:
    """``umount2(2)``."""
    _checked(f"umount2({target})", _function("umount2")(os.fsencode(target), ctypes.c_int(flags)))


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def restrict_mount(target: str, *, recursive: bool) -> None:
    """Make a mount (and, when ``recursive``, those below it) read-only and deaf to set-user-id bits. Linux 5.12."""
    attributes = _MountAttr(_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(attributes)
    syscall("mount_setattr", _AT_FDCWD, os.fsencode(target), flags, ctypes.byref(attributes), size)


def pivot_into(target: str) -> None:
    """Make ``target`` (a mount) the root directory and drop the old root from sight."""
    os.chdir(target)
    syscall("pivot_root", b".", b".")
    umount(".", MNT_DETACH)
    os.chdir("/")


def drop_bounding_set() -> None:
    """Give up, for every program still to be started, all capabilities. Needs CAP_SETPCAP."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # past the last capability of this kernel
                break
            raise


def drop_capabilities() -> None:
    """Empty the ambient, permitted, effective and inheritable sets."""
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # kernels without ambient capabilities
            raise
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def close_from(keep: set[int]) -> None:
    """Close every descriptor of this process that is not in ``keep``."""
    first = 0
    for fd in [*sorted(keep), -1]:
        last = fd - 1 if fd >= 0 else 0x7FFFFFFF
        if last >= first:
            _close_range(first, last)
        first = fd + 1


def _close_range(first: int, last: int) -> None:
    try:
        syscall("close_range", first, last, 0)
        return
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            raise
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for name in os.listdir(directory):
        if first <= int(name) <= last:
            try:
                os.close(int(name))
            except OSError as error:
                if error.errno != errno.EBADF:  # the listing's own descriptor is closed already
                    raise
