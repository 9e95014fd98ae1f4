"""Normalisations that may stand behind the base of a chain, by name."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Arg, Plain
from kerneleval.tasks.chains.chain import Names, Step
from kerneleval.tasks.define import plain, weight

LEAST = 4
"""Fewest elements of a normalised group, as in operators/normalization.py."""


def _group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return F.group_norm(x, groups, weight, bias, eps)


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


def _batch_norm_unshifted(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, None, True, 0.0, eps)


def _instance_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.instance_norm(x, eps=eps)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def _layer_norm_plain(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def _layer_norm_items(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[1:], eps=eps)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def _affine(name: str, *more: Plain) -> tuple[Arg | Plain, ...]:
    return (weight("weight", name, values="ones_normal"), weight("bias", name), *more)


def _eps(shape: Names) -> tuple[Arg | Plain, ...]:
    return (plain("eps", 1e-5),)


NORMS: dict[str, Step] = {
    "group_norm": Step(
        text="group_norm({x}, groups)",
        run=_group_norm,
        each=8,
        args=lambda s: _affine(s[1], plain("groups", 2), plain("eps", 1e-5)),
        over=lambda s: s[1:],
        least=2 * LEAST,
        complexity=2,
    ),
    "batch_norm": Step(
        text="batch_norm({x})",
        run=_batch_norm,
        each=8,
        args=lambda s: _affine(s[1], plain("eps", 1e-5)),
        over=lambda s: (s[0], *s[2:]),
        least=LEAST,
        mixes=True,
        complexity=2,
    ),
    "batch_norm_unshifted": Step(
        text="batch_norm({x}) without a shift",
        run=_batch_norm_unshifted,
        each=7,
        args=lambda s: (weight("weight", s[1], values="ones_normal"), plain("eps", 1e-5)),
        over=lambda s: (s[0], *s[2:]),
        least=LEAST,
        mixes=True,
        complexity=2,
    ),
    "instance_norm": Step(
        text="instance_norm({x})",
        run=_instance_norm,
        each=8,
        args=_eps,
        over=lambda s: s[2:],
        least=LEAST,
        complexity=2,
    ),
    "layer_norm": Step(
        text="layer_norm({x})",
        run=_layer_norm,
        each=8,
        args=lambda s: _affine(s[-1], plain("eps", 1e-5)),
        over=lambda s: s[-1:],
        least=LEAST,
        complexity=2,
    ),
    "layer_norm_plain": Step(
        text="layer_norm({x})",
        run=_layer_norm_plain,
        each=6,
        args=_eps,
        over=lambda s: s[-1:],
        least=LEAST,
        complexity=2,
    ),
    "layer_norm_items": Step(
        text="layer_norm({x}) over all but the batch",
        run=_layer_norm_items,
        each=6,
        args=_eps,
        over=lambda s: s[1:],
        least=LEAST,
        complexity=2,
    ),
    "rms_norm": Step(
        text="rms_norm({x})",
        run=_rms_norm,
        each=4,
        args=lambda s: (weight("weight", s[-1], values="ones_normal"), plain("eps", 1e-6)),
        over=lambda s: s[-1:],
        least=LEAST,
        complexity=2,
    ),
}
