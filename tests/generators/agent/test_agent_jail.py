"""What an agent can't reach from its jail; each act is seen to work without one."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.generators.agent.agents import agent, request, unconfined

from kerneleval.records import UsageError
from kerneleval.sandbox import jail, landlock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's")

SECRET = "the-secret-4711"

ACTS = """
import ctypes, glob, json, os, signal, socket, subprocess, sys

given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
done = {}


def act(function):
    try:
        done[function.__name__] = repr(function())
    except BaseException as error:
        done[function.__name__] = f"REFUSED {error}"


def read(path):
    with open(path, errors="replace") as stream:
        return stream.read()


def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "libc")
    return result


@act
def a_key():
    return read(given["key"])

@act
def the_store():
    return read(given["store"])

@act
def another_workspace():
    return [read(p) for p in glob.glob(given["temporary"] + "/kerneleval-agent-*/workspace/candidate.py")]

@act
def another_workspace_by_its_name():
    return read(given["other"])

@act
def temporary_files():
    return len(os.listdir(given["temporary"])) and given["secret"]

@act
def through_a_link():
    os.symlink(given["key"], "link")
    return read("link")

@act
def through_a_hard_link():
    os.link(given["key"], "hard")
    return read("hard")

@act
def by_moving_it():
    os.rename(given["key"], "moved")
    os.rename("moved", given["key"])
    return given["secret"]

@act
def by_climbing():
    here = os.open(".", os.O_RDONLY)
    return open(os.open(os.path.relpath(given["key"]), os.O_RDONLY, dir_fd=here)).read()

@act
def by_a_child():
    return subprocess.run(["cat", given["key"]], capture_output=True, text=True, check=True).stdout

@act
def by_a_session_of_its_own():
    return subprocess.run(["cat", given["key"]], capture_output=True, text=True, check=True,
                          start_new_session=True).stdout

@act
def anothers_environment():
    return read(f"/proc/{given['victim']}/environ")

@act
def anothers_words():
    return read(f"/proc/{given['victim']}/cmdline") + given["secret"]

@act
def anothers_files():
    return read(f"/proc/{given['victim']}/root{given['key']}")

@act
def the_judges_environment():
    return read(f"/proc/{given['judge']}/environ") and given["secret"]

@act
def sockets_of_others():
    return read("/proc/net/unix") and given["secret"]

@act
def anothers_memory():
    called(libc.ptrace(0x4206, given["victim"], 0, 0))  # PTRACE_SEIZE stops nobody, and ends with this process
    return given["secret"]

@act
def a_signal():
    os.kill(given["victim"], 0)
    return given["secret"]

@act
def a_signal_to_the_judge():
    os.kill(given["judge"], 0)
    return given["secret"]

@act
def a_signal_to_who_started_it():
    os.kill(os.getppid(), 0)
    return given["secret"]

@act
def a_file_of_another():
    with open(given["store"], "a") as stream:
        stream.write("x")
    return given["secret"]

@act
def a_new_file():
    path = given["temporary"] + "/planted"
    open(path, "w").close()
    os.unlink(path)
    return given["secret"]

@act
def a_new_file_among_the_tools():
    path = os.path.dirname(os.path.abspath(__file__)) + "/planted"
    open(path, "w").close()
    os.unlink(path)
    return given["secret"]

@act
def tcp():
    with socket.create_connection(("127.0.0.1", given["port"]), 5):
        return given["secret"]

@act
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", given["port"]))
    return given["secret"]

@act
def an_abstract_socket():
    socket.socket(socket.AF_UNIX).connect("\\0" + given["abstract"])
    return given["secret"]

@act
def another_user():
    if os.getuid() == 0 and os.fork() == 0:
        try:
            os.setuid(1)
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.getuid() == 0 and os.wait()[1]:
        raise OSError("not root enough")
    return given["secret"]

print(json.dumps(done))
"""

ALWAYS = {"anothers_words", "sockets_of_others"}
"""Told by the system to everybody who may read ``/proc``."""


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Things to be reached."""
    temporary = tmp_path / "temporary"
    other = temporary / "kerneleval-agent-other" / "workspace"
    other.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    key, store = tmp_path / "home" / ".ssh" / "id", tmp_path / "kerneleval.db"
    key.parent.mkdir(parents=True)
    for path in (key, store, other / "candidate.py"):
        path.write_text(SECRET)
    victim = subprocess.Popen(["sleep", "600"], env={"A_KEY": SECRET})
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        abstract.bind(f"\0{tmp_path}")
        abstract.listen()
        yield {
            "secret": SECRET,
            "key": str(key),
            "store": str(store),
            "temporary": str(temporary),
            "other": str(other / "candidate.py"),
            "victim": victim.pid,
            "judge": os.getpid(),
            "port": listener.getsockname()[1],
            "abstract": str(tmp_path),
        }
    victim.kill()
    victim.wait()


def play(tmp_path: Path, given: dict, **table) -> dict[str, str]:
    """What came of each act."""
    answer = agent(tmp_path, ACTS, words=(json.dumps(given),), **table).ask(request())
    assert answer.problem == "no_code", answer.message
    return json.loads(answer.text)


