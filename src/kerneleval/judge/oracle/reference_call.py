"""One run of the trusted reference: in a dtype, on a device, by its own formula or by an equivalent one.

It says what the reference gives and nothing of what is allowed: ``reference.py`` makes expectations of these runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch.overrides import TorchFunctionMode

from kerneleval.devices.cpu import threads
from kerneleval.records import Case, InfrastructureError, KernelEvalError, Task, TensorSpec, UsageError

__all__ = ["ByLogSums", "ByWeights", "ReferenceCall", "Tensors", "inexact", "precision", "worker_threads"]

Tensors = tuple[torch.Tensor, ...]


@contextlib.contextmanager
def precision(*, tf32: bool) -> Iterator[None]:
    """TF32 on or off for matrix products and convolutions; restored afterwards."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32, convolution.allow_tf32 = tf32, tf32
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


@contextlib.contextmanager
def worker_threads(args: Sequence[Any]) -> Iterator[None]:
    """On the CPU as many threads as workers have; restored afterwards."""
    count = torch.get_num_threads()
    other = count != threads() and any(isinstance(a, torch.Tensor) and a.device.type == "cpu" for a in args)
    if other:
        torch.set_num_threads(threads())
    try:
        yield
    finally:
        if other:
            torch.set_num_threads(count)


@dataclass(frozen=True, kw_only=True)
class ReferenceCall:
    """One call of a trusted reference."""

    task: Task
    """The task."""
    case: Case
    """Gives direction and dims."""
    args: Sequence[Any]
    """Arguments in order, tensors and plain values."""
    grads: Sequence[torch.Tensor] | None
    """Upstream gradients; None: forward."""
    problem: Any
    """Module problem; None: an operator."""
    weights: Mapping[str, torch.Tensor]
    """Weights of the module problem; empty for operators."""
    native_on: str = ""
    """Torch device on which the native reference runs, where the judge works on another; empty: where the arguments
    lie. Module problems run where they were built."""

    def natively(self) -> Tensors:
        """Outputs of the native reference, in the case's dtype, wherever it ran."""
        if not self.native_on or self.problem is not None:
            return self.run(self.case.dtype)
        return tuple(output.cpu() for output in self.run(self.case.dtype))

    def there(self) -> ReferenceCall:
        """The same call on arguments that lie where the native reference runs."""
        if not self.native_on or self.problem is not None:
            return self

        def moved(value: Any) -> Any:
            return value.to(self.native_on) if isinstance(value, torch.Tensor) else value

        grads = None if self.grads is None else [moved(g) for g in self.grads]
        return replace(self, args=[moved(a) for a in self.args], grads=grads)

    def run(self, what: str) -> Tensors:
        """Outputs, or gradients of the differentiable arguments; detached, sharing no memory with the arguments.

        Raises:
            UsageError: the reference raises.
            InfrastructureError: the device has too little memory.
        """
        try:
            if self.problem is not None:
                runner = self.problem.oracle if what == "fp64" else self.problem.reference
                return tuple(runner(list(self.args), dict(self.weights)))
            found = self._forward() if self.case.direction == "forward" else self._backward()
        except torch.OutOfMemoryError as error:
            text = f"too little device memory for the {what} reference at {self.case.key}"
            raise InfrastructureError(text) from error
        except KernelEvalError:
            raise
        except Exception as error:
            text = f"the reference of task {self.task.name} raised in {what} at {self.case.key}: "
            raise UsageError(text + f"{type(error).__name__}: {error}") from error
        given = (*self.args, *(self.grads or ()))
        taken = {a.untyped_storage().data_ptr() for a in given if isinstance(a, torch.Tensor)}
        return tuple(t.clone() if t.untyped_storage().data_ptr() in taken else t.contiguous() for t in found)

    @property
    def narrow(self) -> bool:
        """Whether any tensor is of a half type."""
        tensors = [a for a in (*self.args, *self.weights.values()) if isinstance(a, torch.Tensor)]
        return any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors)

    def _forward(self) -> Tensors:
        args = [a.clone() if isinstance(a, torch.Tensor) else a for a in self.args] if self.task.in_place else self.args
        with torch.no_grad():
            return _outputs(self.task.reference(*args))

    def _backward(self) -> Tensors:
        args, leaves = list(self.args), []
        for position, spec in enumerate(self.task.arguments(self.case.dims_map, self.case.dtype)):
            if isinstance(spec, TensorSpec) and spec.differentiable:
                args[position] = args[position].detach().requires_grad_()
                leaves.append(args[position])
        with torch.enable_grad():
            outputs = [o for o in _outputs(self.task.reference(*args)) if o.is_floating_point() or o.is_complex()]
            return torch.autograd.grad(outputs, leaves, list(self.grads or ()))

    def converted(self, convert: Callable[[torch.Tensor, int], torch.Tensor]) -> ReferenceCall:
        """The same call on converted tensors; ``convert`` also gets a running number."""
        count = iter(range(1 << 30))

        def each(value: Any) -> Any:
            return convert(value, next(count)) if inexact(value) else value

        return replace(
            self,
            args=[each(a) for a in self.args],
            grads=None if self.grads is None else [each(g) for g in self.grads],
            weights={name: each(w) for name, w in self.weights.items()},
        )


