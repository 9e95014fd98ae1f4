"""While the judge waits: what is compiled, tuned or imported is told from what runs, and from what says so."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneleval.judge import Judge
from kerneleval.pipeline import check
from kerneleval.worker import waiting
from kerneleval.worker.compiling import CompileWatch
from kerneleval.worker.waiting import TimeLimit, Waiting

PATIENCE_S = 60.0


def signs(work: Callable[[threading.Event], Any], looks: int = 8, *, caller: bool = True) -> list[bool]:
    """What the watch sees of a thread that works, until it says that it is done, at most so often; ``caller``: whether
    it is the one that the judge waits for.
    """
    watch, done = CompileWatch(lambda: None), threading.Event()
    watch._folders = tuple(
        folder for folder in watch._folders if not __file__.startswith(folder)
    )  # a test is no library

    def run() -> None:
        try:
            work(done)
        finally:
            done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    seen: list[bool] = []
    while not done.wait(0.02) and len(seen) < looks:
        frame = sys._current_frames().get(thread.ident or 0)
        seen += [watch.sees({1: frame}, int(caller))] if frame else []
        del frame
    done.set()
    thread.join(PATIENCE_S)
    return seen


def code(text: str, **names: Any) -> dict[str, Any]:
    """What a candidate's file defines."""
    space = {"__name__": "candidate", **names}
    exec(compile(text, "/tmp/candidate.py", "exec"), space)
    return space


def test_numba_compiles_and_what_it_made_runs() -> None:
    numba = pytest.importorskip("numba")
    lines = "\n".join(f"    t = t * x + {i}.5" for i in range(300))
    function = numba.njit(code(f"def long(x):\n    t = 0.0\n{lines}\n    return t\n")["long"])
    seen = signs(lambda _: function(1.0), looks=1000)
    assert any(seen) and seen.count(True) >= len(seen) - 2, "from the first look to the last"


@pytest.mark.parametrize("calls", [True, False])
def test_another_library_may_compile_while_it_is_called_or_imported(calls: bool) -> None:
    """A thread of its own that waits, as pools have, does not."""
    library: dict[str, Any] = {"__name__": "warp.build"}
    exec(compile("def build(done):\n    done.wait()\n", torch.__file__.replace("torch", "warp"), "exec"), library)
    seen = signs(library["build"], caller=calls)
    assert (all if calls else any)(seen[1:]) == calls


@pytest.mark.parametrize("loops", [True, False])
def test_a_library_that_a_loop_calls_again_and_again_is_none(loops: bool) -> None:
    """Calls that take long, and those of other lines, may be of a compiler."""
    library: dict[str, Any] = {"__name__": "warp.build", "sleep": time.sleep}
    text = "def build(seconds):\n    sleep(seconds)\n"
    exec(compile(text, torch.__file__.replace("torch", "warp"), "exec"), library)
    again = "    while not done.is_set():\n        build(0.005)\n"
    others = "".join(f"    build(0.03)  # {line}\n" for line in range(60))
    work = code("def work(done):\n" + (again if loops else others), build=library["build"])["work"]
    seen = signs(work, looks=40)
    assert any(seen[20:]) != loops


@pytest.mark.parametrize(
    "text",
    [
        "def work(done):\n    while not done.is_set():\n        pass\n",
        "def work(done):\n    done.wait()\n",
        "import time\n\ndef work(done):\n    while not done.is_set():\n        time.sleep(0.001)\n",
        "def work(done):\n    while not done.is_set():\n        torch.nn.functional.gelu(x)\n",
        "import numpy as np\n\ndef work(done):\n    while not done.is_set():\n        np.median(x.numpy())\n",
    ],
)
def test_a_loop_of_the_candidates_own_is_none(text: str) -> None:
    assert not any(signs(code(text, torch=torch, x=torch.ones(64))["work"]))


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_kernel_that_is_timed_without_an_end_is_none(goes_on: bool) -> None:
    """``do_bench`` of Triton waits for the device while kernels are chosen."""
    testing = pytest.importorskip("triton.testing")
    text = "def many(done):\n    while not done.is_set():\n        sleep(0.01)\n        sleep(0.015)\n"
    library = {"__name__": "triton.testing", "sleep": time.sleep}
    exec(compile(text + "def one(done):\n    done.wait()\n", testing.__file__, "exec"), library)
    seen = signs(library["many" if goes_on else "one"], looks=40)
    assert any(seen[1:]) == goes_on


