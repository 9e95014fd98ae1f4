"""Compiles a Triton candidate for GPUs that are not there: ``python -m ...program SPEC OUT``.

It imports the candidate and calls it on zeros in the host's memory, in a process for each target that looks to the
candidate like one on that GPU: tensors say that they are there, and what PyTorch computes, the host does. A launch
compiles its kernel with the very signature and constants, writes what came into OUT, and launches nothing. All of it
runs the candidate's code: start it confined, believe nothing it says of binaries that it did not write.

SPEC is JSON: ``candidate``, ``names`` (of the entry point), ``targets``, and ``calls``, each with a ``key``, ``dims``,
``args`` (``{"shape", "dtype", "grad"}`` or ``{"value"}``), ``backward``, and ``kind``: of the calls of one kind the
next is made only where the candidate declares those before it unsupported.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kerneleval.languages.crosscompile.targets import TARGETS, Target
from kerneleval.records import from_plain

_THERE, _HERE = torch.device("cuda", 0), torch.device("cpu")


class OnDevice(TorchFunctionMode):
    """Inside of it tensors in the host's memory say they are on the GPU, and calls that name the GPU get the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = _answers().get(func)
        if answer is not None:
            return answer(*args)
        kwargs = {name: _moved(value) for name, value in (kwargs or {}).items()}
        return func(*map(_moved, args), **kwargs)


@functools.cache
def _answers() -> dict[Any, Callable[..., Any]]:
    tensor: Any = torch.Tensor
    return {
        tensor.device.__get__: lambda one: _THERE,
        tensor.is_cuda.__get__: lambda one: True,
        tensor.is_cpu.__get__: lambda one: False,
        tensor.get_device: lambda one: 0,
        tensor.cuda: lambda one, *_: one,
    }


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device):
        return _HERE if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


def dress(target: Target) -> None:
    """``torch.cuda`` and ``torch.version`` describe the target."""
    major, minor = target.capability
    properties = types.SimpleNamespace(
        name=target.product,
        major=major,
        minor=minor,
        multi_processor_count=target.units,
        total_memory=target.memory_bytes,
        warp_size=target.warp,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=target.shared_bytes,
        shared_memory_per_multiprocessor=target.shared_bytes,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        gcnArchName=target.name,
        is_multi_gpu_board=False,
        is_integrated=False,
        L2_cache_size=32 << 20,
    )
    described: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": target.product,
        "get_device_capability": target.capability,
        "get_device_properties": properties,
        "is_bf16_supported": target.capability >= (8, 0),
        **dict.fromkeys(("init", "_lazy_init", "set_device", "synchronize")),
    }
    for name, value in described.items():
        setattr(torch.cuda, name, _giving(value))
    for name in ("device", "device_of"):
        setattr(torch.cuda, name, _Nowhere)
    version: Any = torch.version
    version.cuda, version.hip = ("13.0", None) if target.vendor == "nvidia" else (None, "7.0")


def _giving(value: Any) -> Any:
    """A function of its own that gives the value: PyTorch's compiler distinguishes functions by identity."""
    return lambda *args, **keywords: value


class _Nowhere(contextlib.nullcontext[Any]):
    """Makes a device current that is not there."""

    def __init__(self, *_args: Any) -> None:
        super().__init__()


_TARGET_S = 300
"""Time that a target has."""

_MESSAGE = 4000
_SIDE_BY_SIDE = 2


def main(words: Sequence[str]) -> int:
    """Every target in a child of this process, which has PyTorch and Triton imported; returns the exit code."""
    spec = json.loads(Path(words[0]).read_text())
    out = Path(words[1])
    os.environ.pop("TRITON_INTERPRET", None)
    import triton
    import triton.compiler
    import triton.language  # noqa: F401

    torch.set_num_threads(1)
    waiting, running = [TARGETS[name] for name in spec["targets"]], 0
    while waiting or running:
        while waiting and running < _SIDE_BY_SIDE:
            target = waiting.pop(0)
            if os.fork() == 0:
                os._exit(_child(spec, target, out))
            running += 1
        os.wait()
        running -= 1
    return 0


