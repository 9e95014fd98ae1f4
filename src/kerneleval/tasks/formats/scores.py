"""Parameters that make the scores of a softmax: behind a ``tanh`` or a norm, scores are as small as these are, whatever
the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerneleval.tasks.formats.origins import dense, memory

_LARGE, _ENOUGH = 512.0, 100.0
"""How large scores become, and from where on an exponential of them overflows as they are."""

_STEP = 100.0
"""By how much the biases of steps are moved."""

_CALLS = 2
"""So many softmaxes may have scores of the same parameters: in a loop each takes the errors of the last one further."""

PRODUCTS = frozenset(("mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "convolution"))
"""What matrix products and convolutions are to PyTorch, however they are written."""

SAME_NUMBERS = frozenset(("clone", "_to_copy", "copy", "copy_", "_unsafe_view"))
"""Operators that copy."""

_BIAS = {"addmm": 0, "addmv": 0, "baddbmm": 0, "convolution": 2}
"""Which of their arguments is added to the product."""

_KEEPING = frozenset(
    ("add", "sub", "mul", "div", "neg", "sum", "masked_fill", "where", "cat", "stack")
) | SAME_NUMBERS  # fmt: skip
"""Operators behind which scores are still as large as what made them."""


class Scores(TorchDispatchMode):
    """While it is entered around a run of a problem, notes which parameters the last softmax or logsumexp has its
    scores of, by products: also one that is written as the exponential of a difference. Large scores of an earlier one
    would make large errors of small ones.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        self._names = {memory(weight): name for name, weight in weights.items() if dense(weight)}
        self._counts = {name: weight.numel() for name, weight in weights.items()}
        self._made: dict[int, set[str]] = {}
        self._differences: set[int] = set()
        self._kept: list[torch.Tensor] = []  # so that no memory is used again
        self._beside: dict[int, set[str]] = {}
        self._sizes: dict[frozenset[str], float] = {}
        self._roots: dict[frozenset[str], int] = {}
        self._calls: list[frozenset[str]] = []
        self._last: set[str] = set()
        self._steps: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        given, made = dense(args, kwargs), dense(out)
        if func.is_view or not made or not made[0].numel():
            return out
        self._kept += made
        named = {self._names[memory(one)] for one in given if memory(one) in self._names}
        behind = set[str]().union(*(self._made.get(memory(one), ()) for one in given))
        beside = set[str]().union(*(self._beside.get(memory(one), ()) for one in given))
        if name in SAME_NUMBERS:
            self._names |= {memory(made[0]): one for one in named}
        if "scaled_dot_product" in name:
            shared = max(1, given[0].shape[1] // given[1].shape[1])  # heads of queries that share one of keys
            scores = given[0] @ given[1].repeat_interleave(shared, 1).mT / given[0].shape[-1] ** 0.5
            self._calls.append(self._multiplied(scores, given[:2], set()))
            self._last = set()
        elif "softmax" in name or name == "logsumexp" or (name == "exp" and memory(given[0]) in self._differences):
            self._calls.append(frozenset(behind))
            self._last = beside
        elif name == "softplus":
            self._steps |= {one for one in beside if self._counts[one] in given[0].shape}
        elif name in PRODUCTS:
            added = {self._names.get(memory(one)) for one in dense(args[_BIAS.get(name, 9) :][:1])}
            matrices = named - added
            found = self._multiplied(made[0], given, matrices)
            self._made[memory(made[0])] = set(found)
            self._beside[memory(made[0])] = named & added
        elif name in _KEEPING:
            self._made[memory(made[0])] = behind
            self._beside[memory(made[0])] = named if named and name == "add" else beside
            self._differences |= {memory(made[0])} if name == "sub" else set()
        return out

    def _multiplied(self, made: torch.Tensor, given: Sequence[torch.Tensor], named: set[str]) -> frozenset[str]:
        """The parameters that a product is in proportion to: its own ones, or those of what is multiplied."""
        factors = [named] if named else [found for one in given if (found := self._made.get(memory(one)))]
        key = frozenset[str]().union(*factors)
        self._sizes[key] = max(self._sizes.get(key, 0.0), float(made.abs().max()))
        self._roots[key] = len(factors)
        return key

    def changes(self) -> dict[str, tuple[float, float]]:
        """By the name of a parameter, the factor and the shift that make its scores large and take them below 0, if
        they are not large.
        """
        last = self._calls[-1] if self._calls else frozenset[str]()
        size, roots = self._sizes.get(last, 0.0), self._roots.get(last, 0)
        if not roots or not 0 < size < _ENOUGH or self._calls.count(last) > _CALLS:
            return {}  # without parameters: a norm or a tanh stands between these and the scores
        return dict.fromkeys(self._last - last, (1.0, -_LARGE)) | dict.fromkeys(
            last, ((_LARGE / size) ** (1 / roots), 0.0)
        )

    def steps(self) -> dict[str, tuple[float, float]]:
        """By the name of a bias that a softplus takes, what makes its steps so large that exponentials overflow."""
        return dict.fromkeys(self._steps, (1.0, _STEP))
