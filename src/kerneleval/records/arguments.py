"""Dims and arguments of tasks: tensors and plain values at given sizes. Shapes in names: ``records/tables.py``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from kerneleval.records.vocabulary import DTYPES

__all__ = ["Argument", "Dim", "Scalar", "TensorSpec", "Values"]


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One named dimension of a task and the values that it may take."""

    name: str
    """Upper-case letter or short word: ``M``, ``heads``."""
    low: int = 1
    """Smallest value (inclusive)."""
    high: int = 8192
    """Largest value (inclusive)."""
    multiple_of: int = 1
    """Every sampled value is a multiple of this."""
    scaled: bool = True
    """Whether the shape category sets this dim's range; False: sampled from ``low`` to ``high`` in every category."""


Values = Literal[
    "normal",
    "positive",
    "uniform",
    "symmetric",
    "above_one",
    "special",
    "integers",
    "bits",
    "bool",
    "ones_normal",
    "variance",
]
"""Standard values: N(0, 1), |N(0, 1)| + 0.1, U[0, 1), U(-1, 1), 1 + |N(0, 1)|, N(0, 1) of which
an eighth is NaN and an eighth infinite, integers in [low, high), integers over
the whole range of their type, fair coin, 1 + N(0, 0.1), U[0.5, 1.5) (a positive running variance)."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor argument (or output) of a task at given dims and dtype."""

    name: str
    """Argument name, as in the operator's signature."""
    shape: tuple[int, ...]
    """Sizes, outermost first."""
    dtype: str
    """A key of :data:`DTYPES`."""
    role: Literal["data", "weight", "index", "mask", "output", "gradient"] = "data"
    """``weight`` inputs are standard values times ``scale``; beside unusual data they differ in size and sign alone."""
    values: Values = "normal"
    """How standard values are drawn."""
    low: int = 0
    """Lower bound of ``integers`` (inclusive)."""
    high: int = 2
    """Upper bound of ``integers`` (exclusive)."""
    scale: float = 1.0
    """Factor on the drawn values (e.g. fan-in ** -0.5 for weights, so that outputs stay near unit scale)."""
    differentiable: bool = False
    """Whether backward cases ask for this argument's gradient."""
    common: float = 0.0
    """The mean of ``common`` data; 0: it is N(0, 1), as in half types."""
    common_signs: bool = False
    """Whether the mean of each row (last dim) of ``common`` data is that number or its negative, at random."""
    large_half: float = 16.0
    """Factor of ``large_scale`` in float16: with 16, products of two inputs stay below its largest number, 65504."""
    large_half_backward: float = 0.0
    """The same for gradients; 0: as forward."""
    nan_only: bool = False
    """Whether ``nonfinite`` values are NaN alone, because kernels that are right may differ about infinities."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes when contiguous."""
        return self.numel * DTYPES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """One plain argument of a task: a number, flag, string or list of ints; the same at every call of a case."""

    name: str
    """Argument name, as in the operator's signature."""
    value: Any
    """Plain data."""


Argument = TensorSpec | Scalar
