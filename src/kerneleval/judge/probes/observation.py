"""Watched windows: the candidate is called in an ordinary window, and its worker tells what it saw meanwhile.

What it tells (operators, launches) is a claim; the outputs of such a window are judged like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kerneleval.judge.oracle.comparison import Match, compare
from kerneleval.judge.oracle.expectation import Expectation, is_eight_bit, opened
from kerneleval.judge.oracle.reference_call import ReferenceCall, precision
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.windows.buffers import WindowBuffer, WindowLayout
from kerneleval.judge.windows.protocol import output_views
from kerneleval.records import Case, new_secret
from kerneleval.worker.host import WorkerError

__all__ = ["Seen", "Subject", "alike", "alike_everywhere", "right"]

_ALIKE = 0.02
"""Relative rms distance, or share of unequal integers, up to which outputs are taken for the same at first sight."""

_TIMEOUT_S = 30.0

_MOST = 1 << 53
"""What is more is no count."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one watched window gave."""

    outputs: tuple[torch.Tensor, ...]
    """Outputs of the call, private; empty where the worker said that they have another form."""
    aten: dict[str, int]
    """ATen operators dispatched, by ``aten.name.overload``; empty where they were not recorded."""
    launches: dict[str, int]
    """Own kernels launched, by name."""
    extensions: tuple[str, ...] = ()
    """Native modules that the candidate built itself; what they launch is not seen."""
    registered: tuple[str, ...] = ()
    """What it has registered in PyTorch's own namespace: a name there says nothing of what computes."""
    compiled: bool = False
    """Whether ``torch.compile`` has made code in its process; what that computes with is not seen."""


class Subject:
    """One case, bound to fresh weights, with fresh secret arguments and the native outputs."""

    def __init__(self, calls: Calls, case: Case, layout: WindowLayout | None = None) -> None:
        self.case = case
        self._calls, self._bound = calls, calls.bind(case)
        bound = self._bound
        self._layout = layout or WindowLayout([calls.calibration[case].call_layout], case.direction)
        seed = new_secret()
        self._args = bound.arguments(seed)
        self._grads = bound.upstream(self._args, seed)
        call = ReferenceCall(
            task=calls.task,
            case=case,
            args=self._args,
            grads=self._grads or None,
            problem=bound.problem,
            weights=bound.weights or {},
        )
        with precision(tf32=calls.protocol.tf32):
            self.native = call.run(case.dtype)

    @property
    def nbytes(self) -> int:
        """Memory that the inputs and outputs of the call take."""
        return self._layout.input_bytes + self._layout.output_bytes

    def again(self) -> Subject:
        """The same case with other weights and arguments."""
        return Subject(self._calls, self.case, self._layout)

    @property
    def is_given(self) -> bool:
        """Whether all that comes out are upstream gradients, or such repeated along a dim: nothing is to compute."""
        return all(any(_repeats(out, grad) for grad in self._grads) for out in self.native)

    def expectation(self) -> Expectation:
        """What must come out, by the oracle."""
        return self._bound.expect(self._args, self._grads).expectation

    def window(
        self, *, record: bool = False, mute: bool = False, in_order: bool = False, timeout_s: float = _TIMEOUT_S
    ) -> Seen:
        """Call the candidate, watched.

        Args:
            record: count ATen operators; the candidate can tell such a window by its dispatch mode.
            mute: make own kernels no-ops.
            in_order: inputs become ready, and outputs are read, in the order of the current stream alone.
            timeout_s: limit of the window.

        Raises:
            WorkerError: the candidate raised.
            WorkerFailure: its process is gone.
        """
        runner = self._calls.loaded.runner
        buffer = WindowBuffer(self._layout, self._calls.device)
        buffer.fill(0, [*(a for a in self._args if isinstance(a, torch.Tensor)), *self._grads])
        runner.prepare(self._layout)
        how = {"record": record, "mute": mute, "in_order": in_order}
        runner.worker.request("observe", how, "observing", timeout_s=timeout_s)
        try:
            window = runner.window(buffer, timeout_s=timeout_s, check_mutation=False)
        except WorkerError:
            self._calls.loaded.note(runner.worker.request("observed", {}, "observed", timeout_s=timeout_s))
            raise
        told = runner.worker.request("observed", {}, "observed", timeout_s=timeout_s)
        self._calls.loaded.note(told)
        return Seen(
            outputs=() if window.wrong is not None else output_views(window, self._layout, 0),
            aten=_claimed_counts(told.get("aten")),
            launches=_claimed_counts(told.get("launches")),
            extensions=_claimed_names(told.get("extensions")),
            registered=_claimed_names(told.get("registered")),
            compiled=bool(told.get("compiled")),
        )


def _repeats(out: torch.Tensor, grad: torch.Tensor) -> bool:
    """Whether a tensor is another one as it is, or expanded along a dim that this one lacks or has once."""
    if out.dtype != grad.dtype or out.ndim - grad.ndim not in (0, 1):
        return False
    forms = [grad] if out.ndim == grad.ndim else [grad.unsqueeze(dim) for dim in range(out.ndim)]
    fits = [f for f in forms if all(a in (1, b) for a, b in zip(f.shape, out.shape, strict=True))]
    return any(torch.equal(call_layout.expand(out.shape), out) for call_layout in fits)


def alike(outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Whether outputs are roughly those wanted: a first look that needs no oracle."""
    return len(outputs) == len(wanted) and all(_alike(got, want) for got, want in zip(outputs, wanted, strict=True))


def right(outputs: Sequence[torch.Tensor], expectation: Expectation) -> bool:
    """Whether outputs are what must come out."""
    return isinstance(compare(outputs, expectation), Match)


def alike_everywhere(outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Whether no single element is far off: a part that was never written shows, however small it is."""
    return alike(outputs, wanted) and all(_no_outlier(got, want) for got, want in zip(outputs, wanted, strict=True))


def _no_outlier(got: torch.Tensor, want: torch.Tensor) -> bool:
    if not want.is_floating_point():
        return torch.equal(got, want)
    got, want = opened(got), opened(want)
    size = want.abs().float()
    far = 0.25 * torch.linalg.vector_norm(size) / max(want.numel(), 1) ** 0.5
    return bool(((got.float() - want.float()).abs() <= far + 0.05 * size).all())


def _alike(got: torch.Tensor, want: torch.Tensor) -> bool:
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if not want.numel():
        return True
    if not (want.is_floating_point() or want.is_complex()) or is_eight_bit(want):
        return float((got != want).double().mean()) <= _ALIKE
    wide = torch.complex128 if want.is_complex() else torch.float32 if want.itemsize <= 4 else torch.float64
    far, size = torch.linalg.vector_norm(got.to(wide) - want), torch.linalg.vector_norm(want.to(wide))
    return bool(far <= _ALIKE * size)  # not where anything is NaN


def _claimed_counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    kept = [(str(k)[:200], v) for k, v in list(value.items())[:1000] if type(v) is int and 0 <= v < _MOST]
    return dict(kept)


def _claimed_names(value: Any) -> tuple[str, ...]:
    return tuple(str(name)[:100] for name in value[:8]) if isinstance(value, list) else ()
