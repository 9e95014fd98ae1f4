"""Landlock: the process itself gives up reach in the file system, the network and towards other processes.

Needs no privilege, holds for every child, cannot be taken back. Rights that the running kernel does not know are left
out, by the ABI version that it reports (``Documentation/userspace-api/landlock.rst`` of the Linux sources).
A process in a Landlock domain may also not trace, or read the memory of, a process outside of it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from kerneleval.sandbox import linux

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ_RIGHTS = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_KNOWN_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NET_BIND_TCP, _NET_CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2
_ABI_NET, _ABI_IOCTL, _ABI_SCOPES = 4, 5, 6
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One subtree (or file) and what may be done there."""

    path: str
    """Absolute path; one that does not exist is left out."""
    write: bool = False
    """Create, change, rename and remove; else read and execute only."""
    device: bool = False
    """Device nodes: write and ioctl, but nothing created."""


def abi_version() -> int:
    """ABI of the running kernel's Landlock. Raises OSError where there is none or it is off."""
    return linux.syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)


def _rights(grant: Grant, known: int) -> int:
    if grant.write:
        return known
    rights = _READ_RIGHTS
    if grant.device:
        rights |= _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
    return rights & known


def restrict(grants: Iterable[Grant], *, writes_only: bool = False, network: bool = False) -> tuple[str, ...]:
    """Confine this process to ``grants``, further than it is confined already. ``no_new_privs`` must be set.

    ``writes_only`` leaves reading as it is, ``network`` TCP. Returns what the kernel's ABI let us confine besides
    files: any of ``tcp``, ``devices``, ``signals``. Raises OSError: nothing was confined.
    """
    abi = abi_version()
    known = _KNOWN_BY_ABI[max(v for v in _KNOWN_BY_ABI if v <= abi)]
    if writes_only:
        known &= ~(_READ_RIGHTS | _IOCTL_DEV)
    attributes = _RulesetAttr(known, 0, 0)
    size = 8
    reached: list[str] = []
    if abi >= _ABI_NET and not network:
        attributes.net, size = _NET_BIND_TCP | _NET_CONNECT_TCP, 16
        reached.append("tcp")
    if abi >= _ABI_IOCTL:
        reached.append("devices")
    if abi >= _ABI_SCOPES:
        attributes.scoped, size = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL, 24
        reached.append("signals")
    _enter(attributes, size, grants, known)
    return tuple(reached)


def scope_signals() -> None:
    """Enter a domain that confines nothing but signals: from now on they reach only this process and its descendants.

    It makes ``kill(-1)`` mean "all that I started". No mount can be changed afterwards. Sets ``no_new_privs``. Raises
    OSError: the kernel does not scope signals (ABI 6, Linux 6.12); nothing was confined.
    """
    abi = abi_version()
    if abi < _ABI_SCOPES:
        raise OSError(errno.EOPNOTSUPP, f"Landlock ABI {abi} does not scope signals, {_ABI_SCOPES} does")
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    # A domain that does not mention it forbids moving files between directories for itself and every domain inside.
    attributes = _RulesetAttr(_REFER, 0, _SCOPE_SIGNAL)
    _enter(attributes, ctypes.sizeof(attributes), [Grant(path="/", write=True)], _REFER)


def _enter(attributes: _RulesetAttr, size: int, grants: Iterable[Grant], known: int) -> None:
    ruleset = linux.syscall("landlock_create_ruleset", ctypes.byref(attributes), size, 0)
    try:
        for grant in grants:
            _add(ruleset, grant, known)
        linux.syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _add(ruleset: int, grant: Grant, known: int) -> None:
    try:
        fd = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            return  # what cannot be reached needs no right
        raise
    try:
        rights = _rights(grant, known)
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _FILE_RIGHTS
        rule = _PathBeneath(rights, fd)
        linux.syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)
