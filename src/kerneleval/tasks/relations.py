"""Builders of metamorphic relations: what a transformed input must do to the output, without an oracle.

``inputs`` and ``outputs`` below map positions (of arguments, of outputs) to the dimension that a transformation works
along. Random choices come from the generator that the judge seeds alike for both sides of a relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kerneleval.records import Relation

_Indices = Callable[[int, torch.Generator], torch.Tensor]


def permutation(name: str, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> Relation:
    """Permuting the inputs along their dims permutes the outputs alike; an output not named stays as it is."""
    return _selection(name, inputs, outputs, lambda n, g: torch.randperm(n, generator=g, device=g.device))


def resampling(name: str, inputs: Mapping[int, int], outputs: Mapping[int, int]) -> Relation:
    """Drawing rows with replacement draws the outputs alike: cuts batches anywhere and joins them in any order."""
    return _selection(name, inputs, outputs, lambda n, g: torch.randint(max(n, 1), (n,), generator=g, device=g.device))


def _selection(name: str, inputs: Mapping[int, int], outputs: Mapping[int, int], indices: _Indices) -> Relation:
    first, first_dim = next(iter(inputs.items()))

    def chosen(args: Sequence[Any], generator: Any) -> torch.Tensor:
        return indices(args[first].shape[first_dim], generator)

    def select(values: Sequence[Any], where: Mapping[int, int], index: torch.Tensor) -> list[Any]:
        return [v.index_select(where[i], index) if i in where else v for i, v in enumerate(values)]

    return Relation(
        name=name,
        transform=lambda args, generator: select(args, inputs, chosen(args, generator)),
        expect=lambda outs, args, generator: select(outs, outputs, chosen(args, generator)),
    )


def additivity(arg: int, constant: int | None = None, per_channel: int | None = None) -> Relation:
    """f(x - y) = f(x) - f(y) for an operator linear in the argument ``arg``, with y = x rolled by one along dim 0,
    which is the output's too. ``constant`` is the position of an additive bias b, for which f(x - y) = f(x) - f(y) + b;
    ``per_channel`` is the dim of the output along which the bias extends (None: the last).
    """

    def shaped(b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        shape = [1] * out.ndim
        shape[-1 if per_channel is None else per_channel] = b.numel()
        return b.view(shape)

    def transform(*args: Any) -> list[Any]:
        return [v - v.roll(1, 0) if i == arg else v for i, v in enumerate(args)]

    def expect(outs: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        (out,) = outs
        difference = out - out.roll(1, 0)
        return [difference if constant is None else difference + shaped(args[constant], out)]

    return mapping("additivity", transform, expect)


def shift(name: str, arg: int, moves_output: bool) -> Relation:
    """Adding an integer in [-4, 4], drawn for each row, to the rows of ``arg`` (M, N) adds it to the output (M,), or
    leaves the output as it is.
    """

    def steps(args: Sequence[Any], generator: Any) -> torch.Tensor:
        x = args[arg]
        return torch.randint(-4, 5, (x.shape[0],), generator=generator, device=x.device).to(x.dtype)

    return Relation(
        name=name,
        transform=lambda args, generator: [
            v + steps(args, generator)[:, None] if i == arg else v for i, v in enumerate(args)
        ],
        expect=lambda outs, args, generator: [out + steps(args, generator) if moves_output else out for out in outs],
    )


def homogeneity(factors: Mapping[int, float], outputs: Mapping[int, float]) -> Relation:
    """Multiplying arguments by powers of two (exact in floating point) multiplies the outputs as stated."""

    def scale(values: Sequence[Any], by: Mapping[int, float]) -> list[Any]:
        return [v * by[i] if i in by else v for i, v in enumerate(values)]

    return mapping("homogeneity", lambda *args: scale(args, factors), lambda outs, _: scale(outs, outputs))


def mapping(
    name: str,
    transform: Callable[..., Sequence[Any]],
    expect: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
) -> Relation:
    """A relation without random choices: ``transform(*args)`` and ``expect(outputs, args)``."""
    return Relation(
        name=name,
        transform=lambda args, generator: transform(*args),
        expect=lambda outs, args, generator: expect(outs, args),
    )
