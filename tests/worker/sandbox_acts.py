"""What a worker tries inside the sandbox. Each act returns plain data: what it got, or how it failed.

The directory of this file is not visible inside, so the driver has this module imported before it enters.
"""

# What an attacker would write.

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_X86 = os.uname().machine == "x86_64"


def _try(action: Callable[[], Any]) -> str:
    """``ok: ...`` or the name of the errno."""
    try:
        return f"ok: {action()!r}"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def _syscall(number: int, *arguments: int) -> str:
    result = _libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def nothing(facts: dict) -> dict:
    """What a worker looks like from inside."""
    return {
        "uid": os.getuid(),
        "groups": os.getgroups(),
        "cwd": os.getcwd(),
        "environment": sorted(os.environ),
        "descriptors": {
            name: _try(lambda n=name: os.readlink(f"/proc/self/fd/{n}")) for name in os.listdir("/proc/self/fd")
        },
        "keep": facts["keep"],
        "processes": [int(name) for name in os.listdir("/proc") if name.isdigit()],
        "me": os.getpid(),
        "status": {
            line.split(":")[0]: line.split(":")[1].strip()
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith(("NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapBnd"))
        },
        "session": os.getsid(0) == os.getpid(),
        "stdin": os.read(0, 10).decode(),
    }


def read_secrets(facts: dict) -> dict:
    """Files of the judge."""
    return {name: _try(lambda p=path: Path(p).read_text()) for name, path in facts["files"].items()}


def write_outside(facts: dict) -> dict:
    """Files anywhere but in the private directory and the temporary one."""
    targets = {
        "etc": "/etc/kerneleval-test",
        "usr": "/usr/kerneleval-test",
        "root": "/kerneleval-test",
        "work": f"{facts['work']}/kerneleval-test",
        "repository": f"{facts['repository']}/kerneleval-test",
        "interpreter": f"{sys.prefix}/kerneleval-test",
        "worker": f"{facts['repository']}/src/kerneleval/worker/kerneleval-test",
        "dev": "/dev/kerneleval-test",
        "proc": "/proc/sys/kernel/core_pattern",
    }
    found = {name: _try(lambda p=path: Path(p).write_text("x")) for name, path in targets.items()}
    found["temporary"] = _try(lambda: Path(os.environ["TMPDIR"], "here").write_text("x"))
    os.chdir(facts["private"])
    found["private"] = _try(lambda: Path("here").write_text("x"))
    found["home"] = _try(lambda: Path(os.environ["HOME"], "here").write_text("x"))
    found["rename"] = _try(
        lambda: (Path("a").mkdir(), Path("b").mkdir(), Path("here").rename("a/x"), Path("a/x").rename("b/x"))
    )
    return found


def write_when_sealed(facts: dict) -> dict:
    """The private directory after it was sealed."""
    from kerneleval.sandbox import lifecycle

    os.chdir(facts["private"])
    found: dict[str, Any] = {"before": _try(lambda: Path("library.so").write_text("built"))}
    found["sealed"] = lifecycle.seal()
    found["write"] = _try(lambda: Path("library.so").write_text("forged"))
    found["create"] = _try(lambda: Path("more").write_text("x"))
    found["remove"] = _try(lambda: Path("library.so").unlink())
    found["rename"] = _try(lambda: Path("library.so").rename("/tmp/library.so"))
    found["truncate"] = _try(lambda: os.truncate("library.so", 0))
    found["temporary"] = _try(lambda: Path(os.environ["TMPDIR"], "here").write_text("x"))
    found["read"] = _try(lambda: Path("library.so").read_text())
    return found


