"""The contract of operators that quantise: how near their outputs are to those of exact arithmetic.

Cosine, relative L1 and rms. It stands beside the bounds of ``calibration.py`` and replaces none of them.
"""

from __future__ import annotations

import torch

from kerneleval.records import Evidence

__all__ = ["figures", "keeps_to"]


def figures(outputs: torch.Tensor, plain: torch.Tensor) -> Evidence:
    """``cosine``, ``relative_l1`` and ``relative_rmse`` of outputs against those without quantisation.

    The first is that of the two as vectors; the others are the sum of the errors over the sum of the magnitudes, and
    the rms error over the rms. Where nothing but zeros is right, the first is 1 and the others are infinite unless
    nothing but zeros came out.

    Args:
        outputs: any shape, floating.
        plain: the same shape.
    """
    got, want = (t.double().reshape(-1) for t in (outputs, plain))
    error = got - want
    norms = [torch.linalg.vector_norm(t) for t in (got, want, error)]
    sums = [t.abs().sum() for t in (error, want)]
    table = torch.stack([*norms, *sums, torch.dot(got, want)]).tolist()
    own, size, off, wrong, total, product = table
    if not size:
        away = 0.0 if not own else float("inf")
        return {"cosine": 1.0, "relative_l1": away, "relative_rmse": away}
    return {"cosine": product / (own * size) if own else 0.0, "relative_l1": wrong / total, "relative_rmse": off / size}


def keeps_to(contract: tuple[float, float, float], outputs: torch.Tensor, plain: torch.Tensor) -> str:
    """The first figure that breaks the contract (least cosine, largest relative L1 and rms errors), with its bound, for
    people; empty: none does. A figure that is no number breaks it.
    """
    found = figures(outputs, plain)
    if not found["cosine"] >= contract[0]:
        return f"cosine {found['cosine']:.3g}, at least {contract[0]:g}"
    for name, words, most in (("relative_l1", "relative L1 error", 1), ("relative_rmse", "relative rms error", 2)):
        if not found[name] <= contract[most]:
            return f"{words} {found[name]:.3g}, at most {contract[most]:g}"
    return ""
