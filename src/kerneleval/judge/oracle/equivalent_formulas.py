"""The native reference by formulas that are as good as its own: what kernels do that are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch.overrides import TorchFunctionMode

__all__ = ["ByLogSums", "ByWeights"]


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