def _child(spec: Mapping[str, Any], target: Target, out: Path) -> int:
    signal.alarm(_TARGET_S)
    folder = out / target.name
    folder.mkdir()
    said = os.open(
        folder / "said.txt", os.O_WRONLY | os.O_CREAT, 0o600
    )  # a compiler may end this process with its words
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
    found: dict[str, Any] = {"calls": []}
    recorder = _Recorder(target, folder)
    try:
        recorder.disguise()
        _run(spec, folder, recorder, found)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what came of the candidate
        found["error"] = _said(error)
    found["kernels"] = recorder.kernels
    (folder / "found.json").write_text(json.dumps(found))
    return 0


def _run(spec: Mapping[str, Any], folder: Path, recorder: _Recorder, found: dict[str, Any]) -> None:
    from kerneleval import languages
    from kerneleval.records import Candidate

    candidate = from_plain(Candidate, spec["candidate"])
    language = languages.find(candidate.language)
    loaded = language.load(candidate, folder / "build", "cuda", tuple(spec["names"]))
    loaded.watch(False)  # puts launching back as it was, so that the recorder's is the one that counts
    recorder.take_over()
    made = set()
    for call in spec["calls"]:
        if call["kind"] in made:
            continue
        before = len(recorder.kernels)
        row = {"key": call["key"], "kind": call["kind"], "error": "", "unsupported": False}
        try:
            _call(loaded, call)
            made.add(call["kind"])
        except NotImplementedError as error:
            row |= {"error": _said(error), "unsupported": True}
        except Exception as error:  # noqa: BLE001 - the candidate's
            row["error"] = _said(error)
        row["launches"] = len(recorder.kernels) - before
        found["calls"].append(row)


def _call(loaded: Any, call: Mapping[str, Any]) -> None:
    def made(argument: Mapping[str, Any]) -> Any:
        if "value" in argument:
            return argument["value"]
        tensor = torch.zeros(argument["shape"], dtype=getattr(torch, argument["dtype"]))
        return tensor.requires_grad_() if argument["grad"] and call["backward"] else tensor

    args = [made(argument) for argument in call["args"]]
    with OnDevice(), torch.set_grad_enabled(call["backward"]):
        made_ones = loaded.forward(args, (), call["dims"])
        if call["backward"]:
            outputs = list(made_ones) if isinstance(made_ones, (tuple, list)) else [made_ones]
            leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
            if loaded.backward is not None:
                loaded.backward([torch.zeros_like(o) for o in outputs], args, (), call["dims"])
            else:
                outputs = [o for o in outputs if o.requires_grad]
                zeros = [torch.zeros_like(o) for o in outputs]
                # torch.autograd.grad would leave the disguise while the candidate's backward is called
                engine: Any = torch.autograd.Variable._execution_engine
                engine.run_backward(
                    tuple(outputs),
                    tuple(zeros),
                    False,
                    False,
                    tuple(leaves),
                    allow_unreachable=True,
                    accumulate_grad=True,
                )


