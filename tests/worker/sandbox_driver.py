"""Runs acts inside real sandboxes and prints what happened, a line of JSON each. Started by ``test_sandbox.py`` as root
or not, with arguments as lines of JSON on standard input.

Three processes as in earnest, for every act: the host, forked from this process, which knows no secret; the zygote,
forked from the host before that has secrets; and the worker, which enters the sandbox and plays the act from
``sandbox_acts.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kerneleval.records import from_plain, to_plain

if "SANDBOX_TEST_PLATFORM" in os.environ:  # before the modules look
    sys.platform = os.environ["SANDBOX_TEST_PLATFORM"]

from kerneleval.sandbox import lifecycle, linux, processes, reaper, seccomp
from kerneleval.sandbox import slot as slots

SECRET = "the-judge-keeps-this-9f3b1c"


if "SANDBOX_TEST_PLATFORM" in os.environ:
    processes.HAS_PROC = False


def _refuse(names: list[str]) -> None:
    """Make system calls fail with EPERM for this process and its children, as a container runtime does."""
    import ctypes
    import errno

    numbers = {name: n[0 if linux.machine() == "x86_64" else 1] for name, n in seccomp.DENIED.items()}
    numbers |= {"landlock_create_ruleset": 444, "mount_setattr": 442}
    op = seccomp._op
    code = op(0x20, 0)
    for name in names:
        code += op(0x15, numbers[name], 0, 1) + op(0x06, 0x00050000 | errno.EPERM)
    code += op(0x06, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(code, len(code))
    wanted = seccomp._Program(len(code) // 8, ctypes.addressof(buffer))
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.prctl(linux.PR_SET_SECCOMP, 2, ctypes.addressof(wanted))


def zygote(control: socket.socket) -> None:
    """Fork the worker, tell its pid, wait for orders: ``end`` reaps it and tells the status."""
    import sandbox_acts

    payload, fds, _, _ = socket.recv_fds(control, 1 << 20, 1)
    for fd in fds:
        os.set_inheritable(fd, True)
    device, slot, limits, act, facts = json.loads(payload)
    started = time.perf_counter()
    theirs, mine = socket.socketpair()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        control.close()
        mine.close()
        out = theirs.detach()
        try:
            costs: dict[str, float] = {}
            trust = lifecycle.enter(
                from_plain(slots.Slot, slot),
                from_plain(slots.ResourceLimits, limits),
                device,
                keep_fds=(out,),
                parent_pid=me,
                costs=costs,
            )
            ready_ms = (time.perf_counter() - started) * 1e3
            head = {"level": trust.level, "layers": trust.layers, "missing": trust.missing}
            head |= {"ready_ms": ready_ms, "costs": costs}
            os.write(out, json.dumps(head).encode() + b"\n")
            result = getattr(sandbox_acts, act)(facts | {"keep": out})
            os.write(out, json.dumps(result).encode() + b"\n")
            time.sleep(facts.get("linger", 0))
            os._exit(0)
        except BaseException:
            import traceback

            os.write(out, json.dumps({"raised": traceback.format_exc()}).encode() + b"\n")
            os._exit(99)
    theirs.close()
    data = b""
    deadline = time.monotonic() + facts["patience"]
    while data.count(b"\n") < 2 and time.monotonic() < deadline:
        mine.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            piece = mine.recv(1 << 20)
        except TimeoutError:
            break
        if not piece:
            break
        data += piece
    resident = reaper.resident_bytes(from_plain(slots.Slot, slot), pid)
    control.sendall(json.dumps({"pid": pid, "said": data.decode(), "resident": resident}).encode() + b"\n")
    if control.recv(16) == b"wait\n":
        _, status = os.waitpid(pid, 0)
        control.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
        control.recv(16)
    os._exit(0)


def _listeners() -> tuple[int, str]:
    tcp = socket.create_server(("127.0.0.1", 0))
    name = f"kerneleval-test-{os.getpid()}"
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + name)
    abstract.listen()
    for server in (tcp, abstract):
        threading.Thread(target=server.accept, daemon=True).start()
    return tcp.getsockname()[1], name


def _plant(home: Path, work: Path) -> dict[str, str]:
    closed = work / "closed"
    closed.mkdir(mode=0o700)
    store = work / "store"
    store.mkdir()
    files = {"closed": closed / "secret", "store": store / "kerneleval.db", "home": home / "secret.txt"}
    for file in files.values():
        file.write_text(SECRET)
        file.chmod(0o644)
    return {name: str(file) for name, file in files.items()}


def main() -> None:
    """Play an act for every line, until there are no more."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            play(json.loads(line))
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            print("failed", flush=True)


