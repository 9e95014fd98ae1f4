"""The table of a task: arguments and outputs with shapes in names of dims, and formulas over these names as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kerneleval.records.arguments import Argument, Scalar, TensorSpec, Values
from kerneleval.records.formulas import Sizes

__all__ = ["Arg", "Plain", "Table"]


@dataclass(frozen=True, kw_only=True)
class Arg:
    """One tensor argument or output, with its shape still in names."""

    name: str
    shape: str
    role: Literal["data", "weight", "index", "mask", "output"] = "data"
    values: Values = "normal"
    fan_in: str = ""
    """Names of the dims summed over; the values are scaled by (their product) ** -0.5."""
    low: int | str = 0
    """A number or a formula, as ``high`` and ``common``."""
    high: int | str = 2
    dtype: str = ""
    """Empty: the case's dtype."""
    differentiable: bool = False
    nan_only: bool = False
    common: float | str = 0.0
    common_signs: bool = False
    large_half: float = 16.0
    large_half_backward: float = 0.0

    def at(self, sizes: Sizes, dtype: str) -> TensorSpec:
        """The argument at given dims and dtype."""
        return TensorSpec(
            name=self.name,
            shape=tuple([sizes[name] for name in self.shape.split()]),
            dtype=self.dtype or dtype,
            role=self.role,
            values=self.values,
            low=sizes.value(self.low, f"{self.name}: low"),
            high=sizes.value(self.high, f"{self.name}: high"),
            scale=max(1, math.prod([sizes[name] for name in self.fan_in.split()])) ** -0.5,
            differentiable=self.differentiable,
            nan_only=self.nan_only,
            common=sizes.value(self.common, f"{self.name}: common"),
            common_signs=self.common_signs,
            large_half=self.large_half,
            large_half_backward=self.large_half_backward,
        )


@dataclass(frozen=True, kw_only=True)
class Plain:
    """One plain argument: a value, or a formula that gives it."""

    name: str
    value: Any = None
    formula: str = ""

    def at(self, sizes: Sizes, dtype: str) -> Scalar:
        """The argument at given dims."""
        return Scalar(name=self.name, value=sizes.value(self.formula, self.name) if self.formula else self.value)


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a task is made from. Every formula is a text, as ``records/formulas.py`` reads it; empty: there is none."""

    task: str = ""
    """The task's name, for messages."""
    args: tuple[Arg | Plain, ...] = ()
    """The arguments, in the order of the call."""
    outputs: tuple[Arg, ...] = ()
    """The outputs."""
    derive: Mapping[str, str | int] = field(default_factory=dict)
    """Names that are no dims of their own, each a formula of dims and of the names before it."""
    flops: str = ""
    """Operations of one forward call."""
    where: str = ""
    """Which dims are allowed together."""
    reduction: str = ""
    """Terms summed into one output element."""
    gathered: str = ""
    """Terms of a gradient's longest sum."""

    def sizes(self, dims: Mapping[str, int]) -> Sizes:
        """Values of all names at given dims."""
        return Sizes(dims, self.derive, f"task {self.task}")

    def arguments(self, dims: Mapping[str, int], dtype: str) -> tuple[Argument, ...]:
        """The arguments at given dims and dtype."""
        sizes = self.sizes(dims)
        return tuple([arg.at(sizes, dtype) for arg in self.args])

    def bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """Bytes of every argument and output."""
        sizes = self.sizes(dims)
        tensors = [*(arg for arg in self.args if isinstance(arg, Arg)), *self.outputs]
        return sum(arg.at(sizes, dtype).nbytes for arg in tensors)

    def function(self, what: str) -> Callable[[Mapping[str, int]], Any]:
        """One of the formulas, by its field's name, as a function of the dims."""
        formula = getattr(self, what)
        return lambda dims: self.sizes(dims).value(formula, what)