def inexact(value: Any) -> bool:
    """Whether it is a tensor of floating or complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _outputs(result: Any) -> Tensors:
    values = (result,) if isinstance(result, torch.Tensor) else tuple(result)
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"a reference returns a tensor or a tuple of them, got {type(value).__name__}")
    return tuple(value.detach() if not value.requires_grad else value for value in values)


# --------------------------------------------------------------------------------------------------------------------
# Equivalent formulas, which right kernels may use
# --------------------------------------------------------------------------------------------------------------------


class _OtherSoftmax(TorchFunctionMode):
    """While it is entered, softmax is made by :meth:`weights`."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False
        """Whether there was a softmax at all."""

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """Softmax over one dim."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same by another formula."""
        options = dict(kwargs or {})
        if func in (F.softmax, torch.softmax, torch.Tensor.softmax):
            names = ("input", "dim", "_stacklevel", "dtype") if func is F.softmax else ("input", "dim", "dtype")
            given = dict(zip(names, args, strict=False)) | options
            scores, dim, dtype = given.get("input", given.get("self")), given.get("dim"), given.get("dtype")
            if isinstance(scores, torch.Tensor) and isinstance(dim, int) and scores.dim():
                self.met = True
                return self.weights(scores if dtype is None else scores.to(dtype), dim)
        return func(*args, **options)


class ByLogSums(_OtherSoftmax):
    """While it is entered, softmax is made from the logarithm of each row's sum, as by kernels that keep or combine
    such logarithms (FlashDecoding, cross entropies). Of scores in the thousands that number is rounded more coarsely
    than the weights are, and the native softmax may show nothing of it.
    """

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """``exp(x - log sum exp(x))``."""
        return torch.exp(scores - torch.logsumexp(scores, dim, keepdim=True))


class ByWeights(_OtherSoftmax):
    """While it is entered, the gradient of softmax is made from its weights ``y`` by ``y (g - sum of g y)``, rounded as
    kernels do. Where one weight of a row is nearly 1, what comes out is the difference of two equal numbers, and every
    rounding leaves another one.

    Args:
        weights: dtype in which the weights are made, before they are rounded to the scores' (fp32 of half types).
        sums: dtype in which the gradient is made; fp64 as the scalars of a CPU kernel are, fp32 in torch's order.
    """

    def __init__(self, weights: torch.dtype, sums: torch.dtype) -> None:
        super().__init__()
        self._weights, self._sums = weights, sums

    def weights(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """Softmax whose gradient is that one."""
        found: torch.Tensor = _Weights.apply(scores, dim, self._weights, self._sums)  # type: ignore[no-untyped-call]
        return found


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, dim: int, inner: torch.dtype, sums: torch.dtype) -> torch.Tensor:
        own = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim)
        if scores.numel():
            wide = scores.to(torch.promote_types(own, inner))
            weights = torch.exp(wide - wide.amax(dim, keepdim=True))
            weights = (weights / weights.sum(dim, keepdim=True)).to(own)
        ctx.save_for_backward(weights)
        ctx.dim, ctx.sums = dim, torch.promote_types(own, sums)
        return weights.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (weights,) = ctx.saved_tensors
        y, g = weights.to(ctx.sums), grad.to(ctx.sums)
        return (y * (g - (y * g).sum(ctx.dim, keepdim=True))).to(grad.dtype), None, None, None
