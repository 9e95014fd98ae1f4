"""What a wrong output looks like: a slug and half a sentence for people.

It only runs after a mismatch and decides nothing; ``comparison.py`` calls it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.judge.oracle.expectation import Expected, as_real, unit_roundoff
from kerneleval.records import Evidence

SLUGS: dict[str, str] = {
    "nan": "NaN where numbers are expected",
    "inf": "infinities where numbers are expected",
    "lost_nonfinite": "numbers where NaN or infinities are expected",
    "all_zero": "every element is zero",
    "constant": "every element has the same value",
    "input_copy": "an input handed back as output",
    "wrong_sign": "the right values with the wrong sign",
    "scaled": "the right values times a constant factor",
    "shifted": "the right values plus a constant",
    "not_quantised": "the result of exact arithmetic, without the error that its quantisation makes",
    "tail_wrong": "only the last rows or columns are wrong: a partial block is not handled",
    "rows_wrong": "whole rows are wrong and the others right",
    "rows_scaled": "every row is the right one times a factor of its own, plus a constant or a multiple of a vector",
    "permuted": "the right values in wrong places",
    "precision_downgrade": "errors as a narrower type or a coarse approximation makes them",
    "index_out_of_range": "indices outside of the selected dim",
    "biased": "errors of one sign, smaller than a rounding step: a factor, an offset, or numbers that are cut",
    "wrong": "nothing recognised",
}
"""Every diagnosis, with its meaning."""

_Diagnosis = tuple[str, str] | None
"""(slug, words for the message); None: it is something else."""

_SAME = 1e-6
"""Numbers that differ by this part of themselves are the same but for rounding."""
_SORTED_AT_MOST = 1 << 22
_FEW = 0.01
_MOST_OF = 0.25
"""Errors in a smaller share of the elements are not all over."""
_ALL_OVER = "all over the output"
_BLOCK = 32
"""The shortest dim at whose end a block of a kernel may be partial."""
_FITTED = 8
"""Rows with fewer numbers than this beyond those that are fitted, all together, fit anything."""
_COARSEST = 2.0**-6
"""Errors from this part of the output on are none that bfloat16 makes, whose numbers are off by 2^-9."""
_LIMIT = 256
"""A power of two from here on, behind which all is wrong, may be the length of a table."""
_NARROWER = (("bfloat16", 16), ("float16", 13), ("tf32", 13))
"""Types narrower than fp32, with the low bits of an fp32 number that they leave zero; float16 within its range."""


def diagnose(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> tuple[str, str]:
    """(slug, words for the message) of a wrong output.

    Args:
        args: arguments and upstream gradients of the call.
        wrong: which elements are beyond their tolerance.
    """
    for test in (_by_value, _by_quantisation, _by_fit, _by_place, _by_rows, _by_precision):
        found = test(got, expected, args, wrong)
        if found is not None:
            slug, detail = found
            return slug, detail or f"it looks like {SLUGS[slug]}"
    return "wrong", ""


def worst_element(got: torch.Tensor, expected: Expected, wrong: torch.Tensor) -> tuple[int, Evidence]:
    """(flat position, evidence) of the element with the largest error; of a wrong one, if any is."""
    own, oracle = as_real(got), as_real(expected.oracle)
    if expected.bounds is None:
        flat = int(wrong.reshape(-1).int().argmax())
    else:
        error = (own.double() - oracle.double()).abs().nan_to_num_(nan=math.inf, posinf=math.inf)
        error.masked_fill_(own == as_real(expected.native), 0.0)
        if bool(wrong.any()):
            error.masked_fill_(~wrong.view(error.shape), -1.0)
        flat = int(error.reshape(-1).argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(flat), own.shape)]
    values = {"expected": oracle.reshape(-1)[flat].item(), "got": own.reshape(-1)[flat].item()}
    return flat, {"worst_index": place, **values}


def _by_value(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> _Diagnosis:
    if expected.kind == "index" and expected.source is not None:
        size = expected.source.shape[expected.dim]
        outside = int(((got < 0) | (got >= size)).sum())
        if outside:
            return "index_out_of_range", f"{outside} indices are outside of [0, {size})"
    if got.is_floating_point():
        bad = wrong.view(got.shape)
        if bool((got.isnan() & bad).any()):
            every = " (all of it: never written, or 0 / 0?)" if bool(got.isnan().all()) else ""
            return "nan", f"it has {SLUGS['nan']}{every}"
        if bool((got.isinf() & bad).any()):
            return "inf", f"it has {SLUGS['inf']}"
        if bool((~expected.oracle.isfinite() & bad).any()):
            return "lost_nonfinite", f"it has {SLUGS['lost_nonfinite']}"
    if not bool(torch.any(got != 0)):
        return "all_zero", SLUGS["all_zero"]
    if got.numel() > 1 and bool(torch.all(got == got.reshape(-1)[0])) and not _nearly_constant(expected.oracle):
        return "constant", SLUGS["constant"]
    for position, arg in enumerate(args):
        if not isinstance(arg, torch.Tensor) or arg.shape != got.shape or arg.dtype != got.dtype:
            continue
        if torch.equal(arg, got):
            return "input_copy", f"it is a copy of tensor {position} of the call"
    return None


def _nearly_constant(tensor: torch.Tensor) -> bool:
    tensor = tensor if tensor.is_complex() else tensor.double()  # flags have no difference
    first = tensor.reshape(-1)[0]
    return bool(((tensor - first).abs() <= _SAME * first.abs()).all())


def _by_quantisation(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> _Diagnosis:
    if expected.plain is None:
        return None
    own = as_real(got).double()
    apart = [torch.linalg.vector_norm(own - other.double()) for other in (expected.plain, expected.oracle)]
    return ("not_quantised", "") if bool(4 * apart[0] < apart[1]) else None


def _by_fit(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> _Diagnosis:
    """C = a o, or c = o + b, with a remainder far below the error."""
    if expected.bounds is None or got.numel() < 2:
        return None
    own, oracle = as_real(got).double().reshape(-1), as_real(expected.oracle).double().reshape(-1)
    usable = own.isfinite() & oracle.isfinite()
    own, oracle = torch.where(usable, own, 0.0), torch.where(usable, oracle, 0.0)
    error = float(torch.linalg.vector_norm(own - oracle))
    square = float(torch.dot(oracle, oracle))
    if not error or not square:
        return None
    rounding = expected.bounds.rms / expected.bounds.gain * math.sqrt(got.numel())
    tolerance = max(0.02 * error, min(rounding, error / 4))
    factor, shift = float(torch.dot(own, oracle)) / square, float((own - oracle).mean())
    scaled = float(torch.linalg.vector_norm(own - factor * oracle))
    shifted = float(torch.linalg.vector_norm(own - oracle - shift))
    if min(scaled, shifted) >= tolerance:
        return None
    slug = "scaled" if scaled <= shifted else "shifted"
    if max(scaled, shifted) < tolerance:
        return slug, f"it is off by about the same everywhere: times {factor:.4g}, or plus {shift:.4g}"
    if slug == "shifted":
        return slug, f"it is the right output plus {shift:.6g}"
    if abs(factor + 1) < 0.01:
        return "wrong_sign", f"it has {SLUGS['wrong_sign']}"
    return slug, f"it is the right output times {factor:.{_digits(factor)}g}"


def _digits(factor: float) -> int:
    """So many that two of the difference from 1 can be read."""
    return max(6, 2 - math.floor(math.log10(abs(factor - 1))) if factor != 1 else 6)


def _by_place(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> _Diagnosis:
    """Where the wrong elements are: at the end of a dim, in whole rows, or everywhere with the right values."""
    count = int(torch.count_nonzero(wrong))
    wrong = wrong.view(got.shape) if wrong.numel() == got.numel() else wrong
    if count and wrong.ndim:
        for dim in range(wrong.ndim):
            size = wrong.shape[dim]
            others = [d for d in range(wrong.ndim) if d != dim]
            along = wrong.any(dim=others) if others else wrong
            first = int(along.int().argmax())
            # all that is wrong lies behind `first`, and most of what lies there is wrong
            if 0 < first >= size / 2 and count >= 0.5 * wrong.numel() / size * (size - first):
                are = f"index {first}" if first == size - 1 else f"indices {first} to {size - 1}"
                are += f" along dim {dim} {'is' if first == size - 1 else 'are'} wrong"
                if size < _BLOCK:
                    return "tail_wrong", f"only {are}"
                limit = f", or does something hold {first} alone" if first >= _LIMIT and not first & first - 1 else ""
                return "tail_wrong", f"only {are}: is a partial block handled{limit}?"
        if (left := wrong.numel() - int(wrong.reshape(-1).int().argmax())) <= min(2 * count, wrong.numel() / 4):
            which = "element, counted row by row, is" if left == 1 else f"{left} elements, counted row by row, are"
            return "tail_wrong", f"only the last {which} wrong: is a partial block handled?"
        if wrong.ndim > 1:
            rows = wrong.reshape(-1, wrong.shape[-1])
            share = rows.float().mean(dim=1)
            bad = int((share > 0.5).sum())
            if 0 < bad <= 0.75 * len(rows) and bool(((share > 0.5) | (share == 0)).all()):
                return "rows_wrong", f"{bad} of {len(rows)} rows are wrong, the others right"
    if expected.bounds is not None and 16 <= got.numel() <= _SORTED_AT_MOST and count > 0.25 * got.numel():
        own, oracle = (as_real(t).double().reshape(-1) for t in (got, expected.oracle))
        most = 2 * expected.bounds.rms / expected.bounds.gain
        # no distance of sorted values is below that of their means, which takes no sorting
        near = abs(float(own.mean() - oracle.mean())) <= most + 1e-12 * float(oracle.abs().mean())
        if near and float((own.sort().values - oracle.sort().values).square().mean().sqrt()) <= most:
            return "permuted", f"it has {SLUGS['permuted']}"
    return None


def _by_rows(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> _Diagnosis:
    """Each row a o + b of its own, with a remainder far below the error: a wrong norm, sum or variance of the row.
    Where weights and a bias were applied after it, multiples of them are left.
    """
    if expected.bounds is None or got.ndim < 2 or not got.numel():
        return None
    own, oracle = (as_real(t).double().reshape(-1, t.shape[-1]) for t in (got, expected.oracle))
    if not bool((own.isfinite() & oracle.isfinite()).all()):
        return None
    if float(oracle.square().amax(-1).sum()) > 0.9 * float(oracle.square().sum()):
        return None  # any factor fits a single element
    count, width = oracle.shape
    error = own - oracle
    norm = float(torch.linalg.vector_norm(error))
    rounding = expected.bounds.rms / expected.bounds.gain * math.sqrt(got.numel())
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    vectors = [a.double() for a in tensors if a.shape == (width,)]
    for shared in ([], vectors) if vectors else ([],):
        basis = torch.linalg.qr(torch.stack([torch.ones_like(oracle[0]), *shared], dim=1)).Q
        free = width - basis.shape[1] - 1
        theirs, left = (t - (t @ basis) @ basis.T for t in (oracle, error))
        if free < 2 or count * free < _FITTED:
            continue  # so few numbers fit anything
        squares = theirs.square()
        if float(squares.sum()) < 0.01 * float(oracle.square().sum()):
            continue  # and so do rows of equal elements
        factor = (left * theirs).sum(-1) / squares.sum(-1).clamp_min(1e-300)
        if float(torch.linalg.vector_norm(left - factor[:, None] * theirs)) < max(0.02 * norm, min(rounding, norm / 4)):
            low, high = (1 + float(end) for end in factor.aminmax())
            span = f"{low:.{_digits(low)}g} to {high:.{_digits(high)}g}"
            question = "is the norm, sum or variance of a row right"
            for used, wanted in (("n", "n - 1"), ("n - 1", "n")):
                root = math.sqrt((width - (used != "n")) / (width - (wanted != "n")))
                if max(abs(low - root), abs(high - root)) < 0.01 * abs(root - 1):
                    question = f"is the variance divided by {used} instead of {wanted}, for n = {width}"
            return "rows_scaled", f"{SLUGS['rows_scaled']} (factors {span}): {question}?"
    return None


def _by_precision(got: torch.Tensor, expected: Expected, args: Sequence[Any], wrong: torch.Tensor) -> _Diagnosis:
    """Errors of the size that a narrower type makes: small beside the output, and in most of its elements."""
    bounds = expected.bounds
    if bounds is None or not bounds.scales.rms:
        return None
    own, oracle = as_real(got), as_real(expected.oracle)
    difference = (own.double() - oracle.double()).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    relative = float(difference.square().mean().sqrt()) * bounds.gain / bounds.scales.rms
    unit = unit_roundoff(own.dtype)
    if int(torch.count_nonzero(wrong)) < _FEW * wrong.numel() and relative * bounds.scales.rms <= bounds.rms:
        return None  # single elements, in an output that is near enough as a whole
    off = int((difference.abs() * bounds.gain > bounds.local.view(own.shape) / 4).sum())
    if not 4 * unit < relative < _COARSEST or off < 0.1 * own.numel() or own.numel() < _FITTED:
        return None
    some = f"in {off} of {own.numel()} elements" if off < _MOST_OF * own.numel() else _ALL_OVER
    words = f"it has {SLUGS['precision_downgrade']}, {some} (relative rms error 2^{math.log2(relative):.1f})"
    if got.dtype == torch.float32:
        bits = own.contiguous().view(torch.int32)
        for name, low in _NARROWER:
            if bool(((bits & ((1 << low) - 1)) == 0).all()):
                words += f"; every element is a {name} number"
                break
    return "precision_downgrade", words
