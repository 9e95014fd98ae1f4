"""Self-check: a known kernel with known answers, run on a device by a language's own tools, in a worker.

It says whether the device, the compiler and the runtime can be trusted on this machine. It says nothing of a candidate.
:meth:`kerneleval.judge.windows.worker_pool.WorkerPool.require` asks it once and keeps a pass in the cache. The kernels
are in ``languages/common/known``.
"""

from __future__ import annotations

import math

import torch

from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout, dense
from kerneleval.judge.windows.protocol import Runner, output_views
from kerneleval.languages import Language
from kerneleval.languages.common.base import known_kernel
from kerneleval.records import Candidate, to_plain
from kerneleval.worker.host import WorkerError, WorkerFailure
from kerneleval.worker.waiting import TimeLimit

_SHAPE = (32, 300)
"""Rows and columns of the input: more rows than threads, and columns that fill no vector evenly."""

_TOLERANCE = 1e-5
"""Largest relative error. Softmax in fp32 over 300 elements errs by less than 1e-6."""

_BUILD_TIMEOUT_S, _LOAD_TIMEOUT_S, _RUN_TIMEOUT_S = 300.0, 120.0, 120.0


def failure(runner: Runner, language: Language, known: str, arch: str) -> str:
    """What is wrong with the device or the tools; empty: the known kernel gives the known answers.

    Args:
        runner: a worker in which nothing was loaded so far; it is used up.
        known: file name of the kernel (:meth:`Language.known`).
    """
    candidate = Candidate(files=((known, known_kernel(known)),), language=language.name)
    message = {"candidate": to_plain(candidate), "dir": str(runner.worker.directory / "build")}
    x, dims = dense(_SHAPE, "float32"), {"M": _SHAPE[0], "N": _SHAPE[1]}
    call = CallLayout(args=(x,), grads=(), outputs=((_SHAPE, "float32"),), wanted=(), dims=dims)
    plan = WindowLayout([call], "forward")
    weights = _weights()
    image = WindowBuffer(plan, runner.device, [[weights.log().float().to(runner.device.judge_device)]])
    doing = "compile"
    try:
        if language.needs_build:
            runner.worker.request("build", message | {"arch": arch}, "built", timeout_s=_BUILD_TIMEOUT_S)
        doing = "load"
        loading = message | {"names": ["softmax"], "tf32": False}
        runner.worker.request("load", loading, "loaded", timeout_s=_LOAD_TIMEOUT_S)
        doing = "run"
        window = runner.window(image, limit=TimeLimit(_RUN_TIMEOUT_S), check_mutation=False)
    except (WorkerError, WorkerFailure) as error:
        return f"the known kernel {known} does not {doing}: {error}"
    if window.wrong is not None:
        return f"the known kernel {known} gives an output of another form: {window.wrong}"
    return _difference(known, output_views(window, plan, 0)[0].double().cpu(), weights)


def _weights() -> torch.Tensor:
    """Whole numbers from 1 to 11 (fp64): the softmax of their logarithms is each over the sum of its row."""
    index = torch.arange(math.prod(_SHAPE), dtype=torch.float64).reshape(_SHAPE)
    return (index * 7) % 11 + 1


def _difference(known: str, found: torch.Tensor, weights: torch.Tensor) -> str:
    right = weights / weights.sum(1, keepdim=True)
    wrong = ~((found - right).abs() <= _TOLERANCE * right)  # NaN compares as wrong
    count = int(wrong.sum())
    if not count:
        return ""
    row, column = (int(i) for i in wrong.nonzero()[0])
    return (
        f"the known kernel {known} computes wrongly: {found[row, column]:.6g} at [{row}, {column}] "
        f"where {right[row, column]:.6g} is right, and {count} of {right.numel()} elements are wrong"
    )
