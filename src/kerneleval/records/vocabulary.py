"""The words that records may use: directions, categories, distributions, layouts, dtypes, tracks, stages."""

from __future__ import annotations

from typing import Literal

__all__ = [
    "BINNED",
    "CATEGORIES",
    "COUNTED",
    "DIRECTIONS",
    "DISTRIBUTIONS",
    "DTYPES",
    "FAR",
    "FAR_DEVIATION",
    "FAR_MEANS",
    "GROUPS",
    "LARGE_SCALE",
    "LAYOUTS",
    "PUBLISHED",
    "REAL",
    "ROW_DISTRIBUTIONS",
    "SHAPE_CATEGORIES",
    "SMALL_SCALE",
    "STAGES",
    "TRACKS",
    "Direction",
    "Reason",
    "Track",
]

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")

CATEGORIES: tuple[str, ...] = ("elementwise", "reduction", "gemm", "convolution", "normalization", "attention", "fused")
"""The seven operator categories of KernelEval's coverage axis."""

GROUPS: tuple[str, ...] = (
    "Activation",
    "Convolution",
    "Fusion",
    "Index",
    "LinearAlgebra",
    "Loss",
    "Math",
    "MatrixMultiply",
    "Normalization",
    "Optimizer",
    "Pooling",
    "Quantization",
    "Random",
    "Reduce",
    "SpatialOps",
)
"""The fifteen categories of KernelBench-X."""

SHAPE_CATEGORIES: tuple[str, ...] = (
    "tiny",
    "small",
    "medium",
    "large",
    "power_of_two",
    "non_power_of_two",
    "rectangular",
    "square",
)
"""The eight shape categories of KernelEval's robustness axis."""

REAL = "real:"
"""What the shape category of a case begins with that has a real model's shape, whose name follows."""

DISTRIBUTIONS: tuple[str, ...] = (
    "standard",
    "outlier",
    "large_scale",
    "small_scale",
    "constant",
    "zeros",
    "nonfinite",
    "negative",
    "trained",
    "common",
    "ordered",
    "far_mean",
    "long_memory",
    "binned",
    "tiny_scale",
    "alike",
    "padded",
    "edges",
    "redrawn",
    "sorted",
    "skewed",
    "full",
)
"""Input distributions; ``outlier`` multiplies 0.1 % of the elements by 50 (KernelBench-X), and has exact zeros.
``negative`` is for tasks whose own inputs are not, as those of most problem files. For problem files are also
``trained``: standard inputs under weights of other signs and sizes than those that they are made with; ``tiny_scale``;
``alike``: all rows near one of them; ``padded``: zeros, and rows of zeros; ``edges``: numbers at which a comparison or
a rounding changes; ``redrawn``: other integers, flags and masks than the file always gives; ``sorted``: the numbers of
each row in order; and ``skewed``: integers and masks at the ends of their range. ``common`` is for operators that do
not change where a number is added to all scores alike: data far from zero that differs little. ``ordered`` to
``binned``, and ``full``, are :data:`ROW_DISTRIBUTIONS`."""

ROW_DISTRIBUTIONS: tuple[str, ...] = ("ordered", "far_mean", "long_memory", "binned", "full")
"""Distributions that show in long rows, for the tasks that declare them: rows in order, clustered, of low contrast or
with many ties, where something is selected or sorted; means of 100 and 1000 standard deviations, where a mean is taken
off; decays near 1, where a state is carried along; all elements at one edge of a bin, at the ends or in few bins, where
elements are counted; all of them counted, or in one bin, in rows longer than :data:`COUNTED`, where counters wrap."""

COUNTED = 1 << 16
"""The first count that 16 bits do not hold."""

BINNED = 7
"""Structures that rows of ``binned`` have in turn."""

SMALL_SCALE = 1e-3
"""Factor of ``small_scale``."""

LARGE_SCALE = 1e5
"""Factor of ``large_scale``: beyond the range of half types, in which a kernel may hold parts of wider numbers. float16
itself gets ``TensorSpec.large_half``."""

FAR_MEANS: tuple[float, float] = (1000.0, 100.0)
"""Means of ``far_mean`` in standard deviations; the same in all arguments, which may be subtracted."""

FAR_DEVIATION = 0.25
"""Standard deviation there: float16 holds the squares of the means."""

LAYOUTS: tuple[str, ...] = ("contiguous", "transposed", "sliced", "offset", "expanded")
"""Memory layouts of the inputs."""

FAR = "far"
"""Layout of secret cases alone: the items of the first argument lie so far apart that offsets of the last one exceed 31
bits."""

DTYPES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""Element types by torch's name, with their size in bytes."""

Track = Literal["custom", "mixed", "library"]
TRACKS: tuple[Track, ...] = ("custom", "mixed", "library")
"""What a candidate is, by what it does: all arithmetic in its own kernels, some of it, none of it."""

Reason = Literal[
    "broken_relation",
    "build_error",
    "crash",
    "decoy_kernel",
    "dependent_draws",
    "device_error",
    "exception",
    "exit",
    "hard_coded_shapes",
    "impossible",
    "input_mutation",
    "load_error",
    "memory_limit",
    "missing",
    "missing_gradient",
    "not_quantised",
    "not_reproducible",
    "output_alias",
    "output_flood",
    "output_overwritten",
    "output_reused",
    "protocol",
    "refuses_values",
    "refuses_when_timed",
    "tampering",
    "timeout",
    "track_not_allowed",
    "unfinished",
    "unjoined_work",
    "unsupported",
    "weights_mismatch",
    "wrong_count",
    "wrong_device",
    "wrong_dtype",
    "wrong_in_training",
    "wrong_output",
    "wrong_shape",
    "wrong_type",
    "wrong_when_watched",
]
"""Why a candidate fails (``docs/verdicts.md``)."""

STAGES: tuple[str, ...] = ("generate", "build", "load", "call", "correctness", "honesty", "timing")
"""The stages of a verdict, in the order in which they can fail; ``generate``: there was no candidate at all."""

PUBLISHED = "published"
"""Device kind of results that others published: nothing of them was judged here."""
