"""Other outcomes of the random numbers that ``get_inputs()`` draws, each as possible as the one that it gets.

The file's own code goes on with them: what it sorts stays sorted, a mask is made of the lengths that were drawn, and
nothing has a value that it could not have had. Permutations stay as they are, and so do draws of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Way = Literal["sorted", "crowded", "closed", "whole", "partly", "alone", "lowest", "highest"]
"""``sorted``: floating numbers in another order within their rows (:func:`_in_order`), ``crowded``: in one order in all
rows. ``whole``: at the ends of their range, whole rows of them (:func:`_at_ends`); ``closed``: so, but as often as not
all of few rows at the lower end; ``partly``: one in each such row is at the other end. ``alone``: whole numbers come
once (:func:`_each_once`). ``lowest`` and ``highest``: all are at that end."""

_FLOATING = frozenset(("rand", "randn", "rand_like", "randn_like", "uniform_", "normal_", "exponential_"))
_WHOLE = frozenset(("randint", "randint_like", "random_", "bernoulli", "bernoulli_", "multinomial"))

DRAWS = _FLOATING | _WHOLE | {"randperm", "normal", "poisson", "log_normal_", "cauchy_", "geometric_"}
"""Operators that draw."""

MOST = 32
"""Draws that are changed; a file that draws until it likes what it gets comes to its end."""

_FEW = 4
"""Elements below which a draw stays as it is, and rows from which whole ones are changed."""

_LOW = 0.75
"""Part of few rows that is at the lower end."""


class Outcomes(TorchDispatchMode):
    """Changes what is drawn inside, on whichever device: ``way`` says how, by the number of the draw; None: not.
    ``drawn`` counts them.
    """

    def __init__(self, way: Callable[[int], Way | None], seed: int) -> None:
        TorchDispatchMode.__init__(self)
        self.drawn = 0
        self._way, self._seed = way, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _FLOATING and name not in _WHOLE:
            return out
        if name == "multinomial" and not (args[2:3] or (dict(kwargs or {}).get("replacement"),))[0]:
            return out  # all different
        number, self.drawn = self.drawn, self.drawn + 1
        way = self._way(number) if number < MOST else None
        if way is None or out.is_meta or not out.dim():
            return out
        if way in ("lowest", "highest"):
            low, high = (0, 1) if name in ("rand", "rand_like") else _range(name, out, args)
            return out.copy_(torch.as_tensor(low if way == "lowest" else high))
        if out.numel() < _FEW:
            return out
        if way == "alone":
            return out.copy_(_each_once(out, *_range(name, out, args), self._on(out.device))) if name in _WHOLE else out
        if way not in ("sorted", "crowded"):
            low, high = _range(name, out, args)
            out.copy_(_at_ends(out, low, high, way, self._on(out.device)))
        elif name in _FLOATING:
            out.copy_(_in_order(out, self._on(out.device), alike=way == "crowded"))
        return out

    def _on(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device=device).manual_seed(self._seed)
        return self._generators[device]


def _range(name: str, out: torch.Tensor, args: Sequence[Any]) -> tuple[Any, Any]:
    """The least and the largest number that could have been drawn; of floating ones and samples, that were drawn."""
    ends = [a for a in args if type(a) is int]
    if name in _WHOLE and name not in ("bernoulli", "bernoulli_", "multinomial") and ends:
        return (ends[0] if len(ends) > 1 else 0), ends[-1] - 1
    if name in _WHOLE and "bernoulli" in name:
        return 0, 1
    return out.aminmax()


def _in_order(drawn: torch.Tensor, generator: torch.Generator, *, alike: bool) -> torch.Tensor:
    """The numbers of each row rising, falling, or rising from a secret place on, round its end: equal shares of the
    rows, in secret order. A single row falls. ``alike``: all rise from one secret place on.
    """
    rows = drawn.reshape(-1, drawn.shape[-1])
    count, width = rows.shape
    rising = rows.sort(-1).values
    kind = _kinds(count, 3, generator)
    start = torch.randint(width, (count, 1), generator=generator, device=drawn.device)
    start, kind = (start[:1], kind.new_full((count, 1), 2)) if alike else (torch.where(kind == 1, 0, start), kind)
    places = (torch.arange(width, device=drawn.device) + start) % width
    places = torch.where(kind == 0, width - 1 - places + start, places) % width
    return rising.gather(-1, places).view(drawn.shape)


def _at_ends(drawn: torch.Tensor, low: Any, high: Any, way: Way, generator: torch.Generator) -> torch.Tensor:
    """Of four rows, one at the lower end of the range, one at the upper end, one at one end up to a secret place and at
    the other from there on, and one as drawn. Of fewer rows, every element at one of both ends, most at the lower.
    """
    whole = way != "partly"
    rows = drawn.reshape(-1, drawn.shape[-1])
    count, width = rows.shape
    places = torch.arange(width, device=drawn.device)
    one, other = (torch.randint(width, (count, 1), generator=generator, device=drawn.device) for _ in range(2))
    if count < _FEW:
        up = torch.rand(rows.shape, generator=generator, device=drawn.device) >= _LOW
        up = (up | (places == one)) & (places != (one + 1) % width)
        up &= way != "closed" or bool(torch.rand((), generator=generator, device=drawn.device) < 0.5)
        stays = torch.zeros_like(up)
        if not whole:
            stays = (torch.rand(rows.shape, generator=generator, device=drawn.device) >= _LOW) & (places != one)
            stays &= places != (one + 1) % width
    else:
        kind = _kinds(count, 4, generator)
        split = (places < (width + one) // 3 + 1) ^ (other % 2 == 0)
        up = torch.where(kind == 2, split, kind == 1)
        if not whole:
            up = up ^ ((places == one) & (kind < 2))
        stays = (kind == 3).expand_as(up)
    ends = [torch.as_tensor(end, dtype=drawn.dtype, device=drawn.device) for end in (low, high)]
    return torch.where(stays, rows, torch.where(up, ends[1], ends[0])).view(drawn.shape)


def _each_once(drawn: torch.Tensor, low: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers above ``low``, up to ``high``, at most once each, in up to half of all places; in the others ``low``."""
    count, device = min(drawn.numel() // 2, int(high) - int(low)), drawn.device
    numbers = torch.randperm(int(high) - int(low), generator=generator, device=device)[:count] + int(low) + 1
    out = torch.full_like(drawn, low).flatten()
    out[torch.randperm(drawn.numel(), generator=generator, device=device)[:count]] = numbers.to(drawn.dtype)
    return out.view(drawn.shape)


def _kinds(count: int, kinds: int, generator: torch.Generator) -> torch.Tensor:
    """A kind for each row, all as often as can be, in a column."""
    order = torch.randperm(count, generator=generator, device=generator.device)
    return (order % kinds)[:, None]