def play(arguments: list[str]) -> None:
    """Parse, play, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("act")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limits", default="{}")
    parser.add_argument("--refuse", default="")
    parser.add_argument("--end", default="kill", choices=("kill", "wait", "murder"))
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--linger", type=float, default=0.0)
    options = parser.parse_args(arguments)
    if options.refuse:
        _refuse(options.refuse.split(","))
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        ours.close()
        zygote(theirs)
    theirs.close()
    work = Path(tempfile.mkdtemp(prefix="kerneleval-test-"))
    work.chmod(0o711)
    home = work / "home"
    home.mkdir(mode=0o755)
    os.environ["HOME"] = str(home)
    os.environ["SECRET_TOKEN"] = SECRET
    port, abstract = _listeners()
    leak = os.open(_plant(home, work)["store"], os.O_RDONLY) if not (home / "secret.txt").exists() else -1
    root = work / "root"
    root.mkdir()
    root.chmod(0o711)
    slot = slots.prepare(0, root)
    other = slots.prepare(1, root)
    Path(other.directory, "secret").write_text(SECRET)
    facts = {
        "secret": SECRET,
        "host": os.getpid(),
        "port": port,
        "abstract": abstract,
        "files": {
            "closed": str(work / "closed/secret"),
            "store": str(work / "store/kerneleval.db"),
            "home": str(home / "secret.txt"),
            "other slot": str(Path(other.directory, "secret")),
        },
        "work": str(work),
        "private": slot.directory,
        "repository": str(Path(lifecycle.__file__).resolve().parents[3]),
        "patience": options.patience,
        "linger": options.linger,
    }
    lifecycle.protect_host()
    limits = to_plain(slots.ResourceLimits(**json.loads(options.limits)))
    payload = json.dumps([options.device, to_plain(slot), limits, options.act, facts]).encode()
    socket.send_fds(ours, [payload], [leak])
    report = _play(options, slot, Zygote(pid, ours))
    report["leftovers"] += reaper.kill_all(other, -1)
    report["bait"] = "untouched" if Path(facts["files"]["store"]).read_text() == SECRET else "changed"
    places = ["/etc", "/usr", "/", facts["work"], facts["repository"], sys.prefix, "/dev"]
    places.append(str(Path(lifecycle.__file__).parent))
    report["written"] = [p for p in places if Path(p, "kerneleval-test").exists()]
    report["uids"] = [slot.uid, other.uid]
    report["files_left"] = sorted(p.name for p in root.iterdir())
    subprocess.run(["rm", "-rf", str(work)], check=True)
    print(json.dumps(report))


class Zygote:
    """The host's end of it."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.ended = False

    def tell(self, order: str) -> None:
        """One of ``wait`` and ``quit``."""
        self.control.sendall(f"{order}\n".encode())

    def said(self) -> dict:
        """The next message."""
        return json.loads(self.control.recv(1 << 20))

    def wait(self) -> None:
        """Until it has ended."""
        if not self.ended:
            os.waitpid(self.pid, 0)
            self.ended = True


def _play(options: argparse.Namespace, slot: slots.Slot, zygote: Zygote) -> dict:
    first = zygote.said()
    report = {"zygote": zygote.pid, **first}
    if options.end == "wait":
        zygote.tell("wait")
        report |= zygote.said()
    before = sorted(set(sandbox_family(first["pid"])))
    if options.end == "murder":
        os.kill(zygote.pid, signal.SIGKILL)
        zygote.wait()
        deadline = time.monotonic() + 5
        while any(_alive(p) for p in before) and time.monotonic() < deadline:
            time.sleep(0.01)
        report["survived"] = [p for p in before if _alive(p)]
    started = time.perf_counter()
    report["leftovers"] = reaper.kill_all(slot, first["pid"])
    report["kill_ms"] = (time.perf_counter() - started) * 1e3
    report["family"] = len(before)
    report["alive"] = [p for p in before if _alive(p)]
    if not zygote.ended:
        zygote.tell("quit")
        zygote.wait()
    return report


def sandbox_family(pid: int) -> list[int]:
    """The worker's processes at this moment, the monitor included."""
    return [pid, *processes.descendants(pid)] if _alive(pid) else []


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


if __name__ == "__main__":
    main()
