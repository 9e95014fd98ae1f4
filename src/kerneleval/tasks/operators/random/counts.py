"""Counts drawn element by element, judged by distribution as those of ``random.py`` are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kerneleval.tasks.define import ROWS, data, index, operator, whole

Tensor = torch.Tensor

_MOST = 8
"""Largest number of trials."""


def _binomial(count: Tensor, p: Tensor, seed: Tensor) -> Tensor:
    return torch.binomial(count, p, generator=torch.Generator(device=seed.device).manual_seed(int(seed[0])))


def _binomial_law(output: Tensor, args: Sequence[Any], noise: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Impossible counts; and a uniform number between the probabilities of fewer and of no more."""
    count, p = args[0].double(), args[1].double()
    found, below, of_it = output.double(), torch.zeros_like(count), torch.zeros_like(count)
    for k in range(_MOST + 1):
        ways = torch.lgamma(count + 1) - torch.lgamma((count - k).clamp_min(0) + 1) - math.lgamma(k + 1)
        chance = torch.exp(ways + torch.xlogy(k, p) + torch.xlogy((count - k).clamp_min(0), 1 - p))
        chance = chance * (count >= k)
        below += chance * (found > k)
        of_it += chance * (found == k)
    wrong = ~((output >= 0) & (output <= count) & (output == output.floor()))
    return wrong, below + of_it * noise(output)


TASKS = (
    operator(
        "binomial",
        "elementwise",
        "out = how many of count trials succeed, each with probability p",
        dims=ROWS,
        args=(
            whole("count", "M N", 1, _MOST + 1),
            data("p", "M N", values="uniform"),
            index("seed", "one", high="2 ** 31"),
        ),
        out=("M N",),
        reference=_binomial,
        law=_binomial_law,
        derive={"one": 1},
        flops="10 * M * N",
        without=("outlier", "large_scale", "small_scale", "constant", "zeros"),
        nonfinite=False,
        dtypes=("float32",),
        group="Random",
        complexity=2,
        no_backward="what is drawn has no gradient",
    ),
)
