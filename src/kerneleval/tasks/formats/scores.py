"""Parameters that make the scores of a softmax: behind a ``tanh`` or a norm, scores are as small as these are, whatever
the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

_GAIN = {"native_layer_norm": 2, "native_group_norm": 1, "native_batch_norm": 1, "_fused_rms_norm": 2}
"""Which argument of theirs the outputs of norms are multiplied by."""

_ENDS = frozenset(("clamp", "clamp_max", "clamp_min"))
"""Operators behind which a parameter is itself, within an end."""

_KEEPING = frozenset(
    ("add", "sub", "neg", "sum", "mean", "masked_fill", "where", "cat", "stack", "relu", "leaky_relu", "repeat",
     "index", "index_select", "gather")
) | SAME_NUMBERS  # fmt: skip
"""Operators behind which scores are still in proportion to what made them."""


@dataclass(frozen=True, kw_only=True)
class _Made:
    """How a tensor follows from parameters."""

    powers: Mapping[str, float] = field(default_factory=dict)
    """By the name of a parameter, the power of a factor by which it makes the tensor larger by that factor."""
    beside: frozenset[str] = frozenset()
    """Parameters that are added to what these make."""
    otherwise: frozenset[str] = frozenset()
    """Parameters that it follows from in another way, since the last matrix."""
    size: float = 0.0
    """The magnitude of its largest number, masks not counted."""


class Scores(TorchDispatchMode):
    """While it is entered around a run of a problem, notes which parameters the last softmax or logsumexp has its
    scores in proportion to: also one that is written as the exponential of a difference. Large scores of an earlier one
    would make large errors of small ones.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        self._names = {memory(weight): name for name, weight in weights.items() if dense(weight)}
        self._counts = {name: weight.numel() for name, weight in weights.items()}
        self._logarithms: set[str] = set()
        self._made: dict[int, _Made] = {}
        self._differences: set[int] = set()
        self._kept: list[torch.Tensor] = []  # so that no memory is used again
        self._calls: list[_Made] = []
        self._steps: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The call."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        given, made = dense(args, kwargs), dense(out)
        if func.is_view or not given or not made or not made[0].numel():
            return out
        self._kept += made
        first, place = self._of(given[0]), memory(made[0])
        if "scaled_dot_product" in name:
            self._calls.append(_attention(given, first, self._of(given[1]), (kwargs or {}).get("scale")))
        elif "softmax" in name or name == "logsumexp" or (name == "exp" and memory(given[0]) in self._differences):
            self._calls.append(first)
        elif memory(given[-1]) in self._names and name in SAME_NUMBERS | _ENDS | {"exp"}:
            self._names[place] = self._names[memory(given[-1])]
            self._logarithms |= {self._names[place]} if name == "exp" else set()
        elif name in PRODUCTS or name in _GAIN or name in ("mul", "div"):
            self._made[place] = self._multiplied(name, args, given, made[0])
        else:
            self._made[place] = self._kept_by(name, given, made[0])
            self._differences |= {place} if name == "sub" else set()
            if name == "softplus":
                self._steps |= {one for one in first.beside if self._counts[one] in given[0].shape}
        return out

    def _of(self, tensor: torch.Tensor) -> _Made:
        return self._made.get(memory(tensor), _Made())

    def _multiplied(self, name: str, args: Sequence[Any], given: Sequence[torch.Tensor], made: torch.Tensor) -> _Made:
        """A product or quotient: in proportion to the parameters that it takes, or else to those of its factors, but
        for what another factor follows from in another way, as a norm does.
        """
        named = {self._names[memory(one)] for one in given if memory(one) in self._names}
        apart = {self._names.get(memory(one)) for one in dense(args[(_GAIN | _BIAS).get(name, 9) :][:1])}
        own, added = (named & apart, named - apart) if name in _GAIN else (named - apart, named & apart)
        before = [self._of(one) for one in given]
        if own:
            divided = name == "div" and memory(given[0]) not in self._names
            powers = dict.fromkeys(own, -1.0 if divided else 1.0)
            kept = before[0].beside if name in ("mul", "div") else frozenset(added)
            return _Made(powers=powers, beside=kept, size=_size(made))
        factors = before[:1] if name == "div" else [one for one in before if one.powers]
        otherwise = frozenset[str]().union(*(one.otherwise for one in before))
        otherwise = otherwise.union(*(one.powers for one in before[1:] if name == "div"))
        powers = {n: power / len(factors) for one in factors for n, power in one.powers.items() if n not in otherwise}
        beside = frozenset(added).union(*(one.beside - otherwise for one in factors if name in ("mul", "div")))
        return _Made(powers=powers, beside=beside, otherwise=otherwise, size=_size(made) if powers else 0.0)

    def _kept_by(self, name: str, given: Sequence[torch.Tensor], made: torch.Tensor) -> _Made:
        """What any other operator makes."""
        before = [self._of(one) for one in given]
        powers = {n: power for one in before for n, power in one.powers.items()}
        beside = frozenset[str]().union(*(one.beside for one in before))
        otherwise = frozenset[str]().union(*(one.otherwise for one in before))
        if name not in _KEEPING:
            return _Made(otherwise=otherwise.union(powers, beside))
        if name == "add":
            beside = frozenset(self._names[memory(one)] for one in given if memory(one) in self._names) or beside
        size = _size(made) if name in ("sum", "mean") and powers else max(one.size for one in before)
        return _Made(powers=powers, beside=beside, otherwise=otherwise, size=size)

    def changes(self) -> dict[str, tuple[float, float]]:
        """By the name of a parameter, the factor and the shift that make its scores large and take them below 0, if
        they are not large.
        """
        last = self._calls[-1] if self._calls else _Made()
        sizes = [one.size for one in self._calls if one.powers.keys() == last.powers.keys()]
        if not last.powers or not 0 < max(sizes) < _ENOUGH or len(sizes) > _CALLS:
            return {}  # without parameters: a norm or a tanh stands between these and the scores
        ratio = _LARGE / max(sizes)
        return dict.fromkeys(last.beside - last.powers.keys(), (1.0, -_LARGE)) | {
            name: (1.0, power * math.log(ratio)) if name in self._logarithms else (ratio**power, 0.0)
            for name, power in last.powers.items()
        }

    def steps(self) -> dict[str, tuple[float, float]]:
        """By the name of a bias that a softplus takes, what makes its steps so large that exponentials overflow."""
        return dict.fromkeys(self._steps, (1.0, _STEP))


def _size(tensor: torch.Tensor) -> float:
    return float(tensor.nan_to_num(0.0, 0.0, 0.0).abs().max())


def _attention(given: Sequence[torch.Tensor], queries: _Made, keys: _Made, scale: float | None) -> _Made:
    """The scores of an attention of queries, keys and values."""
    shared = max(1, given[0].shape[1] // max(1, given[1].shape[1]))  # heads of queries that share one of keys
    scale = max(1, given[0].shape[-1]) ** -0.5 if scale is None else scale
    scores = given[0] @ given[1].repeat_interleave(shared, 1).mT * scale
    factors = [one.powers for one in (queries, keys) if one.powers]
    powers = {name: power / len(factors) for one in factors for name, power in one.items()}
    return _Made(powers=powers, size=_size(scores))
