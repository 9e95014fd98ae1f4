"""The sandbox, attacked from inside by real processes: as root and as an ordinary user, with and without PID namespace.

``rocm`` stands here for any device whose worker gets no PID namespace; no such device is needed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kerneleval.records import InfrastructureError, UsageError, from_plain, to_plain
from kerneleval.sandbox import lifecycle, linux, processes, reach, reaper, seccomp
from kerneleval.sandbox import slot as slots

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: the layers are Linux's")

HERE = Path(__file__).parent
SOURCE = Path(lifecycle.__file__).resolve().parents[2]
NOBODY = 65534


def _nobodys_python() -> list[str]:
    """Command that starts, as an ordinary user, a Python that such a user can run; empty when there is none."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return []
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    acts = Path(__file__).with_name("sandbox_acts.py")
    for needed in (acts, SOURCE / "kerneleval" / "__init__.py"):  # a clone may lie in a directory closed to others
        if subprocess.run([*as_nobody, "cat", str(needed)], capture_output=True, check=False).returncode:
            return []
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    starts_itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        found = subprocess.run([*as_nobody, python, "-c", starts_itself], capture_output=True, check=False)
        if found.returncode == 0:
            return [*as_nobody, python]
    return []


NOBODYS_PYTHON = _nobodys_python()
USERS = ["root", "nobody"] if os.geteuid() == 0 else ["me"]


@dataclass
class Played:
    """What came of an act."""

    head: dict
    result: dict
    report: dict