def _said(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    return text[:_MESSAGE]


class _Recorder:
    """Compiles what is launched, for one target, and launches nothing."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.kernels: list[dict[str, Any]] = []
        self._target, self._folder = target, folder
        self._known: dict[Any, dict[str, Any]] = {}

    def disguise(self) -> None:
        """This process looks like one on the target; to be called before the candidate is imported."""
        from triton.runtime import driver

        dress(self._target)
        driver.set_active(_driver(self._target))

    def take_over(self) -> None:
        """Every launch comes here from now on."""
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        original, recorder = JITFunction.run, self

        def run(self: Any, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
            return recorder.compile(self, original, args, keywords)

        def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
            """The first configuration that can be launched is the fastest, and the others are not tried."""
            if getattr(self, "_kerneleval_chosen", None) is not None:
                return [float("inf")] * 3
            before = len(recorder.kernels)
            self.fn.run(*args, **meta, **config.all_kwargs())
            tried = recorder.kernels[before:]
            del recorder.kernels[before:]  # the one that is chosen is launched again
            if any(kernel["error"] for kernel in tried):
                return [float("inf")] * 3
            self._kerneleval_chosen = config
            return [0.0] * 3

        def tuned(self: Any, *args: Any, **keywords: Any) -> Any:
            self._kerneleval_chosen = None
            return unpatched(self, *args, **keywords)

        unpatched = Autotuner.run
        Autotuner.run, Autotuner._bench = tuned, bench
        JITFunction.run = run

    def compile(self, function: Any, original: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Compile one launch, unless the same was compiled before, and keep what came of it."""
        name = str(function.fn.__name__)
        key = (id(function), *map(_key, args), *((k, _key(v)) for k, v in keywords.items()))
        row = self._known.get(key)
        if row is None:
            row = self._known[key] = {"kernel": name, "error": "", "file": "", "shared": 0, "seconds": 0.0}
            began = time.perf_counter()
            (self._folder / "compiling.txt").write_text(name)
            try:
                plain = {k: _mock(v) for k, v in keywords.items()}
                kernel = original(function, *map(_mock, args), grid=(1,), warmup=True, **plain)
                self._keep(kernel, row)
            except Exception as error:  # noqa: BLE001 - the compiler's, about the candidate
                row["error"] = _said(error)
            row["seconds"] = time.perf_counter() - began
            (self._folder / "compiling.txt").unlink()
        self.kernels.append(row)
        return None

    def _keep(self, kernel: Any, row: dict[str, Any]) -> None:
        suffix = "cubin" if self._target.vendor == "nvidia" else "hsaco"
        path = self._folder / f"{len(self._known)}.{suffix}"
        path.write_bytes(kernel.asm[suffix])
        text = self._folder / f"{len(self._known)}.{'ptx' if suffix == 'cubin' else 'amdgcn'}"
        text.write_text(str(kernel.asm[text.suffix[1:]]))
        row["file"], row["shared"] = path.name, int(kernel.metadata.shared)
        if row["shared"] > self._target.shared_bytes:
            row["error"] = (
                f"needs {row['shared']} bytes of shared memory a block; {self._target.name} has "
                f"{self._target.shared_bytes}"
            )


def _key(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    return ("tensor", str(dtype)) if dtype is not None and hasattr(value, "data_ptr") else (type(value), str(value))


def _mock(value: Any) -> Any:
    """A tensor as the compiler sees it: its dtype, and an address that is as aligned as PyTorch's."""
    from triton.runtime.jit import MockTensor

    return MockTensor(value.dtype) if isinstance(value, torch.Tensor) else value


def _driver(target: Target) -> Any:
    """Triton's driver of a GPU that is not there."""
    from triton.backends.compiler import GPUTarget

    amd = target.vendor == "amd"
    wanted = GPUTarget("hip", target.name, target.warp) if amd else GPUTarget("cuda", int(target.name[3:]), 32)
    properties = {
        "max_shared_mem": target.shared_bytes,
        "max_num_regs": 65536,
        "multiprocessor_count": target.units,
        "warpSize": target.warp,
        "sm_clock_rate": 1_500_000,
        "mem_clock_rate": 2_000_000,
        "mem_bus_width": 4096,
    }
    described: dict[str, Any] = {
        "is_active": True,
        "get_current_target": wanted,
        "get_current_device": 0,
        "get_current_stream": 0,
        "get_active_torch_device": _THERE,
        "get_device_interface": torch.cuda,
        "get_benchmarker": lambda call, **keywords: [0.0, 0.0, 0.0],
        "get_device_capability": target.capability,
        "get_device_properties": properties,
        **dict.fromkeys(("set_current_device", "get_empty_cache_for_benchmark", "clear_cache")),
    }
    driver = types.SimpleNamespace(**{name: _giving(value) for name, value in described.items()})
    driver.utils = driver
    return driver


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