def _openable(pid: int) -> list[int]:
    found = []
    for fd in range(64):
        try:
            os.close(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
            found.append(fd)
        except OSError:
            continue
    return found


def reach_processes(facts: dict) -> dict:
    """The judge, the zygote and the monitor: memory, tracing, signals."""
    pids = {"host": facts["host"], "parent": os.getppid(), "init": 1}
    found = {}
    for name, pid in pids.items():
        found[f"{name} mem"] = _try(lambda p=pid: os.close(os.open(f"/proc/{p}/mem", os.O_RDONLY)))
        found[f"{name} environ"] = _try(lambda p=pid: len(Path(f"/proc/{p}/environ").read_bytes()))
        found[f"{name} maps"] = _try(lambda p=pid: len(Path(f"/proc/{p}/maps").read_bytes()))
        found[f"{name} fd"] = _try(lambda p=pid: os.listdir(f"/proc/{p}/fd"))
        found[f"{name} fd opened"] = f"opened: {_openable(pid)}"
        if name != "init" or facts["host"] != 1:
            found[f"{name} signal"] = _try(lambda p=pid: os.kill(p, signal.SIGUSR1) if p > 1 else os.kill(p, 0))
        found[f"{name} ptrace"] = _syscall(101 if _X86 else 117, 16, pid, 0, 0)
        found[f"{name} vm_readv"] = _syscall(310 if _X86 else 270, pid, 0, 0, 0, 0, 0)
    found["all"] = _try(lambda: os.kill(-1, signal.SIGTERM))
    return found


def reach_network(facts: dict) -> dict:
    """Loopback, datagrams, netlink, abstract sockets; Unix sockets among its own must work."""

    def connect(family: int, kind: int, address: Any) -> str:
        with socket.socket(family, kind) as sock:
            sock.settimeout(2)
            sock.connect(address)
        return "connected"

    here, there = socket.socketpair()
    here.send(b"x")
    return {
        "tcp": _try(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["port"]))),
        "udp": _try(lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["port"]))),
        "tcp6": _try(lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", facts["port"]))),
        "netlink": _try(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()),
        "abstract": _try(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"])),
        "pair": there.recv(1).decode(),
    }


def calls(facts: dict) -> dict:
    """Every system call of the table, with arguments that would be refused anyway."""
    from kerneleval.sandbox import seccomp

    column = 0 if _X86 else 1
    found = {n: _syscall(v[column], -1, -1, -1, -1, -1, -1) for n, v in seccomp.DENIED.items() if v[column] is not None}
    found["clone3"] = _syscall(435, 0, 0)
    found["io_uring_setup"] = _syscall(425, 0, 0)
    new_user, sigchld = 0x10000000, 17
    found["clone namespace"] = _syscall(56 if _X86 else 220, new_user | sigchld, 0, 0, 0, 0)
    found["personality"] = _syscall(135 if _X86 else 92, 0x0040000)
    found["personality query"] = _syscall(135 if _X86 else 92, 0xFFFFFFFF)
    found["memfd"] = _try(lambda: os.close(os.memfd_create("x")))
    return found


def scan_memory(facts: dict) -> dict:
    """Look for a secret of the judge's environment in every readable page of this process."""
    secret = facts.pop("secret").encode()[::-1]
    hits = []
    with open("/proc/self/maps") as file:
        rows = file.read().splitlines()
    for row in rows:
        span, mode, *rest = row.split()
        start, end = (int(x, 16) for x in span.split("-"))
        name = rest[-1] if len(rest) > 3 else ""
        if not mode.startswith("r") or name.startswith("[v") or end - start > 1 << 30:
            continue
        where = ctypes.string_at(start, end - start).find(b"SECRET_TOKEN=" + secret[::-1])
        if where >= 0 and "[stack]" in name:
            hits.append(name)
    return {"hits": hits, "environ": _try(lambda: Path("/proc/self/environ").read_bytes().strip(b"\0").decode())}


def fork_bomb(facts: dict) -> dict:
    """Fork without end; every child forks on."""
    count, until = 0, time.monotonic() + 1.0
    refused = ""
    while time.monotonic() < until:
        try:
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.setsid()
                while True:
                    try:
                        if os.fork() == 0:
                            os.setsid()
                    except OSError:
                        time.sleep(0.001)
            count += 1
        except OSError as error:
            refused = errno.errorcode[error.errno or 0]
            time.sleep(0.05)
    return {"count": count, "refused": refused}


def memory_bomb(facts: dict) -> dict:
    """Take memory until it is refused, or 4 GiB."""
    held = []
    try:
        for _ in range(64):
            held.append(bytearray(64 << 20))
    except MemoryError:
        return {"refused": len(held) * 64}
    return {"held": len(held) * 64}


def hold_memory(facts: dict) -> dict:
    """Hold 512 MiB in two processes."""
    facts["held"] = bytearray(os.urandom(1 << 20) * 256)
    ready, done = os.pipe()
    if os.fork() == 0:
        facts["more"] = bytearray(os.urandom(1 << 20) * 256)
        os.write(done, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    return {}


def escape(facts: dict) -> dict:
    """A daemon: two forks, own session, no descriptors, deaf to signals, no marks."""
    ready, done = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        os.chdir("/usr")
        os.environ.clear()
        for number in range(1, 65):
            if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                signal.signal(number, signal.SIG_IGN)
        os.write(done, b"x")
        os.closerange(0, 64)
        while True:
            time.sleep(1)
    os.read(ready, 1)
    return {}


def escape_and_exec(facts: dict) -> dict:
    """As a daemon that is another program."""
    subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True, env={}, cwd="/usr")
    return {}


def disk_bomb(facts: dict) -> dict:
    """Fill the temporary directory; and one file beyond its limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written, refused = 0, ""
    block = b"x" * (1 << 20)
    try:
        for number in range(64):
            with open(os.path.join(os.environ["TMPDIR"], f"f{number}"), "wb") as file:
                for _ in range(8):
                    written += file.write(block)
    except OSError as error:
        refused = errno.errorcode[error.errno or 0]
    for file in Path(os.environ["TMPDIR"]).glob("f*"):
        file.unlink()
    big = ""
    try:
        with open("big", "wb") as file:
            for _ in range(64):
                file.write(block)
                file.flush()
    except OSError as error:
        big = errno.errorcode[error.errno or 0]
    return {"written": written, "refused": refused, "big": big}


def descriptor_bomb(facts: dict) -> dict:
    """Open files until it is refused."""
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        refused = errno.errorcode[error.errno or 0]
    for fd in held:
        os.close(fd)
    return {"count": len(held), "refused": refused}


def litter(facts: dict) -> dict:
    """Leave files that are hard to remove: odd modes, links outwards, depth beyond any path."""
    outside = Path(facts["work"])
    os.chdir(facts["private"])
    closed = Path("closed")
    closed.mkdir()
    (closed / "file").write_text("x")
    Path("link").symlink_to(outside)
    Path("linked-file").symlink_to(facts["files"]["store"])
    os.mkfifo("pipe")
    top = os.getcwd()
    for _ in range(600):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(top)
    closed.chmod(0)
    Path(b"bad\xff\nname".decode(errors="surrogateescape")).write_text("x")
    return {}


def exit_seven(facts: dict) -> dict:
    """An exit code."""
    os._exit(7)


def segfault(facts: dict) -> dict:
    """A crash."""
    ctypes.string_at(0)
    return {}


def abort(facts: dict) -> dict:
    """The C library's abort."""
    os.abort()


def kill_self(facts: dict) -> dict:
    """SIGKILL from within."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)
    return {}


def burn(facts: dict) -> dict:
    """CPU time without end."""
    while True:
        pass


def build_cpp(facts: dict) -> dict:
    """Compile with g++ and call the result."""
    source = 'extern "C" int twice(int x) { return 2 * x; }\n'
    Path("k.cpp").write_text(source)
    done = subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", "k.so", "k.cpp"], capture_output=True, text=True)
    if done.returncode:
        return {"log": done.stderr}
    return {"value": ctypes.CDLL(os.path.abspath("k.so")).twice(21)}


def torch_threads(facts: dict) -> dict:
    """OpenMP in PyTorch, and what is imported late."""
    import torch

    torch.set_num_threads(2)
    a = torch.ones(512, 512)
    value = float((a @ a).sum())
    tasks = len(os.listdir("/proc/self/task"))
    import torch.nn.functional as functional

    return {"value": value, "threads": tasks, "gelu": float(functional.gelu(torch.ones(1)))}


_KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

def run():
    x = torch.arange(100, dtype=torch.float32)
    z = torch.empty_like(x)
    add[(2,)](x, x, z, 100, BLOCK=64)
    return float(z.sum())
"""


def triton_interpreter(facts: dict) -> dict:
    """A Triton kernel through the interpreter, from a file as a candidate's is."""
    import importlib.util

    Path("kernel.py").write_text(_KERNEL)
    spec = importlib.util.spec_from_file_location("kernel", os.path.abspath("kernel.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"value": module.run()}


def numba_parallel(facts: dict) -> dict:
    """A cached, parallel Numba function."""
    import numba
    import numpy

    @numba.njit(parallel=True)
    def total(x):  # type: ignore[no-untyped-def]
        s = 0.0
        for i in numba.prange(x.size):
            s += x[i]
        return s

    return {"value": float(total(numpy.ones(1000)))}


def python_child(facts: dict) -> dict:
    """A program of its own, with temporary files and a semaphore."""
    code = "import tempfile,multiprocessing as m; tempfile.NamedTemporaryFile(); m.Lock(); print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return {"out": done.stdout.strip(), "err": done.stderr}


def torch_compile(facts: dict) -> dict:
    """Inductor: C++ generated, compiled by g++, loaded."""
    import torch
    import torch._inductor.config

    torch._inductor.config.cpp_cache_precompile_headers = False  # seconds more for a second kernel, which is not here
    torch._inductor.config.cpp.vec_isa_ok = True  # else programs are compiled to try vector instructions: 10 s

    @torch.compile
    def f(x):  # type: ignore[no-untyped-def]
        return torch.relu(x * 2 + 1).sum()

    return {"value": float(f(torch.ones(100)))}