@functools.cache
def _driver(user: str, platform: str) -> subprocess.Popen[str]:
    """The process that forks hosts; it ends with this one."""
    packages = [p for p in sys.path if p.endswith("site-packages")]
    environment = reach.clean_environment() | {"PYTHONPATH": os.pathsep.join([str(SOURCE), *packages])}
    environment |= {"OMP_NUM_THREADS": "2", "TRITON_INTERPRET": "1"}
    environment |= {"SANDBOX_TEST_PLATFORM": platform} if platform else {}
    return subprocess.Popen(
        [*(NOBODYS_PYTHON if user == "nobody" else [sys.executable]), str(HERE / "sandbox_driver.py")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def play(user: str, act: str, device: str = "cpu", *, limits: dict | None = None, **options: object) -> Played:
    if user == "nobody" and not NOBODYS_PYTHON:
        pytest.skip("not run: no Python here, or no source, that an ordinary user can read")
    arguments = [act, "--device", device, "--limits", json.dumps(limits or {})]
    for name, value in options.items():
        arguments += [f"--{name}", str(value)]
    driver = _driver(user, os.environ.get("SANDBOX_TEST_PLATFORM", ""))
    assert driver.stdin is not None
    assert driver.stdout is not None
    driver.stdin.write(json.dumps(arguments) + "\n")
    driver.stdin.flush()
    line = driver.stdout.readline()
    assert line.startswith("{"), f"the host {line}: see standard error"
    report = json.loads(line)
    said = [json.loads(line) for line in report["said"].splitlines()]
    assert said, "the worker said nothing: see standard error"
    assert "raised" not in said[-1], said[-1]["raised"]
    played = Played(said[0], said[1] if len(said) > 1 else {}, report)
    assert report["leftovers"] == []
    assert report["alive"] == []
    assert report["files_left"] == []
    return played


@pytest.fixture(params=[(user, device) for user in USERS for device in ("cpu", "rocm")], ids="-".join)
def where(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


# -- what is in force -------------------------------------------------------------------------------------------------


def test_layers_and_state(where: tuple[str, str]) -> None:
    user, device = where
    played = play(user, "nothing", device)
    assert played.head["level"] == "strong", played.head
    seen = played.result
    assert seen["status"] == {
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "Seccomp_filters": "1",
        "CapEff": "0" * 16,
        "CapPrm": "0" * 16,
        "CapBnd": "0" * 16,
    }
    assert seen["session"]
    assert seen["stdin"] == ""
    assert seen["cwd"] == "/tmp/worker"
    if user == "root":
        assert seen["uid"] == played.report["uids"][0] >= 61000
        assert seen["groups"] == []
    if device == "cpu":
        assert sorted(seen["processes"]) == [1, 2]
    elif user == "root":
        assert seen["processes"] == [seen["me"]]
    else:
        assert any(m.startswith("proc:") for m in played.head["missing"])


def test_descriptors_are_closed(where: tuple[str, str]) -> None:
    seen = play(where[0], "nothing", where[1]).result
    assert seen["descriptors"].pop("0") == "ok: '/dev/null'"
    mine = {"1", "2", str(seen["keep"])}
    others = {fd: to for fd, to in seen["descriptors"].items() if fd not in mine and to.startswith("ok")}
    assert others == {}


def test_environment_is_made_from_scratch(where: tuple[str, str]) -> None:
    seen = play(where[0], "nothing", where[1]).result
    assert "SECRET_TOKEN" not in seen["environment"]
    wanted = {
        "HOME",
        "TMPDIR",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_EXTENSIONS_DIR",
        "NUMBA_CACHE_DIR",
    }
    assert wanted <= set(seen["environment"])


def test_no_environment_in_memory(where: tuple[str, str]) -> None:
    seen = play(where[0], "scan_memory", where[1]).result
    assert seen["hits"] == []
    assert "SECRET" not in seen["environ"]


@pytest.mark.parametrize("user", USERS)
def test_system_calls_are_refused(user: str) -> None:
    seen = play(user, "calls").result
    absent = {"clone3", "io_uring_setup"}
    assert {name for name, said in seen.items() if said == "ENOSYS"} == absent
    assert seen.pop("personality query") == "ok"
    assert {name: said for name, said in seen.items() if name not in absent and said != "EPERM"} == {}


def test_weaker_where_the_system_refuses() -> None:
    """As in a container without the right to unshare: still user, Landlock and seccomp; never silently."""
    played = play(USERS[0], "read_secrets", refuse="unshare,mount")
    assert played.head["level"] == "standard", played.head
    missing = {m.split(":")[0] for m in played.head["missing"]}
    assert {"netns", "ipcns", "mntns", "view"} <= missing
    assert {said for name, said in played.result.items() if name != "other slot"} <= {"EACCES", "ENOENT"}


def _without_landlock(played: Played) -> str:
    """The level that is left without it: a user of its own keeps files closed, where the worker can have one."""
    return "standard" if "uid" in played.head["layers"] else "weak"


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("end", ["kill", "wait", "murder"])
@pytest.mark.parametrize("refuse", ["unshare,mount", "unshare,mount,landlock_create_ruleset"])
def test_escapees_are_ended_without_namespaces(user: str, end: str, refuse: str) -> None:
    played = play(user, "escape", refuse=refuse, end=end, linger=0 if end == "wait" else 30)
    assert played.head["level"] == ("standard" if refuse == "unshare,mount" else _without_landlock(played))
    assert played.report.get("survived", []) == []


@pytest.mark.skipif(not shutil.which("ps"), reason="not run: no ps")
def test_other_systems_degrade_honestly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code for systems other than Linux, run on this one: no layer of Linux's, processes found through ps."""
    monkeypatch.setenv("SANDBOX_TEST_PLATFORM", "darwin")
    played = play("root" if os.geteuid() == 0 else "me", "hold_memory", linger=20)
    assert played.head["level"] == "weak"
    assert played.head["layers"] == ["process", "descriptors", "environment", "rlimits-partly"]
    missing = {m.split(":")[0] for m in played.head["missing"]}
    assert {"uid", "netns", "view", "landlock", "seccomp", "no_new_privs", "rlimits-processes"} <= missing
    assert played.report["resident"] > 500 << 20
    assert played.report["family"] >= 2


def test_weak_where_almost_all_is_refused() -> None:
    played = play(USERS[0], "nothing", refuse="unshare,mount,landlock_create_ruleset")
    assert played.head["level"] == _without_landlock(played)
    assert any(m.startswith("landlock:") for m in played.head["missing"])


# -- what it stops ----------------------------------------------------------------------------------------------------


def test_secrets_cannot_be_read(where: tuple[str, str]) -> None:
    seen = play(where[0], "read_secrets", where[1]).result
    assert set(seen) == {"closed", "store", "home", "other slot"}
    assert set(seen.values()) <= {"ENOENT", "EACCES"}


def test_nothing_is_written_outside(where: tuple[str, str]) -> None:
    played = play(where[0], "write_outside", where[1])
    seen = played.result
    inside = {name: seen.pop(name) for name in ("private", "temporary", "rename", "home")}
    assert all(said.startswith("ok") for said in inside.values()), inside
    seen.pop("work")  # a directory of that name exists inside, in the worker's own /tmp; what counts is the real one
    assert played.report["written"] == []
    assert {said.split(":")[0] for said in seen.values()} <= {"EROFS", "EACCES", "ENOENT"}


def test_sealed_worker_cannot_change_what_was_built(where: tuple[str, str]) -> None:
    seen = play(where[0], "write_when_sealed", where[1]).result
    assert seen["sealed"]
    assert seen["before"].startswith("ok")
    assert {seen[k] for k in ("write", "create", "remove", "rename", "truncate")} <= {"EACCES", "EXDEV"}
    assert seen["temporary"].startswith("ok")
    assert seen["read"] == "ok: 'built'"


def test_judge_zygote_and_monitor_are_out_of_reach(where: tuple[str, str]) -> None:
    user, device = where
    seen = play(user, "reach_processes", device).result
    if device != "cpu":
        seen.pop("all")  # without a PID namespace there are others of the worker's user or domain: only itself
    if user != "root":
        for name in ("host fd", "parent fd", "init fd"):
            seen.pop(name)  # the numbers may be listed by the same user; opening them is tried below
    allowed = {"EPERM", "EACCES", "ENOENT", "ESRCH"}
    assert {
        name: said for name, said in seen.items() if said not in allowed and not said.startswith("opened: []")
    } == {}


def test_network_is_out_of_reach(where: tuple[str, str]) -> None:
    seen = play(where[0], "reach_network", where[1]).result
    assert seen.pop("pair") == "x"
    assert set(seen.values()) <= {"EPERM", "EACCES", "ECONNREFUSED", "ENETUNREACH"}


# -- exhaustion -------------------------------------------------------------------------------------------------------


def test_fork_bomb_is_bounded_and_cleaned(where: tuple[str, str]) -> None:
    played = play(where[0], "fork_bomb", where[1], limits={"processes": 48}, linger=20)
    assert played.result["refused"] == "EAGAIN"
    assert 3 <= played.report["family"] <= 48 + 3


@pytest.mark.parametrize("user", USERS)
def test_memory_bomb_is_refused_on_the_cpu(user: str) -> None:
    played = play(user, "memory_bomb", limits={"memory_bytes": 256 << 20})
    assert played.result["refused"] < 4096


def test_resident_memory_is_told(where: tuple[str, str]) -> None:
    played = play(where[0], "hold_memory", where[1], linger=20)
    assert 500 << 20 < played.report["resident"] < 1200 << 20


@pytest.mark.parametrize("user", USERS)
def test_temporary_files_are_bounded(user: str) -> None:
    seen = play(user, "disk_bomb", limits={"disk_bytes": 32 << 20, "file_bytes": 16 << 20}).result
    assert seen["refused"] == "ENOSPC"
    assert seen["written"] <= 33 << 20
    assert seen["big"] == "EFBIG"


@pytest.mark.parametrize("user", USERS)
def test_descriptors_are_bounded(user: str) -> None:
    seen = play(user, "descriptor_bomb", limits={"open_files": 100}).result
    assert seen == {"count": pytest.approx(95, abs=4), "refused": "EMFILE"}


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["escape", "escape_and_exec"])
@pytest.mark.parametrize("end", ["kill", "wait", "murder"])
def test_escapees_are_ended(where: tuple[str, str], act: str, end: str) -> None:
    """Killed by the host; left behind by a worker that exits; left behind by a zygote that is killed."""
    played = play(where[0], act, where[1], end=end, linger=0 if end == "wait" else 30)
    if end == "wait":
        assert played.report["code"] == 0
        assert played.report["family"] == 0
    if end == "murder":
        assert played.report["family"] >= 3
        assert played.report["survived"] == []


@pytest.mark.slow(every=2)
@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("exit_seven", 7),
        ("segfault", -signal.SIGSEGV),
        ("abort", -signal.SIGABRT),
        ("kill_self", -signal.SIGKILL),
        ("burn", -signal.SIGXCPU),
    ],
)
def test_end_of_the_worker_is_told_truly(where: tuple[str, str], act: str, code: int) -> None:
    played = play(where[0], act, where[1], end="wait", limits={"cpu_seconds": 1}, patience=20)
    assert played.report["code"] == code


