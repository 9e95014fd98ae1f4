"""A timed cell against the machine's limits: how near it comes, and whether its time can be true.

Only what must be true of every right kernel makes a time impossible. Operations never do: fewer of them than a task
states may do as well (Strassen, Winograd, another order of products), and so may cheaper ones. Bytes do, as far as they
are certain: elements on which the outputs depend must be read, outputs that differ must be written, and of a window's
data no more than the caches hold can stay out of memory at either end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kerneleval.judge.timing.pair import TimedCall, TimedMismatch
from kerneleval.judge.windows.buffers import CallLayout, TensorSlot
from kerneleval.records import DTYPES, Case, Evidence, Limits, Samples, Task

MARGIN = 1.25
"""A time is impossible where it is so many times shorter than the least one. Bandwidth is known to a few per cent."""

_LEAST_SHARE = 0.5
"""Windows of which the caches could hold more than this part are not looked at."""

_GROUP_BYTES = 8
"""Outputs are counted in groups of so many bytes: equal groups may be one in memory (an expanded tensor)."""


def reached(task: Task, case: Case, call: CallLayout, samples: Samples, limits: Limits, *, tf32: bool) -> Evidence:
    """How near to the limits the median time of a call is: plain data, for the evidence of the cell. Its fields and
    their formulas are in ``docs/limits.md``.
    """
    time_s = statistics.median(samples.candidate_ns) / 1e9
    if case.direction == "forward":
        nbytes, flops = float(task.bytes(case.dims_map, case.dtype)), float(task.flops(case.dims_map))
    else:
        nbytes = float(_nbytes([(g.shape, g.dtype) for g in call.grads]) + _nbytes(call.outputs))
        flops = backward_flops(task, call)
    rate = limits.rate(case.dtype, tf32=tf32)
    memory_s, compute_s = limits.memory_s(nbytes, samples.calls), flops / rate if rate else 0.0
    iou, mfu = memory_s / time_s, compute_s / time_s if compute_s else None
    return {
        "iou": iou,
        "mfu": mfu,
        "fraction": max(iou, mfu or 0.0),
        "bound": "arithmetic" if compute_s > memory_s else "memory",
        "least_ns": max(memory_s, compute_s) * 1e9,
        "bytes": nbytes,
        "flops": flops,
        "bandwidth_bytes_per_s": limits.bandwidth_bytes_per_s,
        "peak_flop_per_s": rate,
    }


def backward_flops(task: Task, call: CallLayout) -> float:
    """Operations of the matrix products and convolutions in the reference's own backward, as PyTorch counts them
    (``torch.utils.flop_counter``) on tensors without data; 0: there are none, or the reference needs data to run.
    """
    if task.module:
        return 0.0
    from torch.utils.flop_counter import FlopCounterMode

    args = [
        torch.empty(a.shape, dtype=getattr(torch, a.dtype), device="meta") if isinstance(a, TensorSlot) else a
        for a in call.args
    ]
    leaves = [args[position].requires_grad_() for position in call.wanted]
    try:
        result = task.reference(*args)
        live = [out for out in ([result] if isinstance(result, torch.Tensor) else result) if out.requires_grad]
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(live, leaves, [torch.empty_like(out) for out in live], allow_unused=True)
    except Exception:  # noqa: BLE001 - a reference may look at its data, which is not there; then nothing is stated
        return 0.0
    return float(counter.get_total_flops())


def _nbytes(tensors: Sequence[tuple[tuple[int, ...], str]]) -> int:
    return sum(math.prod(shape) * DTYPES[dtype] for shape, dtype in tensors)


def _most_read(slot: TensorSlot) -> int:
    """Bytes of a tensor that lie in memory: of an expanded one fewer than it has elements."""
    return min(_nbytes([(slot.shape, slot.dtype)]), slot.nbytes)


def check_limit(
    task: Task,
    case: Case,
    call: CallLayout,
    samples: Samples,
    sample: TimedCall,
    limits: Limits,
    better: Callable[[], Limits],
) -> None:
    """Look at one session's windows as wholes, with everything that the judge's clock saw in them.

    A window that seems too short is looked at again: with the bandwidth that the machine has now, and with those bytes
    alone that every kernel must move (:func:`needed_bytes`).

    Args:
        better: measures the bandwidth again; the limits with the higher one.

    Raises:
        TimedMismatch: no kernel can have done it in that time (``impossible``).
        InfrastructureError: there is no memory left to measure with.
    """
    stated = sum(_most_read(slot) for slot in call.slots if not slot.weight) + _nbytes(call.outputs)
    window_s = (statistics.median(samples.candidate_ns) * samples.calls + samples.empty_ns) / 1e9
    if not _too_short(window_s, stated, samples.calls, limits):
        return
    needed = needed_bytes(task, case, call, sample)
    if not _too_short(window_s, needed, samples.calls, limits):
        return
    limits = better()
    if not _too_short(window_s, needed, samples.calls, limits):
        return
    least_s = _least_s(needed, samples.calls, limits)
    text = (
        f"{samples.calls} calls took {window_s * 1e6:.4g} us and must move {needed * samples.calls:.4g} bytes, which "
        f"takes this machine {least_s * 1e6:.4g} us at least ({limits.bandwidth_bytes_per_s:.4g} B/s, what the caches "
        "can hold left out): no kernel can have done it"
    )
    evidence = {
        "window_ns": window_s * 1e9,
        "least_ns": least_s * 1e9,
        "margin": MARGIN,
        "calls": samples.calls,
        "needed_bytes": needed,
        "bandwidth_bytes_per_s": limits.bandwidth_bytes_per_s,
        "cache_bytes": limits.cache_bytes,
    }
    raise TimedMismatch(text, evidence, reason="impossible")


def _least_s(nbytes: int, calls: int, limits: Limits) -> float:
    """The least time of a window in which each call moves so many bytes: those that cannot have stayed in a cache."""
    return max(nbytes * calls - 2 * limits.cache_bytes, 0) / limits.bandwidth_bytes_per_s


def _too_short(window_s: float, nbytes: int, calls: int, limits: Limits) -> bool:
    if not limits.cache_bytes or 2 * limits.cache_bytes > _LEAST_SHARE * nbytes * calls:
        return False  # where the caches' size is not known, everything may lie in them
    return window_s * MARGIN < _least_s(nbytes, calls, limits)


def needed_bytes(task: Task, case: Case, call: CallLayout, sample: TimedCall) -> int:
    """Bytes that every right kernel must move in a call: rather fewer than more.

    Of a forward call's floating inputs, the elements in which the gradient of a random sum of the fp64 outputs is
    finite and not 0: to leave one of them unread would be wrong. Of the outputs, groups of eight bytes that differ from
    one another: equal ones may lie in one place. Weights may be kept, and integers looked up: neither counts; nor does
    what a reference without gradients reads, or one that does not run in fp64 or for which the device has no memory.
    """
    written = _distinct_bytes(sample.outputs)
    if case.direction == "backward" or task.module or task.in_place or task.no_backward:
        return written
    try:
        return written + _read_bytes(task, call, sample)
    except Exception:  # noqa: BLE001 - a reference may take no fp64, its gradient may be written for no type but its own
        return written


def _distinct_bytes(outputs: Sequence[torch.Tensor]) -> int:
    groups = []
    for output in outputs:
        raw = output.contiguous().view(-1).view(torch.uint8)
        groups.append(raw[: raw.numel() // _GROUP_BYTES * _GROUP_BYTES].view(torch.int64))
    whole = torch.cat(groups) if groups else torch.empty(0)  # of several equal outputs too, one may be all
    return int(torch.unique(whole).numel()) * _GROUP_BYTES if whole.numel() else 0


def _read_bytes(task: Task, call: CallLayout, sample: TimedCall) -> int:
    tensors = iter(zip(sample.tensors, call.slots, strict=True))
    args: list[Any] = []
    leaves: list[torch.Tensor] = []
    most: list[int] = []
    for arg in call.args:
        if not isinstance(arg, TensorSlot):
            args.append(arg)
            continue
        tensor, slot = next(tensors)
        if tensor.is_floating_point():
            args.append(tensor.detach().double().requires_grad_())
            leaves.append(args[-1])
            most.append(0 if slot.weight else _most_read(slot))
        else:
            args.append(tensor)
    result = task.reference(*args)
    outputs = [result] if isinstance(result, torch.Tensor) else list(result)
    live = [output for output in outputs if output.requires_grad]
    if not live or not leaves:
        return 0
    total = torch.stack([(output * torch.randn_like(output)).sum() for output in live]).sum()
    grads: Sequence[torch.Tensor | None] = torch.autograd.grad(total, leaves, allow_unused=True)
    read = 0
    for leaf, grad, bound in zip(leaves, grads, most, strict=True):
        if grad is not None and bound:
            share = int(torch.count_nonzero(grad.nan_to_num(0.0, 0.0, 0.0))) / max(leaf.numel(), 1)
            read += int(share * bound)
    return read
