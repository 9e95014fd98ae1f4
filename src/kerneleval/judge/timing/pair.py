"""Candidate and baseline side by side: windows of one while the other stands still, and their outputs compared.

The trusted baseline's outputs are the expectation, and the oracle has the last word. Thousands of outputs are compared
on the device. The bounds come from one call of the case; where a few numbers are ill-conditioned (a row of nearly equal
ones that is normalised), candidate and baseline may both be right and far apart. So every call beyond them is put to
the oracle. It chooses no number of windows and reads no times: ``clock.py`` does.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from kerneleval.devices import typed_view
from kerneleval.judge.oracle.expectation import TimedBounds, is_eight_bit, same
from kerneleval.judge.windows.buffers import WindowBuffer, WindowLayout
from kerneleval.judge.windows.protocol import CallMode, Cut, Runner, Window, output_views
from kerneleval.records import DTYPES
from kerneleval.worker.host import WorkerError, WorkerFailure
from kerneleval.worker.waiting import TimeLimit

T = TypeVar("T")

_COMPARE_BYTES, _COMPARE_HOST_BYTES = 256 << 20, 4 << 20
"""Outputs are compared in parts of about this size: the comparison needs several times as much for itself. On a host
what is larger has new pages each time: 64 outputs of 976 x 514 took 41 ms in parts of 4 MiB and 108 in one."""


_BASELINE = TimeLimit(120.0)
"""How long a window of the baseline may take, which is trusted: one may compile."""

_TELLING = 256
"""Elements of an output that is drawn which are equal under two seeds by no chance, be they flags."""


CANDIDATE = -1
"""The candidate's number in the order of windows; the baseline's processes have 0 and 1."""


class TimedMismatch(Exception):  # noqa: N818 - an outcome, not an error
    """An output of a timed window differs from the baseline's beyond the bound."""

    def __init__(
        self, message: str, evidence: dict[str, Any], calls: Sequence[int] = (), reason: str = "wrong_output"
    ) -> None:
        super().__init__(message)
        self.evidence, self.reason = evidence, reason
        self.calls = tuple(calls)
        """Calls of the window that differ; empty: it is not about single calls."""


class CutMismatch(TimedMismatch):
    """An output of a window that was cut in two is wrong."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedCall:
    """What one call of a timed window was given and what the candidate made of it."""

    tensors: list[torch.Tensor]
    """Copies of the revealed tensors, in the order of ``CallLayout.slots``."""
    outputs: tuple[torch.Tensor, ...]


Arbiter = Callable[[TimedCall], None]
"""Raises TimedMismatch if the oracle says that a call is wrong."""


def without_outputs(window: Window) -> Window:
    """The window's figures alone: the snapshots of many windows would fill the device."""
    return replace(window, outputs=window.outputs.new_empty(0))


def timed_call(window: Window, buffer: WindowBuffer, index: int) -> TimedCall:
    """Copies of what a call was given and made; the window's memory is used again."""
    tensors = [buffer.tensor(index, slot).clone() for slot in range(len(buffer.layout.calls[index].slots))]
    return TimedCall(tensors=tensors, outputs=tuple(o.clone() for o in output_views(window, buffer.layout, index)))


def verify(pair: tuple[Window, Window], buffer: WindowBuffer, bounds: TimedBounds, arbiter: Arbiter) -> None:
    """Compare the candidate's outputs with the baseline's; the oracle has the last word on every call that differs.

    Outputs that are drawn are put to the oracle at a call chosen in secret, and must differ wherever seeds do.
    """
    if (wrong := pair[0].wrong) is not None:
        raise TimedMismatch(f"{wrong.get('got')}, expected {wrong.get('want')}", dict(wrong))
    if math.isinf(bounds.relative_rms):
        _drawn(pair[0], buffer, arbiter)
        return
    try:
        _against_baseline(pair, buffer.layout, bounds)
    except TimedMismatch as mismatch:
        if not mismatch.calls:
            raise
        for index in secrets.SystemRandom().sample(mismatch.calls, len(mismatch.calls)):
            try:
                arbiter(timed_call(pair[0], buffer, index))
            except TimedMismatch as error:
                raise mismatch from error