def test_litter_is_removed_and_links_not_followed(where: tuple[str, str]) -> None:
    played = play(where[0], "litter", where[1])
    assert played.report["bait"] == "untouched"


def test_killing_twice_and_too_late() -> None:
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o711)
        slot = slots.prepare(0, root)
        child = subprocess.Popen(["/bin/sleep", "100"])
        try:
            assert reaper.kill_all(slot, child.pid + 1_000_000) == []
            assert reaper.kill_all(slot, child.pid) == []  # a later process with the worker's number is left alone
            assert child.poll() is None
            assert os.listdir(root) == []
        finally:
            child.kill()
            child.wait()


# -- what must still work ---------------------------------------------------------------------------------------------


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("act", "wanted"),
    [
        ("build_cpp", {"value": 42}),
        ("torch_threads", {"value": 512.0**3}),
        ("triton_interpreter", {"value": 9900.0}),
        ("numba_parallel", {"value": 1000.0}),
        ("python_child", {"out": "fine"}),
    ],
)
def test_honest_work(where: tuple[str, str], act: str, wanted: dict) -> None:
    needs = {"build_cpp": "g++", "torch_threads": "torch", "triton_interpreter": "triton", "numba_parallel": "numba"}
    need = needs.get(act, "")
    if need == "g++" and not shutil.which("g++"):
        pytest.skip("not run: no g++")
    if need and need != "g++":
        pytest.importorskip(need)
    seen = play(where[0], act, where[1]).result
    assert {key: seen.get(key) for key in wanted} == wanted, seen


