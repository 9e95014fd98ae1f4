"""What a problem file is at each of its sizes (``survey.py``), each found once, and whether it draws inputs there."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from kerneleval.records import Argument, TensorSpec, UsageError
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.redrawn import add_up
from kerneleval.tasks.formats.survey import Survey, other_draw, outgrows, stretches, survey, written_out
from kerneleval.tasks.formats.traits import is_inexact

MINIATURE_BYTES, MINIATURE_FLOPS = 4 << 20, 200_000_000
"""Bytes and operations up to which a problem is run to see what it does."""

_MAX_PROBES = 150

_MAX_STEPS = 300_000
"""Operators dispatched over all probes of one file: recurrent models take tens of thousands a run."""

_REAL_BYTES = 64 << 20
"""Size up to which a problem that needs real tensors to be surveyed is tried at other sizes."""

_WRITTEN_BYTES = 16 << 20
"""Size of a file up to which it is drawn at every other size, where it writes integers out."""

_LOW_DRAWS = 20
"""Draws in which no integer may be 0 that is above it in the file."""


class Surveys:
    """Surveys of one file by its dims, each made once."""

    def __init__(self, file: ProblemFile) -> None:
        self.file = file
        self._known: dict[tuple[tuple[str, int], ...], Survey | UsageError] = {}
        self._of_segments: dict[tuple[tuple[str, int], ...], bool] = {}
        self._owners: dict[tuple[int, int], bool] = {}
        self.units: list[Any] | None = None
        """What can be varied (``sweep.py``), where that was asked."""
        self.batch: tuple[str, ...] | None = None
        """The batches of one in place of which it takes several items (``sweep.py``); None: not asked so far."""
        self.numbers: dict[str, int] | None = None
        """Other numbers of the constructor (``constructor.py``); None: not asked so far."""

    def at(self, dims: Mapping[str, int]) -> Survey:
        """The survey at these dims; raises UsageError where the file raises."""
        key = tuple(sorted((self.file.sizes | dict(dims)).items()))
        if key not in self._known:
            try:
                self._known[key] = survey(self.file, dims)
            except UsageError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, UsageError):
            raise found
        return found

    @functools.cached_property
    def other_arguments(self) -> tuple[Argument, ...]:
        """What the file draws under another seed, at its own sizes."""
        return other_draw(self.file, "cpu" if self.at({}).real else "meta")

    def probe(self, dims: Mapping[str, int]) -> Survey | None:
        """The survey at these dims; None where the file raises, or runs because a size became 1 (``stretches``) or is
        no more what it was beside others (``outgrows``), or its segments are others than it has (see
        :meth:`_keeps_segments`), or once this file has had its share of tries.
        """
        if len(self._known) > self._probes:
            return None
        try:
            made, key = self.at(dims), tuple(sorted(dims.items()))
            if stretches(self.at({}), made) or outgrows(self.at({}), made):
                return None
            if key not in self._of_segments:
                self._of_segments[key] = self._keeps_segments(made, dims)
            return made if self._of_segments[key] else None
        except UsageError:
            return None

    @property
    def has_segments(self) -> bool:
        """Whether the file gives offsets that it counts or writes out."""
        return bool(self._offsets)

    def bounds_segments(self, number: int) -> bool:
        """Whether no segment between such offsets is longer than a number, and there are more rows than that."""
        return any(int(v.diff().max()) <= number < int(v[-1]) for v in self._offsets.values())

    @functools.cached_property
    def _offsets(self) -> dict[int, torch.Tensor]:
        """Vectors that ascend from 0, in steps of which some are above 1, and that the file counts or writes out."""
        if not any(isinstance(a, TensorSpec) and _is_index(a) and len(a.shape) == 1 for a in self.at({}).arguments):
            return {}
        try:
            values = enumerate(self._written_out[0])
        except UsageError:
            return {}
        vectors = ((i, v) for i, v in values if isinstance(v, torch.Tensor) and not v.is_meta and v.dim() == 1)
        whole = ((i, v.long()) for i, v in vectors if len(v) > 1 and not (v.is_floating_point() or v.is_complex()))
        return {i: v for i, v in whole if not int(v[0]) and int(v.diff().min()) >= 0 and int(v.diff().max()) > 1}

    @functools.cached_property
    def _written_out(self) -> tuple[list[Any], list[Any]]:
        return written_out(self.file, {})

    def _keeps_segments(self, made: Survey, dims: Mapping[str, int]) -> bool:
        """Whether segments at these sizes are like the file's own. Offsets still end at the last row of an argument: N
        segments of ``T // N`` rows do not where N does not divide T. There are still as many segments as weights or
        arguments of ``Model`` say.
        """
        if not self._offsets:
            return True
        base, (_, told), (drawn, told_now) = self.at({}), self._written_out, written_out(self.file, dims)
        plain = [(a, b) for a, b in zip(told, told_now, strict=False) if type(a) is type(b) is int]
        weights = _sizes(base.weights, made.weights)
        for index, own in self._offsets.items():
            other = drawn[index] if index < len(drawn) else None
            if not isinstance(other, torch.Tensor) or other.is_meta or not other.numel():
                return True
            sizes = _sizes(*((*one.arguments[:index], *one.arguments[index + 1 :]) for one in (base, made)))
            ends: dict[int, list[int]] = {}
            for dim, was, now in sizes:
                if was == int(own[-1]):
                    ends.setdefault(dim, []).append(now)
            last = int(bool(ends))
            many = [now for was, now in (*(pair for _, *pair in (*sizes, *weights)), *plain) if was == len(own) - last]
            if many and not (self._is_counted(index, len(own) - last) or self._has_weights(index, len(own) - last)):
                many = []
            # keys and values that end there do so together; a width may be as large
            rows = [set(nows) for nows in ends.values() if len(nows) == max(map(len, ends.values()))]
            if (ends and {int(other[-1])} not in rows) or (many and len(other) - last not in many):
                return False
        return True

    def _is_counted(self, index: int, count: int) -> bool:
        """Whether exactly one top-level integer has this value, and twice of it gives twice as many segments. Else what
        is as large may be the number of something else.
        """
        names = [name for name, value in self.file.sizes.items() if value == count]
        if len(names) != 1:
            return False
        try:
            more = written_out(self.file, {names[0]: 2 * count})[0][index]
        except (UsageError, IndexError):
            return False
        return isinstance(more, torch.Tensor) and len(more) == len(self._offsets[index]) + count

    def _has_weights(self, index: int, count: int) -> bool:
        """Whether each segment of a small file has numbers of its own: the first and the last of so many, along a dim
        of a floating argument or weight, change the first and the last segment alone. Asked once.
        """
        if (index, count) not in self._owners:
            base = self.at({})
            small = base.bytes <= MINIATURE_BYTES and base.flops <= MINIATURE_FLOPS
            try:
                self._owners[index, count] = small and self._finds_weights(index, count)
            except UsageError:
                self._owners[index, count] = False
        return self._owners[index, count]

    def _finds_weights(self, index: int, count: int) -> bool:
        """The same, by running the file with other weights."""
        problem = ModuleProblem(self.file, {}, "cpu")
        args, weights = problem.inputs(1), problem.weights(1)
        own, starts = problem.oracle(args, weights), args[index].tolist()
        given: list[tuple[int | str, Any]] = [*enumerate(args), *weights.items()]

        def moves(key: int | str, tensor: torch.Tensor, dim: int, place: int) -> bool:
            other = tensor.clone()
            other.select(dim, place).mul_(1.5).add_(0.1)
            changed = [other if i == key else a for i, a in enumerate(args)]
            outs = problem.oracle(changed, {n: other if n == key else w for n, w in weights.items()})
            found = False
            for before, after in zip(own, outs, strict=True):
                if before.shape != after.shape or not len(before.shape) or not before.numel():
                    return False
                rows = (before != after).reshape(len(before), -1).any(-1)
                first, end = (
                    (place, place + 1) if len(rows) == count else (starts[place], [*starts[1:], len(rows)][place])
                )
                found |= bool(rows.any())
                rows[first:end] = False
                if bool(rows.any()):
                    return False
            return found

        floating = [(key, tensor) for key, tensor in given if is_inexact(tensor)]
        dims = (
            (key, tensor, dim) for key, tensor in floating for dim, size in enumerate(tensor.shape) if size == count
        )
        return any(all(moves(*one, place) for place in (0, count - 1)) for one in dims)

    def drawn(self, dims: Mapping[str, int]) -> Survey | None:
        """The same; None too where a small file draws no such inputs, positions that it writes out lie outside of them,
        or one batch is repeated for those of another input. Tensors without values take what real ones do not, as a
        mask of another shape.
        """
        made = self.probe(dims)
        if made is not None and self._is_spread(made):
            return None
        small = made is not None and made.bytes <= MINIATURE_BYTES and not made.real
        if made is not None and (small or self._written):
            try:
                args = ModuleProblem(self.file, dims, "cpu").inputs(1)
            except UsageError:
                return None
            if self._exceeds(args) or (self._written and (self._lie_outside(args) or self._lack(args))):
                return None
        return made

    def _is_spread(self, made: Survey) -> bool:
        """Whether the first dim of an input became 1, and that of another and of an output is still what all three
        were: numbers that the file writes out for a batch of two. No candidate is asked for that.
        """
        base = self.at({})
        pairs = [
            (own.shape[0], other.shape[0])
            for own, other in zip(base.arguments, made.arguments, strict=False)
            if isinstance(own, TensorSpec) and isinstance(other, TensorSpec) and own.shape and other.shape
        ]
        stayed = {own for own, other in pairs if own == other}
        outputs = zip(base.outputs, made.outputs, strict=False)
        stayed &= {own.shape[0] for own, other in outputs if own.shape and own.shape[:1] == other.shape[:1]}
        return any(other == 1 < own and own in stayed for own, other in pairs)

    def is_lower(self, dims: Mapping[str, int]) -> bool:
        """Whether integers that lie above 0 in a small file are 0 or less at these dims, as from ``T // 2`` on at 1."""
        made, whole = self.at(dims), [i for i, spec in enumerate(self.at({}).arguments) if _is_index(spec)]
        if (
            not whole
            or self.at({}).bytes > _WRITTEN_BYTES
            or made.bytes > MINIATURE_BYTES
            or len(self._own) <= whole[-1]
        ):
            return False
        try:
            ends = ModuleProblem(self.file, {}, "cpu").outcome(1, lambda number: "whole")[0]
            above = [i for i in whole if self._own[i].numel() and min(int(self._own[i].min()), int(ends[i].min())) > 0]
            problem = ModuleProblem(self.file, dims, "cpu")
            draws = [problem.inputs(seed) for seed in range(_LOW_DRAWS if above else 0)]
        except UsageError:
            return True
        return any(len(args) > i and args[i].numel() and int(args[i].min()) <= 0 for args in draws for i in above)

    @functools.cached_property
    def _own(self) -> list[Any]:
        """The inputs at the file's own sizes, of which all but integers are given up: they may take gigabytes."""
        args, specs = ModuleProblem(self.file, {}, "cpu").inputs(1), self.at({}).arguments
        return [
            arg if _is_index(spec) or not isinstance(arg, torch.Tensor) else arg.to("meta")
            for arg, spec in zip(args, specs, strict=True)
        ]

    @functools.cached_property
    def _written(self) -> list[int]:
        """Positions of integer tensors that a small file draws alike under every seed."""
        base = self.at({})
        whole = [i for i, spec in enumerate(base.arguments) if _is_index(spec)]
        if not whole or base.bytes > _WRITTEN_BYTES:
            return []
        frozen = ModuleProblem(self.file, {}, "cpu").traits.frozen
        return [i for i in whole if i in frozen and self._own[i].numel() > 1]

    def _lie_outside(self, args: Sequence[Any]) -> bool:
        """Whether integers that are still the same may name places that a tensor has no more, or end where it ended.
        The file does not say what is right for an end behind the last row, or for rows behind the last end. Also where
        there are more inputs or fewer: which of them the integers name is not known.
        """
        if len(args) != len(self._own):
            return True
        both = zip(self._own, args, strict=True)
        pairs = [(a, b) for a, b in both if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]
        sizes = {pair for a, b in pairs for pair in zip(a.shape, b.shape, strict=False) if pair[0] != pair[1]}
        ends = []
        for own, other in ((self._own[i], args[i]) for i in self._written):
            same = own[own == other] if own.shape == other.shape else own[:0]
            ends += [int(same.max())] if same.numel() else []
        return any(own >= end >= other for own, other in sizes for end in ends if end > 1)

    def _lack(self, args: Sequence[Any]) -> bool:
        """Whether parts that are drawn alike under every seed add up to a size no more, or there are more or fewer of
        what there was one of for each: a matrix for each group of rows. Candidates leave no row and no group out.
        """
        both = list(zip(self._own, args, strict=False))
        shapes = [(a.shape, b.shape) for a, b in both if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]
        sizes = [pair for own, other in shapes for pair in zip(own, other, strict=False)]
        for own, other in (both[i] for i in self._written if i < len(both)):
            if add_up(own, self._own):
                each = [now for size, now in sizes if size == len(own)]
                if not add_up(other, args) or any(now != len(other) for now in each):
                    return True
        return False

    def _exceeds(self, args: Sequence[Any]) -> bool:
        """Whether integers are larger, or further apart, than a plain argument that is still the same and was the most
        of that: the length of the longest sequence. Candidates go no further.
        """
        if len(args) != len(self._own):
            return False
        plain = [own for own, other in zip(self._own, args, strict=True) if type(own) is int and own == other > 2]
        whole = [
            (list(_most(own)), list(_most(other)))
            for own, other in zip(self._own if plain else (), args, strict=False)
            if isinstance(own, torch.Tensor) and isinstance(other, torch.Tensor)
        ]
        pairs = [pair for own, other in whole for pair in zip(own, other, strict=False)]
        return any(own == number < other for own, other in pairs for number in plain)

    def is_exceeded(self, dims: Mapping[str, int]) -> bool:
        """Whether integers that the file counts or writes out, or steps between them, are larger at these dims than a
        plain argument below which they lie: it is the length of the longest segment, and no width that is as large.
        """
        try:
            pairs = list(zip(self._written_out[0], written_out(self.file, dims)[0], strict=False))
        except UsageError:
            return False
        plain = [(own, other) for own, other in pairs if type(own) is type(other) is int]
        drawn = [(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and not (a.is_meta or b.is_meta)]
        most = [pair for a, b in drawn for pair in zip(_most(a), _most(b), strict=False)]
        return any(own >= was and other < now for was, now in most for own, other in plain)

    @property
    def _probes(self) -> int:
        base = self.at({})
        if base.real and base.bytes > _REAL_BYTES:
            return 1
        return max(8, min(_MAX_PROBES, _MAX_STEPS // max(base.steps, 1)))


def _most(tensor: torch.Tensor) -> Iterator[int]:
    """The largest of several integers, and the largest step of a vector of them."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or tensor.numel() < 2:
        return
    yield int(tensor.max())
    if tensor.dim() == 1:
        yield int(tensor.to(torch.int64).diff().max())  # differences of unsigned numbers wrap


def _sizes(own: Sequence[Argument], other: Sequence[Argument]) -> list[tuple[int, int, int]]:
    """Each dim and size of tensors, and what it is of others."""
    pairs = zip(own, other, strict=False)
    shapes = [(a.shape, b.shape) for a, b in pairs if isinstance(a, TensorSpec) and isinstance(b, TensorSpec)]
    return [(dim, *pair) for a, b in shapes for dim, pair in enumerate(zip(a, b, strict=False))]


def _is_index(spec: Argument) -> bool:
    return isinstance(spec, TensorSpec) and spec.role == "index" and "complex" not in spec.dtype
