"""The native reference of a problem file by formulas that are as good as its own: what kernels do that are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch.overrides import TorchFunctionMode

__all__ = ["ByLogSums"]


class ByLogSums(TorchFunctionMode):
    """While it is entered, softmax is made from the logarithm of each row's sum, as by kernels that keep or combine
    such logarithms (FlashDecoding, cross entropies). Of scores in the thousands that number is rounded more coarsely
    than the weights are, and the native softmax may show nothing of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.met = False
        """Whether there was a softmax at all."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call, or the same by a sum's logarithm."""
        options = dict(kwargs or {})
        if func in (F.softmax, torch.softmax, torch.Tensor.softmax):
            names = ("input", "dim", "_stacklevel", "dtype") if func is F.softmax else ("input", "dim", "dtype")
            given = dict(zip(names, args, strict=False)) | options
            scores, dim, dtype = given.get("input", given.get("self")), given.get("dim"), given.get("dtype")
            if isinstance(scores, torch.Tensor) and isinstance(dim, int) and scores.dim():
                self.met = True
                scores = scores if dtype is None else scores.to(dtype)
                return torch.exp(scores - torch.logsumexp(scores, dim, keepdim=True))
        return func(*args, **options)