@pytest.mark.slow
def test_torch_compile() -> None:
    """Inductor writes C++, starts compilers and helper processes, and loads what they made."""
    pytest.importorskip("torch")
    if not shutil.which("g++"):
        pytest.skip("not run: no g++")
    assert play(USERS[0], "torch_compile", patience=170).result == {"value": 300.0}


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_probe_finds_no_layer_that_does_not_hold() -> None:
    code = (
        f"import json, sys; sys.path.append({str(Path(__file__).parent)!r}); from sandbox_probe import probe;"
        "from kerneleval.records import to_plain;"
        "p = probe('cpu', rounds=2); print(json.dumps([to_plain(p.trust), p.costs_ms]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    trust, costs = json.loads(done.stdout)
    assert not [m for m in trust["missing"] if "was possible" in m]
    assert trust["level"] in {"strong", "standard", "weak"}
    assert {"ready", "end", "seccomp"} <= set(costs)
    assert all(value >= 0 for value in costs.values())


def test_records_travel() -> None:
    limits = slots.ResourceLimits(memory_bytes=1 << 30, cpu_seconds=5, processes=10, open_files=64, file_bytes=1 << 20)
    assert from_plain(slots.ResourceLimits, json.loads(json.dumps(to_plain(limits)))) == limits
    slot = slots.Slot(number=3, base="/a", directory="/a/b", uid=61003, groups=(4,), readable=("/c",), token="t")
    assert from_plain(slots.Slot, json.loads(json.dumps(to_plain(slot)))) == slot
    for plain in ({"processes": 0}, {"processes": "many"}, {"memory": 1}, {"cpu_seconds": True}):
        with pytest.raises(UsageError):
            from_plain(slots.ResourceLimits, plain)
    with pytest.raises(UsageError, match="unknown field 'user'"):
        from_plain(slots.Slot, {"number": 0, "base": "", "directory": "", "user": 0})


def test_levels() -> None:
    full = ["uid", "netns", "ipcns", "view", "rlimits", "no_new_privs", "landlock", "seccomp"]
    assert lifecycle.level_of(full) == "strong"
    for layer in full:
        assert lifecycle.level_of([x for x in full if x != layer]) != "strong"
    assert lifecycle.level_of(["landlock", "seccomp", "rlimits"]) == "standard"
    assert lifecycle.level_of(["landlock", "seccomp"]) == "weak"
    assert lifecycle.level_of(["seccomp", "rlimits"]) == "weak"
    namespace = ["userns" if x == "uid" else x for x in full]
    assert lifecycle.level_of(namespace) == "standard"
    assert lifecycle.level_of([*namespace, "landlock-signals"]) == "strong"


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: users are the superuser's to give")
def test_users_are_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "UID_BASE", 62000)
    monkeypatch.setattr(slots, "UID_COUNT", 3)
    with tempfile.TemporaryDirectory() as root:
        Path(root).chmod(0o711)
        made = [slots.prepare(0, root) for _ in range(3)]
        assert len({slot.uid for slot in made}) == 3
        with pytest.raises(InfrastructureError, match="62000 to 62002"):
            slots.prepare(0, root)
        for slot in made:
            assert reaper.kill_all(slot, -1) == []
        again = slots.prepare(0, root)
        assert again.uid == 62000
        assert reaper.kill_all(again, -1) == []
        Path(root).chmod(0o700)
        with pytest.raises(UsageError, match=re.escape(f"chmod o+x {root}")):
            slots.prepare(0, root)


