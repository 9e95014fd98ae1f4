"""The sandbox where it must let a driver through: run on a machine with an NVIDIA GPU, as root.

    PYTHONPATH=src python tests/gpu/sandbox_on_cuda.py

For root and for an ordinary user: fork a worker from a zygote that has PyTorch and Triton imported, enter the sandbox,
create a CUDA context, map memory of the host through an IPC handle, compile and launch a Triton kernel on it, compile
CUDA C++ with nvcc and a function with torch.compile, and try the usual attacks. Prints one JSON line for each.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from kerneleval.records import from_plain, to_plain
from kerneleval.sandbox import lifecycle, linux, reach, reaper
from kerneleval.sandbox import slot as slots

N = 1 << 20
KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

def run(x, y):
    twice[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    torch.cuda.synchronize()
"""


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 64),)


def _runtime() -> ctypes.CDLL:
    packages = sysconfig.get_paths()["purelib"]
    found = [*sorted(glob.glob(f"{packages}/nvidia/*/lib/libcudart.so.*")), "libcudart.so", "libcudart.so.13"]
    for name in found:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise SystemExit("no libcudart found")


def _step(found: dict[str, Any], name: str, action: Any) -> Any:
    started = time.perf_counter()
    try:
        value = action()
    except BaseException as error:
        found[name] = f"FAILED {type(error).__name__}: {str(error)[:600]}"
        return None
    found[f"{name}_ms"] = round((time.perf_counter() - started) * 1e3, 2)
    return value


