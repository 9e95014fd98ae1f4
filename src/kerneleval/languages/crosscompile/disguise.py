"""A process that looks as if it ran on a GPU that is not there, to a candidate that wants to know."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kerneleval.languages.crosscompile.targets import Target

__all__ = ["OnDevice", "dress"]

_THERE, _HERE = torch.device("cuda", 0), torch.device("cpu")


class OnDevice(TorchFunctionMode):
    """Inside of it tensors in the host's memory say they are on the GPU, and what asks for the GPU gets the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        told = _told().get(func)
        if told is not None:
            return told(*args)
        kwargs = {name: _moved(value) for name, value in (kwargs or {}).items()}
        return func(*map(_moved, args), **kwargs)


@functools.cache
def _told() -> dict[Any, Callable[..., Any]]:
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
    """``torch.cuda`` and ``torch.version`` tell of the target."""
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
    told: dict[str, Any] = {
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
    for name, value in told.items():
        setattr(torch.cuda, name, _giving(value))
    for name in ("device", "device_of"):
        setattr(torch.cuda, name, _Nowhere)
    version: Any = torch.version
    version.cuda, version.hip = ("13.0", None) if target.vendor == "nvidia" else (None, "7.0")


def _giving(value: Any) -> Any:
    """A function of its own that gives the value: PyTorch's compiler tells functions by identity."""
    return lambda *args, **keywords: value


class _Nowhere(contextlib.nullcontext[Any]):
    """Makes a device current that is not there."""

    def __init__(self, *_args: Any) -> None:
        super().__init__()