TRITON = """
import sys, threading, time
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kerneleval.worker.compiling import CompileWatch

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    for _ in tl.static_range(24):
        a = tl.dot(tl.reshape(a, (64, 64)), tl.reshape(a, (64, 64))).reshape((BLOCK,))
    tl.store(y + i, a)

def work():
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    triton.compile(ASTSource(kernel, signature=signature, constexprs={(3,): 4096}), target=GPUTarget("cuda", 90, 32))

watch, thread = CompileWatch(lambda: None), threading.Thread(target=work)
thread.start()
looks, longest, last = 0, 0.0, time.monotonic()
while thread.is_alive():
    time.sleep(0.02)
    frame = sys._current_frames().get(thread.ident)
    if frame is not None and watch.sees({thread.ident: frame}, thread.ident):
        looks, longest, last = looks + 1, max(longest, time.monotonic() - last), time.monotonic()
print(looks)
"""


@pytest.mark.slow
def test_triton_compiles_for_a_gpu(tmp_path: Path) -> None:
    """It lets the interpreter's lock go: else nothing would be seen."""
    pytest.importorskip("triton")
    file = tmp_path / "compiles.py"
    file.write_text(TRITON)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    ran = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 3


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)


def test_signs_put_the_end_off_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    one = Waiting(TimeLimit(15.0, 120.0), list, frozenset())
    for _ in range(11):
        clock.now_s += 10
        assert not one.is_over()
        one.sign()
    assert one.compiled_s == 33.0, "seldom signs say little"
    clock.now_s += 9
    assert not one.is_over()
    clock.now_s += 2
    assert one.is_over() and one.why() == "within 121 s (with signs of progress; --patience gives it more)"


def test_who_waited_for_a_processor_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 s are its own: 27 s looked as if the limit was another one."""
    clock = Clock(monkeypatch)
    one = Waiting(TimeLimit(15.0), list, frozenset())
    monkeypatch.setattr(one._held, "waited_s", lambda: 12.0)
    clock.now_s += 27
    assert one.is_over() and one.why() == "within 27 s, of which it waited 12 s for a processor"


def test_without_a_sign_it_is_over_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    one = Waiting(TimeLimit(15.0, 120.0), list, frozenset())
    clock.now_s += 1
    one.sign()
    clock.now_s += 16
    assert one.is_over() and one.why() == "within 17 s, the last 15 s of them without a sign of progress"
    other = Waiting(TimeLimit(15.0), list, frozenset())
    clock.now_s += 14
    assert not other.is_over()
    clock.now_s += 2
    assert other.is_over() and other.why() == "within 16 s"


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells what processes do")


@LINUX
@pytest.mark.parametrize(
    ("name", "program", "sign"),
    [
        ("cc1plus", "while :; do :; done", True),
        ("/usr/bin/x86_64-linux-gnu-g++-12", "while :; do :; done", True),
        ("cc1plus", "sleep 100; :", False),
        ("spins", "while :; do :; done", False),
    ],
)
def test_compilers_that_work_are_a_sign(name: str, program: str, sign: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_S", 0.01)
    monkeypatch.setattr(waiting, "_WORKING_S", 0.01)
    monkeypatch.setattr(waiting, "_OFTEN_S", 0.0)
    with subprocess.Popen([name, "-c", program], executable="/bin/sh", start_new_session=True) as child:
        one = Waiting(TimeLimit(15.0, 120.0), lambda: [os.getpid(), child.pid], frozenset({os.getpid()}))
        try:
            time.sleep(0.5)
            one.look()  # what was used so far
            signed_s, until = one.compiled_s, time.monotonic() + (PATIENCE_S if sign else 1.0)
            while one.compiled_s == signed_s and time.monotonic() < until:
                time.sleep(0.02)
                one.look()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert (one.compiled_s > signed_s) == sign


@LINUX
@pytest.mark.parametrize("works", [True, False])
def test_signs_count_where_something_computes(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library may sleep, or wait for a lock, as long as it is called to."""
    monkeypatch.setattr(waiting, "_OFTEN_S", 0.0)
    program = "while :; do :; done" if works else "sleep 100; :"
    with subprocess.Popen(["sh", "-c", program], start_new_session=True) as child:
        one = Waiting(TimeLimit(15.0, 120.0), lambda: [child.pid], frozenset({child.pid}))
        try:
            time.sleep(0.3)
            one.look()
            until = time.monotonic() + (PATIENCE_S if works else 1.0)
            while not one.compiled_s and time.monotonic() < until:
                time.sleep(0.02)
                one.sign()
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    assert (one.compiled_s > 0) == works


