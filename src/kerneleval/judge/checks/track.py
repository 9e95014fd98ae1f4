"""Which track a candidate is on: what it dispatched and launched in one traced call per direction.

ATen operators that only allocate, view, copy or convert are no arithmetic. A candidate that dispatches arithmetic and
launches kernels of its own is mixed; one that launches none is library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kerneleval.judge.cells import CALL_TIMEOUT_S, CellJudge
from kerneleval.judge.windows import Image, Plan
from kerneleval.records import Case, Evidence, Outcome, Passed, new_secret

__all__ = ["CHECK", "arithmetic"]

_PLUMBING = frozenset(
    (
        "_foreach_copy_",
        "_local_scalar_dense",
        "_reshape_alias",
        "_to_copy",
        "_unsafe_view",
        "alias",
        "arange",
        "as_strided",
        "as_strided_",
        "bernoulli_",
        "chunk",
        "clone",
        "contiguous",
        "copy",
        "copy_",
        "detach",
        "detach_",
        "diagonal",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "fill",
        "fill_",
        "flatten",
        "full",
        "full_like",
        "is_pinned",
        "is_same_size",
        "item",
        "lift",
        "lift_fresh",
        "lift_fresh_copy",
        "movedim",
        "narrow",
        "new_empty",
        "new_empty_strided",
        "new_full",
        "new_ones",
        "new_zeros",
        "normal_",
        "numpy_T",
        "ones",
        "ones_like",
        "permute",
        "pin_memory",
        "rand",
        "randint",
        "randn",
        "random_",
        "record_stream",
        "reshape",
        "resize_",
        "resize_as_",
        "result_type",
        "scalar_tensor",
        "select",
        "set_",
        "size",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "storage_offset",
        "stride",
        "sym_numel",
        "sym_size",
        "sym_stride",
        "t",
        "t_",
        "transpose",
        "transpose_",
        "unbind",
        "unflatten",
        "unfold",
        "uniform_",
        "unsqueeze",
        "unsqueeze_",
        "view",
        "view_as_complex",
        "view_as_real",
        "zero",
        "zero_",
        "zeros",
        "zeros_like",
    )
)
"""Base names of ATen operators that compute nothing of the operator: allocation, views, copies, conversion, seeds."""


def arithmetic(dispatched: Mapping[str, int]) -> dict[str, int]:
    """The operators among ``aten.name.overload`` counts that compute something."""
    found: dict[str, int] = {}
    for name, count in dispatched.items():
        parts = name.split(".")
        base = parts[1] if len(parts) > 1 else name
        if parts[0] not in ("aten", "prims", "quantized", "mkldnn", "torchvision"):
            continue  # operators that the candidate itself registered are its own
        if base not in _PLUMBING:
            found[name] = count
    return found


def _check(judge: CellJudge, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Evidence]:
    worst: tuple[int, str, str] | None = None
    seen_ops: dict[str, int] = {}
    seen_kernels: dict[str, int] = {}
    for direction in ("forward", "backward"):
        case = next((c for c in cases if c.direction == direction and isinstance(outcomes.get(c), Passed)), None)
        if case is None:
            continue
        bound = judge.bind(case)
        drawn = bound.draw(new_secret())
        image = Image(Plan([bound.form(drawn)], case.direction), judge.device)
        image.fill(0, drawn.tensors)
        dispatched, launches = judge.loaded.runner.trace(image, timeout_s=CALL_TIMEOUT_S)
        computing = arithmetic(dispatched)
        seen_ops |= computing
        seen_kernels |= launches
        own = bool(launches) or not computing
        rank = 0 if not computing else (1 if own else 2)
        names = ", ".join(sorted(computing)[:6])
        kernels = ", ".join(sorted(launches)[:6])
        text = f"{direction}: " + (f"launches {kernels}" if kernels else "no launches seen")
        text += f"; computes with {names}" if names else "; no ATen arithmetic"
        if worst is None or rank > worst[0]:
            worst = (rank, direction, text)
    if worst is not None:
        track = ("custom", "mixed", "library")[worst[0]]
        yield {
            "level": "info",
            "message": worst[2],
            "track": track,
            "aten": seen_ops,
            "launches": seen_kernels,
        }


CHECK = _check