def work(facts: dict[str, Any]) -> dict[str, Any]:
    """In the worker."""
    import importlib.util

    import torch

    found: dict[str, Any] = {"uid": os.getuid(), "pid": os.getpid()}
    _step(found, "context", lambda: (torch.zeros(8, device="cuda"), torch.cuda.synchronize()))
    runtime = _runtime()

    class Interface:
        def __init__(self, pointer: int) -> None:
            self.__cuda_array_interface__ = {"shape": (N,), "typestr": "<f4", "data": (pointer, False), "version": 3}

    def map_all() -> list[Any]:
        tensors = []
        for text in facts["handles"]:
            handle, pointer = _Handle(), ctypes.c_void_p()
            ctypes.memmove(ctypes.byref(handle), bytes.fromhex(text), 64)
            code = runtime.cudaIpcOpenMemHandle(ctypes.byref(pointer), handle, 1)
            if code:
                raise RuntimeError(f"cudaIpcOpenMemHandle: {code}")
            tensors.append(torch.as_tensor(Interface(pointer.value or 0), device="cuda"))
        return tensors

    tensors = _step(found, "ipc", map_all)
    if tensors is None:
        tensors = [torch.ones(N, device="cuda"), torch.empty(N, device="cuda")]
    Path("kernel.py").write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernel", Path("kernel.py").resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    def triton_kernel() -> None:
        spec.loader.exec_module(module)
        module.run(*tensors)

    _step(found, "triton", triton_kernel)
    Path("k.cu").write_text('extern "C" int f(int x) { return x + 1; }\n__global__ void g() {}\n')

    def nvcc() -> None:
        done = subprocess.run(["nvcc", "-cubin", "-arch=sm_90", "k.cu"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)

    _step(found, "nvcc", nvcc)
    if facts["compile"]:
        compiled = torch.compile(lambda x: torch.relu(x * 2 + 1))
        value = _step(found, "torch_compile", lambda: float(compiled(torch.ones(1000, device="cuda")).sum()))
        found["torch_compile"] = found.get("torch_compile", value)

    def graph() -> None:
        x = torch.ones(1000, device="cuda")
        (x * 2).sum()
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            x * 2
        made.replay()
        torch.cuda.synchronize()

    _step(found, "graph", graph)
    _step(
        found,
        "matmul",
        lambda: (torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda")).sum().item(),
    )
    _step(found, "pinned", lambda: torch.empty(1 << 20, pin_memory=True))
    found["threads"] = len(os.listdir("/proc/self/task"))
    found["attacks"] = _attacks(facts)
    return found


def _attacks(facts: dict[str, Any]) -> dict[str, str]:
    def attempt(action: Any) -> str:
        try:
            return f"ok {action()!r}"[:80]
        except OSError as error:
            return os.strerror(error.errno or 0)

    host = facts["host"]
    return {
        "secret": attempt(lambda: Path(facts["secret"]).read_text()),
        "host mem": attempt(lambda: os.close(os.open(f"/proc/{host}/mem", os.O_RDONLY))),
        "host signal": attempt(lambda: os.kill(host, 0)),
        "tcp": attempt(lambda: socket.create_connection(("127.0.0.1", 22), 1)),
        "etc": attempt(lambda: Path("/etc/x").write_text("x")),
        "visible": str(sum(name.isdigit() for name in os.listdir("/proc"))),
    }


def zygote(fd: int, plain: dict[str, Any], facts: dict[str, Any], variant: str) -> None:
    """Fork one worker."""
    import torch  # noqa: F401
    import triton
    import triton.language  # noqa: F401

    control = socket.socket(fileno=fd)
    control.sendall(b"up\n")
    control.recv(16)
    if variant == "no-pidns":  # what a machine without PID namespaces gives
        lifecycle._PID_NAMESPACE_WORKS = ("cpu",)
    parent, started = os.getpid(), time.perf_counter()
    pid = os.fork()
    if pid == 0:
        out = control.detach()
        try:
            costs: dict[str, float] = {}
            trust = lifecycle.enter(
                from_plain(slots.Slot, plain),
                slots.ResourceLimits(),
                "cuda",
                keep_fds=(out,),
                parent_pid=parent,
                costs=costs,
            )
            answer: dict[str, Any] = {"level": trust.level, "layers": trust.layers, "missing": trust.missing}
            answer["ready_ms"] = round((time.perf_counter() - started) * 1e3, 2)
            answer["costs"] = {name: round(value, 2) for name, value in costs.items()}
            answer |= work(facts)
        except BaseException:
            answer = {"raised": traceback.format_exc()[-1500:]}
        os.write(out, json.dumps(answer).encode() + b"\n")
        time.sleep(100)
        os._exit(0)
    control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    time.sleep(200)


def play(variant: str) -> dict[str, Any]:
    """In the host."""
    runtime = _runtime()
    home = Path(tempfile.mkdtemp(prefix="kerneleval-gpu-"))
    home.chmod(0o711)
    (home / "secret").write_text("secret")
    pointers, handles = [], []
    for _ in range(2):
        pointer, handle = ctypes.c_void_p(), _Handle()
        assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4 * N)) == 0
        assert runtime.cudaIpcGetMemHandle(ctypes.byref(handle), pointer) == 0
        pointers.append(pointer)
        handles.append(ctypes.string_at(ctypes.byref(handle), 64).hex())
    values = (ctypes.c_float * N)(*([1.5] * N))
    assert runtime.cudaMemcpy(pointers[0], values, ctypes.c_size_t(4 * N), 1) == 0
    place = slots.prepare(0, home)
    facts = {"handles": handles, "host": os.getpid(), "secret": str(home / "secret"), "compile": True}
    ours, theirs = socket.socketpair()
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import sandbox_on_cuda as s; "
        "s.zygote(int(sys.argv[2]), *json.loads(sys.argv[3]))"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            str(Path(__file__).parent),
            str(theirs.fileno()),
            json.dumps([to_plain(place), facts, variant]),
        ],
        pass_fds=(theirs.fileno(),),
        env=reach.clean_environment() | {"PYTHONPATH": os.environ["PYTHONPATH"]},
        cwd="/",
    )
    theirs.close()
    stream = ours.makefile("r")
    stream.readline()
    ours.sendall(b"go\n")
    said = [json.loads(stream.readline()), json.loads(stream.readline())]
    pid = next(s["pid"] for s in said if set(s) == {"pid"})
    report = next(s for s in said if set(s) != {"pid"})
    report["resident_mib"] = reaper.resident_bytes(place, pid) >> 20
    back = (ctypes.c_float * N)()
    assert runtime.cudaMemcpy(back, pointers[1], ctypes.c_size_t(4 * N), 2) == 0
    report["right"] = all(value == 3.0 for value in back)
    started = time.perf_counter()
    report["leftovers"] = reaper.kill_all(place, pid)
    report["kill_ms"] = round((time.perf_counter() - started) * 1e3, 2)
    process.kill()
    process.wait()
    return {"variant": variant, "user": os.getuid(), **report}


def main() -> None:
    """Run every variant in a process of its own, as root and as an ordinary user."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="")
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(play(options.variant)), flush=True)
        return
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for prefix, variant in (([], "plain"), ([], "no-pidns"), (as_nobody, "plain"), (as_nobody, "no-pidns")):
        command = [*prefix, sys.executable, __file__, "--variant", variant]
        done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
        print(done.stdout or json.dumps({"variant": variant, "error": done.stderr[-2000:]}), flush=True)


if __name__ == "__main__":
    print(json.dumps({"kernel": os.uname().release, "linux": linux.kernel_version()}))
    main()