def _drawn(window: Window, buffer: WindowBuffer, arbiter: Arbiter) -> None:
    layout = buffer.layout
    calls = range(len(layout.calls))
    arbiter(timed_call(window, buffer, secrets.choice(calls)))
    shape, dtype = layout.calls[0].outputs[0]
    numel = math.prod(shape)
    if numel < _TELLING:
        return
    rows = _stacked(window, layout, 0, dtype, numel).contiguous()
    kept = rows.view(torch.uint8).view(len(calls), -1)[:, : _TELLING * DTYPES[dtype]]
    different, seeds = len(torch.unique(kept, dim=0)), len({_seed(buffer, index) for index in calls})
    if different < seeds:
        message = f"in a timed window {len(calls)} calls with {seeds} seeds gave {different} different outputs"
        raise TimedMismatch(message, {"calls": len(calls), "seeds": seeds, "different": different})


def _seed(buffer: WindowBuffer, index: int) -> int:
    """That of one call: the only argument of a task that draws which is a single int64."""
    for place, slot in enumerate(buffer.layout.calls[index].slots):
        if slot.dtype == "int64" and math.prod(slot.shape) == 1:
            return int(buffer.tensor(index, place))
    return 0


def _against_baseline(pair: tuple[Window, Window], layout: WindowLayout, bounds: TimedBounds) -> None:
    mine, theirs = pair
    assert mine.output_offsets == theirs.output_offsets  # as Pair.both has it: rows of both are of the same calls
    numbers = sorted(range(len(layout.calls)), key=mine.output_offsets.__getitem__)
    wrong: list[tuple[int, int, float]] = []
    for index, (shape, dtype) in enumerate(layout.calls[0].outputs):
        numel = math.prod(shape)
        if numel == 0:
            continue
        got, want = _stacked(mine, layout, index, dtype, numel), _stacked(theirs, layout, index, dtype, numel)
        step = max(1, _most_bytes(got) // (numel * DTYPES[dtype]))
        for start in range(0, len(layout.calls), step):
            part = slice(start, start + step)
            errors = _compare(got[part], want[part], index, bounds)
            wrong += [(numbers[start + row], index, error) for row, error in errors.items()]
    if wrong:
        call, index, error = min(wrong)
        calls, alike = sorted({call for call, _, _ in wrong}), sorted(call for call, of, _ in wrong if of == index)
        count, bound = len(layout.calls), bounds.relative_rms
        raise TimedMismatch(
            f"in a timed window {len(alike)} of {count} calls gave a wrong output {index} "
            f"(call {call}: relative error {error:.3g}, bound {bound:.3g})",
            {"calls": alike[:16], "of": count, "output": index, "error": error, "bound": bound},
            calls,
        )


def _stacked(window: Window, layout: WindowLayout, index: int, dtype: str, numel: int) -> torch.Tensor:
    size = DTYPES[dtype]
    first = layout.output_offsets[0][index]
    stride = layout.calls[0].output_bytes // size
    return typed_view(window.outputs, getattr(torch, dtype), (len(layout.calls), numel), (stride, 1), first // size)


def _compare(got: torch.Tensor, want: torch.Tensor, index: int, bounds: TimedBounds) -> dict[int, float]:
    """Rows (one for each call) that differ in an output, with their relative errors."""
    if not got.dtype.is_floating_point or is_eight_bit(got):
        different = (got != want).sum(dim=1)
        allowed = 0 if not got.dtype.is_signed else int(0.001 * got.shape[1])
        # integer outputs of float inputs (indices) may differ where the input ties; ties are rare in random data
        bad = different > allowed
        figures = torch.stack([different.float(), bad.float()])
    else:
        least = bounds.scale(index)
        rms, worst = _errors(got, want, least)
        if bool(((rms <= bounds.relative_rms) & (worst <= bounds.worst)).all()):
            return {}
        equal = same(got, want)  # NaN and infinities that both have are no error, and cost a closer look
        rms, worst = _errors(torch.where(equal, want, got).nan_to_num(), want.nan_to_num(), least)
        at_same_places = (equal | (got.isfinite() & want.isfinite())).all(dim=1)
        bad = ~((rms <= bounds.relative_rms) & (worst <= bounds.worst)) | ~at_same_places
        figures = torch.stack([torch.where(bad, rms, torch.zeros_like(rms)), bad.float()])
    errors, flags = figures.cpu().tolist()
    return {row: errors[row] for row, flag in enumerate(flags) if flag}


def _errors(got: torch.Tensor, want: torch.Tensor, least: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Per row: rms of the difference and its largest magnitude, both over the rms of ``want``, taken as ``least``."""
    rows, numel = got.shape
    width = max(1, _most_bytes(got) // (4 * rows))
    parts = []
    for mine, theirs in zip(got.split(width, dim=1), want.split(width, dim=1), strict=True):
        wide = theirs.float()
        difference = mine.float() - wide
        norms = [torch.linalg.vector_norm(one, dim=1) for one in (wide, difference)]
        if got.device.type == "cpu":  # where the norm of infinite order takes thirty times as long
            norms.append(difference.abs_().amax(dim=1))
        else:
            norms.append(torch.linalg.vector_norm(difference, math.inf, dim=1))
        parts.append(torch.stack(norms))
    of_want, of_difference, largest = torch.stack(parts, dim=1)
    norm = torch.linalg.vector_norm(of_want, dim=0).clamp_min(max(least * math.sqrt(numel), 1e-30))
    return torch.linalg.vector_norm(of_difference, dim=0) / norm, largest.amax(dim=0) / norm * math.sqrt(numel)


def _most_bytes(outputs: torch.Tensor) -> int:
    return _COMPARE_HOST_BYTES if outputs.device.type == "cpu" else _COMPARE_BYTES


class BaselineError(Exception):
    """The trusted baseline failed in a window: the machine is at fault, not the candidate."""


class BaselineSide:
    """The runner of the baseline's worker; a failure in it becomes a BaselineError."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        runner.trusted = True

    @property
    def launches(self) -> float:
        """As :attr:`Runner.launches`."""
        return self._runner.launches

    @contextlib.contextmanager
    def aside(self, *, rest: bool) -> Iterator[None]:
        """As :meth:`Runner.aside`; what the block raises is not the baseline's."""
        stack = contextlib.ExitStack()
        with _blamed_on_the_machine():
            stack.enter_context(self._runner.aside(rest=rest))
        try:
            yield
        finally:
            with _blamed_on_the_machine():
                stack.close()

    def begin_preparing(self, layout: WindowLayout) -> Callable[[], None]:
        """As :meth:`Runner.begin_preparing`."""
        with _blamed_on_the_machine():
            return _blamed(self._runner.begin_preparing(layout))

    def window(self, buffer: WindowBuffer, **options: Any) -> Window:
        """As :meth:`Runner.window`."""
        with _blamed_on_the_machine():
            return self._runner.window(buffer, **options)

    def begin_recording(self, **options: Any) -> Callable[[], str]:
        """As :meth:`Runner.begin_recording`."""
        with _blamed_on_the_machine():
            return _blamed(self._runner.begin_recording(**options))


@contextlib.contextmanager
def _blamed_on_the_machine() -> Iterator[None]:
    try:
        yield
    except (WorkerError, WorkerFailure) as error:
        raise BaselineError(str(error)) from error


def _blamed(wait: Callable[[], T]) -> Callable[[], T]:
    def waited() -> T:
        with _blamed_on_the_machine():
            return wait()

    return waited


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The workers of one session."""

    candidate: Runner
    baselines: tuple[BaselineSide, ...]
    """Processes of the baseline, one or two: how far two are apart says how far equal code looks apart now."""
    candidate_first: bool
    """Whose memory is allocated first: where it lies decides up to 1 % of a kernel's time."""
    generator: torch.Generator
    limit: TimeLimit
    """How long the first window of the candidate may take; no later one compiles."""
    compiles: bool = False
    """Whether these windows are the first."""
    gradient_alone: bool = False
    """Whether the baseline's forward calls are made before the clock starts."""
    rests: bool = False
    """Whether the device must be at rest before windows of the baseline."""
    recorded: bool = False
    """Whether calls are launched as they were recorded: their device time, without what the host has to do."""

    @property
    def baseline(self) -> BaselineSide:
        """The baseline's process that does what one alone does."""
        return self.baselines[0]

    @property
    def sides(self) -> tuple[Runner | BaselineSide, ...]:
        """All, in the order in which they allocate."""
        return (self.candidate, *self.baselines) if self.candidate_first else (*self.baselines, self.candidate)

    def prepare(self, layout: WindowLayout) -> None:
        """Tell all processes, at once, the layout of the coming windows."""
        self._at_once(lambda runner: runner.begin_preparing(layout))

    def record(self) -> str:
        """Have the prepared calls of all recorded, at once; why they cannot be, empty: they are."""

        def begin(runner: Runner | BaselineSide) -> Callable[[], str]:
            alone = self.gradient_alone and runner is not self.candidate
            return runner.begin_recording(gradient_alone=alone, timeout_s=self._limit(runner).calls_s)

        for runner, refused in zip(self.sides, self._at_once(begin), strict=True):
            if refused:
                name = "candidate" if runner is self.candidate else "baseline"
                return f"the {name} cannot be recorded: {refused}"
        return ""

    @property
    def launches(self) -> tuple[float, float]:
        """Kernels of one recorded call of the candidate, by its worker's word, and of the baseline."""
        return self.candidate.launches, self.baseline.launches

    def _at_once(self, begin: Callable[[Runner | BaselineSide], Callable[[], T]]) -> list[T]:
        """Begin something in all processes, wait until it is done in each, and only then raise what one of them had."""
        waits, done, errors = list[Callable[[], T]](), list[T](), list[Exception]()
        for runner in self.sides:
            try:
                waits.append(begin(runner))
            except Exception as error:  # noqa: BLE001 - the answers of those that have begun are read first
                errors.append(error)
                break
        for wait in waits:
            try:
                done.append(wait())
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        if errors:
            raise errors[0]
        return done

    def alone(self, runner: Runner | BaselineSide, buffer: WindowBuffer, **options: Any) -> Window:
        """A window of one side; all others stand still meanwhile: what they do could slow it down."""
        usual: dict[str, Any] = {"check_mutation": False, "timed": True}
        gradient_alone = self.gradient_alone and runner is not self.candidate
        if gradient_alone or self.recorded:
            usual["mode"] = CallMode(gradient_alone=gradient_alone, recorded=self.recorded)
        with contextlib.ExitStack() as stack:
            for other in self.sides:
                if other is not runner:
                    stack.enter_context(other.aside(rest=self.rests))
            return runner.window(buffer, limit=self._limit(runner), **(usual | options))

    def once(self, runner: Runner | BaselineSide, buffer: WindowBuffer, **options: Any) -> Window:
        """A window on new content."""
        buffer.refresh(self.generator)
        return self.alone(runner, buffer, **options)

    def one_each(self, buffer: WindowBuffer, *, keep: int = -1) -> tuple[Window, Window]:
        """(candidate's, baseline's) window on the same new content."""
        buffer.refresh(self.generator)
        return self.both(buffer, candidate_first=self.candidate_first, keep=keep)

    def twins(self, buffer: WindowBuffer) -> None:
        """A window of every other process of the baseline, on the content of the last one."""
        for twin in self.baselines[1:]:
            self.alone(twin, buffer)

    def first_calls(self, buffer: WindowBuffer) -> tuple[Window, Window]:
        """Windows that may compile, load or tune. The candidate's worker holds its outputs from now on."""
        windows = replace(self, compiles=True).one_each(buffer, keep=0)
        self.twins(buffer)
        return windows

    def _limit(self, runner: Runner | BaselineSide) -> TimeLimit:
        if runner is not self.candidate:
            return _BASELINE
        return self.limit if self.compiles else TimeLimit(self.limit.calls_s)

    def both(self, buffer: WindowBuffer, *, candidate_first: bool, keep: int = -1) -> tuple[Window, Window]:
        """(candidate's, baseline's) window on the same content, run in the order asked for; ``keep``: see
        :meth:`in_turn`.
        """
        windows = self.in_turn(buffer, (CANDIDATE, 0) if candidate_first else (0, CANDIDATE), keep=keep)
        return windows[CANDIDATE], windows[0]

    def in_turn(
        self, buffer: WindowBuffer, order: Sequence[int], *, look: bool = False, keep: int = -1, cut: Cut | None = None
    ) -> dict[int, Window]:
        """Windows on the same content, one after another: of :data:`CANDIDATE`, and of the baseline's processes by
        their numbers, of which the first alone has its outputs. ``look``: whether the candidate changes its inputs is
        looked at; ``keep``: the call whose outputs its worker holds from now on; ``cut``: where the candidate's window
        is cut.
        """
        places = buffer.layout.shuffled_output_offsets()  # the same ones, so that outputs lie side by side
        windows = dict[int, Window]()
        for side in order:
            if side == CANDIDATE:
                options = {"check_mutation": look, "keep": keep, "cut": cut, "places": places}
                windows[side] = self.alone(self.candidate, buffer, **options)
                continue
            theirs = self.alone(self.baselines[side], buffer, places=places)
            known = any(other != CANDIDATE for other in windows)  # the outputs of one are enough to compare with
            windows[side] = without_outputs(theirs) if known else theirs
        return windows

    def warm(self, buffer: WindowBuffer, windows: int, seconds: float, offer: Callable[[], float]) -> None:
        """Windows of all until two consecutive ones of each agree within 1 %, or there were so many, or for so long
        each; ``offer`` is called between them, and its seconds are not counted.
        """
        for runner in self.sides:
            last, ends = 0.0, time.monotonic() + seconds
            for _ in range(windows):
                ends += offer()
                if time.monotonic() > ends:
                    break
                now = self.once(runner, buffer).elapsed_ns
                if last and abs(now / last - 1) < 0.01:
                    break
                last = now

    def cut(self, buffer: WindowBuffer, bounds: TimedBounds, arbiter: Arbiter, order: Sequence[int]) -> None:
        """A window cut at a secret call, not timed: a candidate that computes calls ahead of their turn, or puts them
        off to a later one, is wrong there.

        The same windows come before it as before any other, and what lies in the place of the later calls' inputs is as
        new. It comes later by the time in which those are drawn once more (``docs/threat-model.md``).

        Args:
            order: as :meth:`in_turn` has it. A window makes the next ones of its process faster: when some were left
                out, calls of equal code looked 2 % shorter (H200). So all sides have theirs; but recorded calls need
                nothing of a process but their launch, and windows after the candidate's are left out.

        Raises:
            CutMismatch: an output was wrong.
        """
        count = len(buffer.layout.calls)
        if count < 2:
            return
        at = 1 + secrets.randbelow(count - 1)
        buffer.refresh(self.generator)
        cut = Cut(at=at, before=buffer.copy_of_later(at))
        buffer.refresh(self.generator, at)
        if self.recorded:  # what precedes the candidate's window is as ever; of what follows, one is enough
            order = order[: max(2, order.index(CANDIDATE) + 1)]
        try:
            windows = self.in_turn(buffer, order, cut=cut)
            mine = windows.pop(CANDIDATE)
            verify((mine, next(iter(windows.values()))), buffer, bounds, arbiter)
        except TimedMismatch as error:
            raise CutMismatch(str(error), error.evidence, error.calls, error.reason) from error
