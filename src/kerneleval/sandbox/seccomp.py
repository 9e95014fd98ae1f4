"""The seccomp filter: system calls that no kernel needs and every escape begins with fail with EPERM.

A failing call, and not a kill, so that a candidate fails in its own way and its message reaches the user. What goes
through io_uring is seen by no filter, so io_uring is off. ``clone3`` passes its flags by pointer, where a filter cannot
look: it fails with ENOSYS and the C library falls back to ``clone``, whose flags are checked.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from kerneleval.sandbox import linux

DENIED: dict[str, tuple[int | None, int | None]] = {
    # name: (x86-64, aarch64); None: the architecture has no such call
    # other processes: their memory, descriptors and registers
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    # the kernel itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "fanotify_init": (300, 262),
    # the machine
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "vhangup": (153, 58),
    # namespaces and mounts: nothing gained may be given away
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # memory that no limit of a process counts
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}

_ABSENT = {  # these say "not built in", for which callers have a fallback
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
}
_MEMFD_CREATE = (319, 279)
_CHECKED = {"clone": (56, 220), "socket": (41, 198), "personality": (135, 92), "ioctl": (16, 29)}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_NEW_NAMESPACES = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWCGROUP
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
)
_AF_UNIX = 1
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PER_QUERY = 0xFFFFFFFF

_LD_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NR_OFFSET, _ARCH_OFFSET, _ARGS_OFFSET = 0, 4, 16
_SECCOMP_MODE_FILTER = 2


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _low(argument: int) -> bytes:
    """Load the low 32 bits of an argument (both architectures are little-endian here)."""
    return _op(_LD_ABS, _ARGS_OFFSET + 8 * argument)


def _when(number: int, body: list[bytes]) -> list[bytes]:
    """``body``, which must return, for one system call. The accumulator holds the number and keeps it otherwise."""
    return [_op(_JEQ, number, 0, len(body)), *body]


def program(arch: str, *, memfd: bool) -> bytes:
    """The filter for ``arch`` (``x86_64`` or ``aarch64``) as an array of ``struct sock_filter``. ``memfd``: anonymous
    memory files are allowed (device drivers share memory through them).
    """
    column = 0 if arch == "x86_64" else 1
    deny, absent, allow = _op(_RET, _ERRNO | errno.EPERM), _op(_RET, _ERRNO | errno.ENOSYS), _op(_RET, _ALLOW)
    code = [_op(_LD_ABS, _ARCH_OFFSET), _op(_JEQ, _AUDIT_ARCH[arch], 1, 0), deny, _op(_LD_ABS, _NR_OFFSET)]
    if arch == "x86_64":
        code += [_op(_JGE, _X32_BIT, 0, 1), absent]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            code += _when(number, [deny])
    if not memfd:
        code += _when(_MEMFD_CREATE[column], [deny])
    for numbers in _ABSENT.values():
        code += _when(numbers[column], [absent])
    checked = {name: numbers[column] for name, numbers in _CHECKED.items()}
    code += _when(checked["clone"], [_low(0), _op(_JSET, _NEW_NAMESPACES, 0, 1), deny, allow])
    code += _when(checked["socket"], [_low(0), _op(_JEQ, _AF_UNIX, 0, 1), allow, deny])
    code += _when(checked["personality"], [_low(0), _op(_JEQ, 0, 1, 0), _op(_JEQ, _PER_QUERY, 0, 1), allow, deny])
    code += _when(checked["ioctl"], [_low(1), _op(_JEQ, _TIOCSTI, 1, 0), _op(_JEQ, _TIOCLINUX, 0, 1), deny, allow])
    return b"".join([*code, allow])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(*, memfd: bool) -> None:
    """Put the filter on this thread and all it will start. ``no_new_privs`` must be set. Raises OSError: the kernel or
    the architecture has no seccomp filters; nothing was installed.
    """
    arch = linux.machine()
    if not arch:
        raise OSError(errno.ENOSYS, "no seccomp filter for this system")
    code = program(arch, memfd=memfd)
    buffer = ctypes.create_string_buffer(code, len(code))
    wanted = _Program(len(code) // 8, ctypes.addressof(buffer))
    linux.prctl(linux.PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(wanted))