COMPILES_LONG = """
import subprocess

import torch

BUSY = "end=$((SECONDS + 5)); while [ $SECONDS -lt $end ]; do :; done"
done = []


def gelu(x):
    if not done:
        done.append(subprocess.run(["cc1plus", "-c", BUSY], executable="/bin/bash", check=True))
    return torch.nn.functional.gelu(x)
"""

TABLE_IN_NUMBA = """
import math

import numba
import torch

lines = "\\n".join(f"    t = t * x + {i}.5" for i in range(700))
space = {}
exec("def long(x):\\n    t = 0.0\\n" + lines + "\\n    return min(1.0, abs(t) + 1.0)\\n", space)
long = numba.njit(space["long"])


def gelu(x):
    return torch.nn.functional.gelu(x) * long(0.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [COMPILES_LONG, TABLE_IN_NUMBA])
def test_who_compiles_longer_than_calls_may_take_passes(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "CALLS_S", 2.0)
    monkeypatch.setattr(waiting, "LOAD_S", 5.0)
    file = tmp_path / "gelu.py"
    file.write_text(text)
    options: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    with Judge("cpu", tmp_path / "cache") as judge:
        verdict = check(file, "gelu", judge=judge, allow=("library", "mixed"), timed=False, **options)
    assert verdict.verdict == "passed", verdict.message


def test_a_thread_that_cannot_start_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    with CompileWatch(lambda: None).over(wanted=True):
        ctypes.CDLL(None)


INTERPRETED = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.jit
def first(x):
    tl.store(x, tl.load(x))

first[(1,)](x)  # the interpreter is ready before anything is looked at

def once(done):
    kernel[(9000,)](x, x.numel(), BLOCK=16)

def many(done):
    step = 0
    while not done.is_set():
        kernel[(4,)](x, x.numel() - step, BLOCK=16)
        step += counts

def new(done):
    while not done.is_set():
        @triton.jit
        def again(x, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

        again[(4,)](x, x.numel(), BLOCK=16)
"""


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("work", "counts", "goes_on"),
    [("once", 0, True), ("many", 0, False), ("many", 1, False), ("new", 0, False)],
    ids=["a large grid", "the same launch", "launches of their own", "kernels of their own"],
)
def test_an_interpreted_kernel_goes_on_while_it_does_something_new(
    work: str, counts: int, goes_on: bool, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    (tmp_path / "interpreted.py").write_text(f"counts = {counts}\nimport torch\nx = torch.zeros(64)\n{INTERPRETED}")
    script = f"""
import os, sys, threading, time
sys.path.insert(0, {str(tmp_path)!r})
import interpreted
from kerneleval.worker.compiling import CompileWatch
watch, done = CompileWatch(lambda: None), threading.Event()
thread = threading.Thread(target=interpreted.{work}, args=(done,), daemon=True)
thread.start()
seen = []
while thread.is_alive() and len(seen) < 40:
    time.sleep(0.03)
    frame = sys._current_frames().get(thread.ident)
    seen += [watch.sees({{1: frame}}, 1)] if frame else []
print(sum(seen[5:15]), sum(seen[30:]), flush=True)
os._exit(0)
"""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert [int(count) > 3 for count in ran.stdout.split()] == [goes_on, goes_on]