def test_nothing_is_reached(tmp_path, given):
    free = play(tmp_path, given, jail=unconfined)
    assert {name for name, came in free.items() if SECRET not in came} == set()
    abi = landlock.abi_version()
    unscoped = {"a_signal", "a_signal_to_the_judge", "a_signal_to_who_started_it", "an_abstract_socket"}
    came = play(tmp_path, given)
    assert came.keys() == free.keys()
    assert {name for name, said in came.items() if SECRET in said} == (set() if abi >= 6 else unscoped)


def test_the_network_is_one_setting(tmp_path, given):
    came = play(tmp_path, given, network=True)
    assert {name for name, said in came.items() if SECRET in said} == {"tcp", "udp"}


def test_what_is_granted_is_reached(tmp_path, given):
    table = {"reads": [str(tmp_path / "scripts"), given["key"]], "writes": [given["store"]]}
    (tmp_path / "scripts").mkdir(exist_ok=True)
    came = play(tmp_path, given, **table)
    reached = {name for name, said in came.items() if SECRET in said}
    assert reached == {"a_key", "through_a_link", "by_climbing", "by_a_child", "by_a_session_of_its_own", "the_store",
                       "a_file_of_another"}  # fmt: skip


def test_the_system_and_the_interpreter_are_there(tmp_path):
    text = """
        import ssl, json, subprocess, sys, tempfile, multiprocessing
        import numpy
        open('/etc/passwd').read(); open('/dev/null', 'w').write('x'); open('/proc/cpuinfo').read()
        tempfile.TemporaryFile().write(b'x')
        subprocess.run(['sh', '-c', 'ls /usr > /dev/null && bash -c "cat <(echo fine)"'], check=True)
    """
    answer = agent(tmp_path, text).ask(request())
    assert (answer.problem, answer.text) == ("no_code", "fine\n"), answer.message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="not run: others can't read it anyway")
def test_the_superusers_own_files_stay_closed(tmp_path):
    assert Path("/etc/shadow").read_text()
    answer = agent(tmp_path, "open('/etc/shadow')").ask(request())
    assert "PermissionError" in answer.message


# -- the program itself ------------------------------------------------------------------------------------------------


def started(words: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_exit_codes_and_signals_are_the_commands():
    assert started(jail.command(["sh", "-c", "exit 7"], [], [])).returncode == 7
    assert started(jail.command(["sh", "-c", "kill -SEGV $$"], [], [])).returncode == -11
    assert started(jail.command(["no-such-program"], [], [])).returncode == 127


def test_a_program_outside_of_the_grants_is_named(tmp_path):
    program = tmp_path / "agent"
    shutil.copyfile("/bin/true", program)
    program.chmod(0o755)
    done = started(jail.command([str(program)], [], []))
    assert done.returncode == 126
    assert "must be granted ('reads')" in done.stderr
    assert started(jail.command([str(program)], [program], [])).returncode == 0


def test_no_landlock_no_run(monkeypatch, tmp_path):
    def none():
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(landlock, "abi_version", none)
    with pytest.raises(UsageError, match="no agent can be run here: this system has no Landlock"):
        jail.command(["true"], [], [])
    code = "import kerneleval.sandbox.landlock as l\ndef n(): raise OSError(95, 'no')\nl.abi_version = n\n"
    code += "from kerneleval.sandbox.jail import main; main()"
    mark = tmp_path / "ran"
    plan = json.dumps({"readable": [], "writable": [str(tmp_path)], "network": True, "parent": os.getpid()})
    done = started([sys.executable, "-c", code, plan, "--", "touch", str(mark)])
    assert done.returncode == jail.REFUSED
    assert "is not run, for it cannot be confined: this system has no Landlock" in done.stderr
    assert not mark.exists()


def test_a_layer_that_fails_is_not_left_out(tmp_path):
    """As on a kernel without seccomp, or whose Landlock refuses."""
    mark = tmp_path / "ran"
    for layer in ("seccomp.install", "landlock.restrict", "linux.drop_capabilities"):
        module, _, name = layer.partition(".")
        code = f"import kerneleval.sandbox.{module} as m\ndef n(*a, **k): raise OSError(1, 'no')\nm.{name} = n\n"
        code += "from kerneleval.sandbox.jail import main; main()"
        plan = json.dumps({"readable": [], "writable": [str(tmp_path)], "network": False, "parent": os.getpid()})
        done = started([sys.executable, "-c", code, plan, "--", "touch", str(mark)])
        assert (done.returncode, mark.exists()) == (jail.REFUSED, False), layer
        assert "cannot be confined" in done.stderr


def test_who_is_no_parent_starts_nothing(tmp_path):
    words = jail.command(["touch", str(tmp_path / "ran")], [], [tmp_path])
    words = [re.sub(r'"parent": \d+', '"parent": 1', word) for word in words]
    assert started(words).returncode == jail.REFUSED
    assert not (tmp_path / "ran").exists()


def test_what_everybody_may_read(tmp_path):
    for name, mode in (("open", 0o644), ("closed", 0o600), ("in/open", 0o644), ("mixed/a", 0o644), ("mixed/b", 0o640)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, mode=0o755)
        path.write_text("x")
        path.chmod(mode)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "closed")
    (tmp_path / "secret").mkdir(mode=0o700)
    (tmp_path / "secret" / "open").write_text("x")
    tmp_path.chmod(0o755)
    whole, found = jail._public(str(tmp_path))
    assert not whole
    assert sorted(Path(p).relative_to(tmp_path).as_posix() for p in found) == ["in", "mixed/a", "open"]
