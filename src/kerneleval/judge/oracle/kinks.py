"""Where the gradients of a composed operator jump: at ties and kinks, where every convention is right.

``max(0, 1 - x * target)`` has gradient 0 where it is made by ``relu`` and 1 where it is made by ``clamp``, if it is
just 0. Inputs in half types often lie there. Such elements are found by moving the inputs by next to nothing, in fp64.

Where each element has a kink of its own, as a place at the edge of an image, the slopes of both sides are right, and
what lies between them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Tensors = tuple[torch.Tensor, ...]

_SIZE, _PAIRS, _SMALLER = 2.0**-30, 2, 16
"""How far inputs move, how often (up and down), and how many times less far they do to tell a jump from a slope."""

_PARTS = (1, _SMALLER)

_SHOWS = 2.0**-9
"""Part of the largest gradient by which one changes at a kink of an output that rounds to 0. Others of its row change
with it, by less than what is rounded there."""

_ZERO = 2.0**-30
"""Zeros move by as much as numbers of this size."""

_OWN, _WHOLE = 2.0**-24, 2.0**-36
"""Less than this part of an element, or of the rms of all, is rounding in fp64."""

_MOVED = 2.0**-26
"""What moving the inputs changes a slope by, at most, as a part of the largest one: fp64 has more digits than that."""

_KINKED = re.compile(
    r"abs|grid|(?<!soft)max|min|relu|leaky|celu|selu|(?<!g)elu|hard|shrink|threshold|sign|sgn|clamp|where|huber|l1_loss|margin"
    r"|sort|topk|median|kthvalue|mode|round|floor|ceil|trunc|frac|fmod|remainder|pool|dist|reduce|heaviside"
)
"""Names of ATen operators with a kink, a step or a choice."""

_MET: dict[Any, bool] = {}


def has_kinks(reference: Any, run: Callable[[], object]) -> bool:
    """Whether a reference calls an operator with a kink.

    Args:
        reference: the function, of which the answer is kept.
        run: calls it, on any inputs.
    """
    if reference not in _MET:
        with _Names() as names:
            run()
        _MET[reference] = any(_KINKED.search(name) for name in names.met)
    return _MET[reference]


class _Names(TorchDispatchMode):
    """Notes which ATen operators are called."""

    _should_skip_dynamo = bool  # called without arguments it is False; True imports the compiler, a second of a verdict

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.met: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.met.add(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def limits(
    gradients: Callable[[Sequence[Any]], Tensors], args: Sequence[Any], *, between: bool = False, step: float = 0.0
) -> list[tuple[torch.Tensor, torch.Tensor] | None]:
    """The smallest and the largest number that is right where each gradient jumps; elsewhere infinity and its negative.
    None: it jumps nowhere.

    Args:
        gradients: gradients in fp64 at given arguments.
        args: the arguments, in fp64.
        between: whether only numbers between the slopes of both sides are right, not all of the gradient's size.
        step: what rounds to 0 in the type of the outputs, the smallest step of which is twice that, is at a kink too: a
            gradient may hang on whether the output is 0.
    """
    right = gradients(args)
    jump = [torch.zeros(one.shape, dtype=torch.bool, device=one.device) for one in right]
    least, most, largest = list(right), list(right), [_largest(one) for one in right]
    for turn, up, beside in itertools.product(range(_PAIRS), (1, -1), (0.0, step) if step else (0.0,)):
        far, near = (gradients(_moved(args, turn, up * _SIZE / part, _SMALLER * beside / part)) for part in _PARTS)
        for place, (here, further, nearer) in enumerate(zip(right, far, near, strict=True)):
            jump[place] |= _jumps(here, further, nearer, _SHOWS * float(largest[place]) if beside else 0.0)
            largest[place] = torch.maximum(largest[place], _largest(nearer))
            least[place], most[place] = torch.minimum(least[place], nearer), torch.maximum(most[place], nearer)
    if between:
        ends = [(a - _MOVED * size, b + _MOVED * size) for a, b, size in zip(least, most, largest, strict=True)]
    else:
        ends = [(-2 * size, 2 * size) for size in largest]
    return [
        (torch.where(where, low, math.inf), torch.where(where, high, -math.inf)) if bool(where.any()) else None
        for where, (low, high) in zip(jump, ends, strict=True)
    ]


def _largest(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs().amax() if tensor.numel() else tensor.new_zeros(())


def _jumps(here: torch.Tensor, far: torch.Tensor, near: torch.Tensor, shows: float) -> torch.Tensor:
    """Where what comes out of the smaller step differs by as much as that of the larger one, and by what ``shows``."""
    change = (near - here).abs()
    rounding = float(torch.linalg.vector_norm(here)) * _WHOLE / math.sqrt(max(1, here.numel()))
    floor = (_OWN * (here.abs() + near.abs())).clamp_min(rounding)
    return (change > (far - here).abs() / 2) & (change > floor.clamp_min_(shows))


def _moved(args: Sequence[Any], turn: int, size: float, least: float) -> list[Any]:
    """The arguments, each element moved by one to three times ``size`` of itself, or of ``least`` if that is more and
    it is not 0; all by other amounts, so that equal ones differ. The amounts are fixed and public.
    """

    def moved(tensor: torch.Tensor, place: int) -> torch.Tensor:
        generator = torch.Generator(tensor.device).manual_seed(1000 * turn + place)
        steps = torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype, device=tensor.device).mul_(4).sub_(2)
        steps += steps.sign()  # in [-3, -1] or [1, 3]
        zero = tensor == 0
        sizes = tensor.abs().masked_fill_(zero, _ZERO).mul_(abs(size))
        sizes = torch.where(zero, sizes, sizes.clamp_min(least))
        return tensor + steps.mul_(math.copysign(1.0, size)) * sizes

    return [
        moved(arg, place) if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
        for place, arg in enumerate(args)
    ]