def test_sweep_after_a_killed_host() -> None:
    """The slots of a dead host and what runs in them go; those of a living one stay, and links are not followed."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        code = (
            "import os, sys, pathlib; from kerneleval.sandbox import reaper, slot as slots;"
            "root = reaper.make_root(sys.argv[1]); slot = slots.prepare(0, root);"
            "slot.uid >= 0 and (os.setgid(slot.uid), os.setuid(slot.uid));"
            "os.chdir(slot.directory); pathlib.Path('file').touch();"
            "print(os.posix_spawn('/bin/sleep', ['sleep', '100'], {}), flush=True); os.kill(os.getpid(), 9)"
        )
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-c", code, place]
        dead = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert dead.stdout is not None
        left = int(dead.stdout.readline())
        dead.wait()
        assert processes.is_running(left)
        living = reaper.make_root(place)
        slot = slots.prepare(7, living)
        elsewhere = Path(place, "elsewhere")
        elsewhere.mkdir()
        (elsewhere / "slot-0-x").mkdir()
        Path(place, "kerneleval-link").symlink_to(elsewhere)
        assert reaper.sweep(place) == []
        assert sorted(p.name for p in Path(place).iterdir()) == sorted(["elsewhere", "kerneleval-link", living.name])
        assert Path(slot.directory).is_dir()
        assert (elsewhere / "slot-0-x").is_dir()
        assert reaper.kill_all(slot, -1) == []
        assert reaper.remove(str(living)) == []
        assert not living.exists()
        deadline = time.monotonic() + 5
        while processes.is_running(left) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not processes.is_running(left)


def test_root_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        slots.prepare(0, tmp_path / "none")


def test_filter_numbers_are_the_kernels() -> None:
    """The tables against the kernel's headers, where those are installed."""
    headers = {0: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 1: "/usr/include/asm-generic/unistd.h"}
    checked = 0
    for column, header in headers.items():
        if not Path(header).exists():
            continue
        numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text()))
        tables = seccomp.DENIED | seccomp._ABSENT | seccomp._CHECKED | {"memfd_create": seccomp._MEMFD_CREATE}
        tables |= linux._NUMBERS
        for name, pair in tables.items():
            if name in numbers and pair[column] is not None:
                assert pair[column] == int(numbers[name]), (name, header)
                checked += 1
            elif pair[column] is None:
                assert name not in numbers or column == 0, name
    if not checked:
        pytest.skip("not run: no kernel headers")


def test_filter_programs_are_well_formed() -> None:
    """Every jump lands inside the program and every path ends in a return."""
    for arch in ("x86_64", "aarch64"):
        for memfd in (False, True):
            code = seccomp.program(arch, memfd=memfd)
            steps = [code[i : i + 8] for i in range(0, len(code), 8)]
            assert len(code) % 8 == 0
            assert len(steps) < 4096
            for index, step in enumerate(steps):
                operation = int.from_bytes(step[:2], sys.byteorder)
                if operation in (0x15, 0x35, 0x45):
                    assert index + 1 + max(step[2], step[3]) < len(steps)
            assert steps[-1][:2] == (0x06).to_bytes(2, sys.byteorder)


def test_a_slot_that_an_older_version_left_is_read(tmp_path: Path) -> None:
    slot = slots.Slot(number=0, base=str(tmp_path.resolve()), directory=str(tmp_path), uid=-1, token="t")
    word = {"slot": to_plain(slot) | {"a_field_that_is_gone": []}}
    assert reaper._slot(word, tmp_path) == slot
    assert reaper._slot({"slot": []}, tmp_path) is None
