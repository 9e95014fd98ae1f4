"""Correctness of one candidate, case by case, in commit-reveal windows: at planned cases and at secret sizes.

``CellJudge.judge`` is where a case's outcome is decided; ``repeats.py`` has the windows with something changed. Cases
at secret sizes are drawn anew for every check (``tasks/shapes.py``), because a candidate could have a table of
the plan's; they are no cells of its verdict. Nothing is timed here: ``timing`` does that, for cases that passed.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import cast

import torch

from kerneleval import languages
from kerneleval.devices import Device
from kerneleval.devices.cpu import own_threads
from kerneleval.judge.probes.calls import BoundCase, Calibrated, Calls, Drawn, mutation, other_scalars, with_names
from kerneleval.judge.probes.far import FarOffsets, room_bytes
from kerneleval.judge.probes.repeats import OtherLayouts, OtherWeights, Repeats, computes, exchanged_call, is_plain
from kerneleval.judge.probes.void import void
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.protocol import claimed, output_views, place, raised
from kerneleval.judge.windows.worker_pool import BuildFailed
from kerneleval.records import (
    FAR,
    SHAPE_CATEGORIES,
    Case,
    Failed,
    Finding,
    InfrastructureError,
    NotJudgedError,
    Outcome,
    Passed,
    Reason,
    Task,
    TensorSpec,
    new_secret,
)
from kerneleval.tasks.far_offsets import far_bytes, far_cases, is_far
from kerneleval.tasks.formats.problem_file import is_of_constructor
from kerneleval.tasks.secret_sizes import other_ranks, secret_cases
from kerneleval.tasks.shapes import Budget, is_timed
from kerneleval.tasks.special_sizes import beyond_16_bits
from kerneleval.worker.host import WorkerError, WorkerFailure

_MOST_CRASHES = 3
"""Workers that a candidate may lose; after the last one no further case is run."""

_MOST_LOST_S = 5.0
"""Seconds that workers may take to die, in all: one that takes memory up to its limit needs seconds."""

_HELD_BYTES = 64 << 20
"""Bytes of arguments and outputs of all cases that :class:`Prefetch` holds at a time."""

_VECTOR = 16
"""Elements that a vector, or the smallest block, may hold."""

_PREFETCH_BYTES = 8 << 20
"""Bytes of arguments and outputs up to which a case is prefetched; the oracle holds several times as much."""


class CellJudge:
    """Judges the cases of one loaded candidate; starts a new worker after a crash.

    Args:
        prefetch: has some of the cases drawn.
    """

    def __init__(self, calls: Calls, prefetch: Prefetch | None = None) -> None:
        self.calls, self._prefetch = calls, prefetch
        self.weak: list[Finding] = []
        """Warnings that a pass of this task says little."""
        self._given_up: Failed | None = None
        self._without_gradient: set[Case] = set()
        """Cases whose forward result carried no gradient."""
        self._repeats = Repeats(calls)
        self._other_layouts = OtherLayouts(calls, self._repeats)
        self._other_weights = OtherWeights(calls)
        language = languages.find(calls.loaded.candidate.language)
        self._unsupported_dtypes = language.unsupported_dtypes(calls.device.name)

    def judge(self, case: Case) -> Outcome:
        """The outcome of one case, not timed."""
        outcome = self._judged(case)
        return with_names(outcome, self.calls.task, case) if isinstance(outcome, Failed) else outcome

    def _judged(self, case: Case) -> Outcome:
        self._other_layouts.under_way = False
        if (known := self._known(case)) is not None:
            return known
        try:
            with own_threads(self.calls.task.bytes(case.dims_map, case.dtype)):
                return FarOffsets(self.calls).judge(case) if is_far(self.calls.task, case) else self._judge(case)
        except (WorkerError, WorkerFailure, BuildFailed) as error:
            failed = self._failure(case, error)
            return self._other_layouts.explained(failed) if failed.reason == "unsupported" else failed
        finally:
            self.calls.device.trim()

    @contextmanager
    def drawn_ahead(self, scalars: Mapping[Case, Mapping[str, float]]) -> Iterator[None]:
        """Inside the block these cases are drawn ahead, with plain arguments that get other values by name."""
        calls = self.calls

        def bind(case: Case) -> BoundCase:
            return BoundCase(calls.task, case, calls.device, tf32=calls.protocol.tf32, scalars=scalars[case])

        self._prefetch = Prefetch(calls.task, calls.device, bind)
        with self._prefetch.over(tuple(scalars)):
            yield

    def begin(self, cases: Sequence[Case]) -> dict[Case, Outcome]:
        """These cases with their outcomes, up to the first that the candidate supports."""
        outcomes: dict[Case, Outcome] = {}
        for case in cases:
            outcomes[case] = outcome = self.judge(case)
            if not isinstance(outcome, Failed) or outcome.reason != "unsupported":
                break
        return outcomes

    @property
    def gave_up(self) -> bool:
        """Whether the candidate is called no more."""
        return self._given_up is not None

    def go_on(self) -> None:
        """Have a worker again where one was given up."""
        if self.gave_up:
            self._given_up = None
            with suppress(BuildFailed):
                self.calls.loaded.revive()

    @property
    def in_other_layouts(self) -> bool:
        """Whether the case that was judged last got as far as the windows in other layouts."""
        return self._other_layouts.under_way

    def missing_gradients(self, outcomes: Mapping[Case, Outcome]) -> dict[Case, Outcome]:
        """The backward cases whose result carried no gradient, though results of others of the dtype did: such a
        candidate has a backward, and trains nothing there. Empty cases, where there is nothing to train, aside.
        """
        right = {(case.direction, case.dtype) for case, outcome in outcomes.items() if isinstance(outcome, Passed)}
        text = "the forward result carries no gradient here, and does in other backward cases of this dtype"
        return {
            case: Failed(stage="correctness", reason="missing_gradient", message=text)
            for case, outcome in outcomes.items()
            if isinstance(outcome, Failed)
            and outcome.reason == "unsupported"
            and case in self._without_gradient
            and (case.direction, case.dtype) in right
            and not self.calls.task.is_empty(case.dims_map)
        }

    def native_failures(self, outcomes: Mapping[Case, Outcome]) -> list[Finding]:
        """A finding about the calls in which PyTorch itself is wrong, or raises; none where there are none."""
        found = self._other_layouts.native_is_wrong
        where = [case.key for case in outcomes if case in found]
        if not where:
            return []
        text = (
            f"{sum(found[case] for case in outcomes if case in found)} calls in {len(where)} cells say nothing about "
            f"the candidate: PyTorch itself is wrong there, or raises; first at {where[0]}"
        )
        return [Finding(check="reference", level="info", message=text)]

    def answered(self, bound: BoundCase, drawn: Drawn) -> tuple[torch.Tensor, ...] | Failed:
        """The candidate's outputs, on the host and not compared, for one call whose inputs any device may have drawn;
        or why there are none of the right form.
        """
        calls = self.calls
        if (known := self._known(bound.case)) is not None:
            return known
        try:
            if bound.weights is not None:
                calls.ensure_module(calls.loaded, bound.case)
                reveal_weights(calls.loaded, bound.weights)
            window, layout = calls.call(bound, [drawn], look=True)
        except (WorkerError, WorkerFailure, BuildFailed) as error:
            return self._failure(bound.case, error)
        finally:
            calls.device.trim()
        if window.wrong is not None:
            return claimed(window.wrong)
        if window.mutated and not calls.task.in_place:
            return mutation(window.mutated)
        return tuple(view.to("cpu", copy=True) for view in output_views(window, layout, 0))

    def _known(self, case: Case) -> Failed | None:
        if case.dtype in self._unsupported_dtypes:
            language, device = self.calls.loaded.candidate.language, self.calls.device.name
            text = f"{language} cannot be judged in {case.dtype} on {device}"
            return Failed(stage="load", reason="unsupported", message=text)
        if self._given_up is not None:
            return replace(self._given_up, message=f"{NOT_RUN}: {self._given_up.message}", evidence={})
        return None

    def _judge(self, case: Case) -> Outcome:
        bound, first = self._first_call(case)
        strided = bound.problem is not None and case.layout != "contiguous"
        if strided and not bound.native_is_right(first, bound.call_layout(first)):
            raise NotJudgedError(f"{case.key}: the reference itself takes no {case.layout} inputs")
        if bound.problem is not None and case.distribution == "standard" and case.layout == "contiguous":
            self.weak += [finding for finding in void(bound) if finding not in self.weak]
        if self._repeats.ordinary(case, bound.call_layout(first)):
            outcome = self._repeats.judge(bound, first)
        else:
            outcome = self.calls.window(bound, [first])
            if isinstance(outcome, Passed):
                outcome = self._repeats.strided(bound, first) or outcome
            if isinstance(outcome, Passed):
                outcome = self._other_layouts.judge(bound, first, outcome)
        if not isinstance(outcome, Passed):
            return outcome
        timed = is_timed(case, self.calls.task, self.calls.protocol)  # then thousands of outputs are compared
        bounds = (first.expectation.widest if timed else first.expectation).timed
        whole = enumerate(first.args) if timed and self.calls.task.module else ()
        calibrated = Calibrated(
            call_layout=bound.call_layout(first),
            bounds=bounds,
            whole={i: a for i, a in whole if isinstance(a, torch.Tensor) and not computes(a)},
        )
        if self.calls.task.module and case.layout == "contiguous":
            del first  # with its expectation five times the output: the next windows need the room
            outcome = self._other_weights.judge(case, bound)
        if isinstance(outcome, Passed):
            self.calls.calibration[case] = calibrated
        return outcome

    def _first_call(self, case: Case) -> tuple[BoundCase, Drawn]:
        """The case bound and its first call drawn."""
        if self._prefetch is not None and (drawn := self._prefetch.take(case)) is not None:
            return drawn
        bound = self.calls.bind(case)
        return bound, bound.draw(new_secret())

    def _failure(self, case: Case, error: WorkerError | WorkerFailure | BuildFailed) -> Failed:
        if isinstance(error, BuildFailed):
            if error.reason == "timeout":  # making another module would take as long
                self._given_up = error.outcome()
            if error.reason == "load_error" and is_beyond_its_file(self.calls.task, case):
                return Failed(stage="call", reason="unsupported", message=str(error)[:500])
            return error.outcome()
        if isinstance(error, WorkerFailure):
            return self._gone(error)
        if error.kind == "NoGradientError":
            self._without_gradient.add(case)
        outcome = raised(error)
        if error.kind == "TypeError" and "positional argument" in str(error) and not place(error):
            names = ", ".join(spec.name for spec in self.calls.bind(case).specs)
            outcome = replace(outcome, message=outcome.message + f"; it is called with {names}" * bool(names))
        if outcome.reason == "exception" and bound_to_one_layout(self.calls.task, case):
            return replace(outcome, reason="unsupported", message=f"{case.layout} inputs: {outcome.message}"[:500])
        if outcome.reason == "exception" and is_beyond_its_file(self.calls.task, case):
            return replace(outcome, reason="unsupported", message=outcome.message[:500])
        return (self._refused(case) or outcome) if outcome.reason == "unsupported" else outcome

    def _refused(self, case: Case) -> Failed | None:
        """The outcome of a case that is declared unsupported for its values alone; None: also standard values are.

        Support may depend on shapes, dtypes and strides. A candidate that raises where it would be wrong has looked at
        its inputs first.
        """
        if case.distribution == "standard":
            return None
        layouts = self.calls.last_layouts
        bound = self.calls.bind(replace(case, distribution="standard"))
        drawn = bound.draw(new_secret())
        try:
            self.calls.call(bound, [drawn] * len(layouts), look=False, layouts=layouts)
        except WorkerError:
            return None
        except WorkerFailure as failure:
            return self._gone(failure)
        message = f"it declares {case.distribution} values unsupported, and takes standard ones of the same form"
        return Failed(stage="call", reason="refuses_values", message=message, evidence={})

    def _gone(self, failure: WorkerFailure) -> Failed:
        """The outcome of a call that the worker did not survive. There is a new worker then, unless this one hung
        (waiting again would cost as much), died too often or too slowly, or loads no more.
        """
        outcome = Failed(stage="call", reason=failure.reason, message=str(failure), evidence=failure.evidence)
        loaded = self.calls.loaded
        died_enough = loaded.crashes + 1 >= _MOST_CRASHES or self.calls.lost_s > _MOST_LOST_S
        if failure.reason == "timeout" or died_enough:
            self._given_up = outcome
            return outcome
        try:
            loaded.revive()
        except BuildFailed as error:
            self._given_up = error.outcome()
        return outcome


def bound_to_one_layout(task: Task, case: Case) -> bool:
    """Whether a candidate may raise there: no problem file promises inputs that are not contiguous."""
    return task.module and case.layout != "contiguous"


def is_beyond_its_file(task: Task, case: Case) -> bool:
    """Whether a constructor gets other numbers than the problem file's own, or some inputs are empty: no file promises
    that, so a candidate may raise there.
    """
    own = dict(task.case_dims[0][1]) if task.module and task.case_dims else {}
    others = [(name, value) for name, value in case.dims if own and own.get(name) != value]
    return any(not value or is_of_constructor(name) for name, value in others)


@dataclass(frozen=True)
class _Ahead:
    """What a thread makes of one case."""

    drawn: Future[tuple[BoundCase, Drawn]]
    exchanged: Future[Drawn | None] | None

    def cancel(self) -> bool:
        """Whether nothing of it had begun, and nothing will."""
        if self.exchanged is not None:
            self.exchanged.cancel()
        return self.drawn.cancel()

    def result(self) -> tuple[BoundCase, Drawn]:
        bound, drawn = self.drawn.result()
        bound.exchanged = self.exchanged.result if self.exchanged is not None else None
        return bound, drawn


class Prefetch:
    """First calls of cases, and on an accelerator those with exchanged elements too, drawn with their expectations in
    one thread: while the candidate is loaded, and on an accelerator beside its calls. On a host what is not begun by
    then is drawn in its turn.

    Only operators' small cases are drawn ahead: weights of module problems are revealed to the worker when a case is
    bound, and large tensors fill the device.

    Args:
        bind: the case, ready to be drawn; called in the thread.
    """

    def __init__(self, task: Task, device: Device, bind: Callable[[Case], BoundCase]) -> None:
        self._task, self._bind = task, bind
        # where stopping a worker stops its work, it computes on the processors that drawing would take from it
        self._beside_calls = not device.pauses
        self._coming: deque[Case] = deque()
        self._position: dict[Case, int] = {}
        self._begins: frozenset[Case] = frozenset()
        self._drawn: dict[Case, _Ahead] = {}
        self._thread: ThreadPoolExecutor | None = None

    @contextmanager
    def over(self, cases: Sequence[Case], begins: Sequence[Case] = ()) -> Iterator[None]:
        """Draw these cases ahead inside the block, first those that may be taken before their turn; nothing is being
        drawn or held when it is left.
        """
        if self._task.module:
            yield
            return
        self._begins = frozenset(begins)
        self._coming.extend([*begins, *(case for case in cases if case not in self._begins)])
        self._position = {case: position for position, case in enumerate(cases)}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        try:
            self._go_on()
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Draw no more, and hold nothing."""
        self._coming.clear()
        self._position.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            self._thread = None
        self._drawn.clear()

    def take(self, case: Case) -> tuple[BoundCase, Drawn] | None:
        """The case bound and its first call; None: it was not drawn ahead.

        Raises:
            UsageError: as in :meth:`BoundCase.draw`.
        """
        if not self._beside_calls:
            self._coming.clear()
            self._drawn = {case: ahead for case, ahead in self._drawn.items() if not ahead.cancel()}
        ahead = self._drawn.pop(case, None)
        if case not in self._begins:
            self._drop_before(case)
        self._go_on()
        if ahead is not None:
            with suppress(InfrastructureError, torch.OutOfMemoryError):  # memory that was taken then may be free now
                return ahead.result()
        return None

    def _drop_before(self, case: Case) -> None:
        """Drop the cases before this one: they were left out."""
        position = self._position.get(case, -1)
        while self._coming and self._position[self._coming[0]] <= position:
            self._coming.popleft()
        for held in [held for held in self._drawn if self._position[held] < position]:
            self._drawn.pop(held).cancel()

    def _go_on(self) -> None:
        room = _HELD_BYTES - sum(self._bytes(c) * (1 + (a.exchanged is not None)) for c, a in self._drawn.items())
        while self._thread is not None and self._coming and room > 0:
            case = self._coming.popleft()
            if (nbytes := self._bytes(case)) <= _PREFETCH_BYTES:
                drawn = self._thread.submit(self._draw, case)
                twice = self._beside_calls and is_plain(case)
                self._drawn[case] = _Ahead(drawn, self._thread.submit(self._exchange, case, drawn) if twice else None)
                room -= (1 + twice) * nbytes

    def _bytes(self, case: Case) -> int:
        return self._task.bytes(case.dims_map, case.dtype)

    def _draw(self, case: Case) -> tuple[BoundCase, Drawn]:
        with own_threads(self._bytes(case)):
            bound = self._bind(case)
            return bound, bound.draw(new_secret())

    def _exchange(self, case: Case, drawn: Future[tuple[BoundCase, Drawn]]) -> Drawn | None:
        with own_threads(self._bytes(case)):
            return exchanged_call(*drawn.result())


def opening(task: Task, planned: Sequence[Case]) -> list[Case]:
    """Planned cases with which a candidate's process may begin, chosen in secret: one of each dtype, in a secret order,
    most often one whose elements blocks divide. None for problem files, and where a single case is judged.

    A candidate may keep the dtype of its first call, or that a vector divided its size, and go by that ever after. The
    plan begins with the same case each time.
    """
    if task.module or len(planned) < 2:
        return []
    chance, found = secrets.SystemRandom(), []
    plain = [
        case
        for case in planned
        if (case.direction, case.layout, case.distribution) == (planned[0].direction, "contiguous", "standard")
        and case.shape_category in SHAPE_CATEGORIES
        and task.bytes(case.dims_map, case.dtype) <= _PREFETCH_BYTES
    ]
    for dtype in {case.dtype for case in plain}:
        alike = [case for case in plain if case.dtype == dtype]
        divided = [case for case in alike if _elements(task, case) % _VECTOR == 0]
        found.append(chance.choice(divided if divided and chance.randrange(4) else alike))
    return chance.sample(found, len(found))


NOT_RUN = "not run after"
"""How the message of a case begins that was not called, because an earlier one ended the candidate."""

_CHECK = "secret_shapes"
_FAR_CHECK = "far_offsets"

TWO_LARGE = {"quick": 2, "standard": 4, "precise": 4}
"""By tier, secret cases of two large dims in each direction."""

_LONG_ROWS_ONE_IN = 4
"""One in so many checks of the quick tier has rows of more than 65,535 elements, where they are compiled for."""

LineOf = Callable[[Case, str], str]
"""(case, stage at which it failed) -> the command line that judges it again."""


def secret_shapes(judge: CellJudge, planned: Mapping[Case, Outcome], budget: Budget, line_of: LineOf) -> list[Finding]:
    """Findings at secret sizes; none where a planned case is already wrong or where sizes are not free.

    A candidate may leave sizes out, but then it does so among the planned ones too.
    """
    if any(_wrong(outcome) for outcome in planned.values()):
        return []
    calls = judge.calls
    large = TWO_LARGE[calls.protocol.tier]
    taken = {(c.direction, c.dtype) for c, outcome in planned.items() if not isinstance(outcome, Failed)}
    of_taken = tuple(c for c in planned if (c.direction, c.dtype) in taken)
    cases = secret_cases(calls.task, tuple(planned), budget, large=large)
    language = languages.find(calls.loaded.candidate.language)
    if no_long_rows(calls.protocol.tier, language, calls.device):
        cases = tuple(case for case in cases if not beyond_16_bits(calls.task, case))
    cases = (*cases, *other_ranks(calls.task, of_taken, budget))
    scalars = {case: other_scalars(calls.task, case, larger=bool(number % 2)) for number, case in enumerate(cases)}
    with judge.drawn_ahead(scalars):
        return _at_secret_sizes(judge, planned, scalars, line_of)


def _at_secret_sizes(
    judge: CellJudge, planned: Mapping[Case, Outcome], scalars: Mapping[Case, dict[str, float]], line_of: LineOf
) -> list[Finding]:
    """Findings at these cases, up to the first that is wrong; ``scalars``: other values of their plain arguments."""
    calls = judge.calls
    right: list[Case] = []
    refused: dict[int, str] = {}
    for case, values in scalars.items():
        calls.scalars = values
        others = "".join(f", {name}={value:g}" for name, value in values.items())
        try:
            outcome = judge.judge(case)
        finally:
            calls.scalars = {}
        calls.calibration.pop(case, None)
        if not isinstance(outcome, Failed):
            right.append(case)
            continue
        if case.folds and _raises(outcome):
            refused.setdefault(_rank(calls.task, case), outcome.message)
            continue
        planned_here = [o for c, o in planned.items() if (c.direction, c.dtype) == (case.direction, case.dtype)]
        if _wrong(outcome):
            return [_failure(case, others, outcome.stage, cast("Reason", outcome.reason), outcome.message, line_of)]
        if judge.in_other_layouts:
            continue  # which part is contiguous is drawn: the planned cases may have met no pair that it refuses
        if not any(isinstance(o, Failed) for o in planned_here) and _among_taken(case, planned):
            message = f"supports every planned size but not this one: {outcome.message}"
            return [_failure(case, others, outcome.stage, "hard_coded_shapes", message, line_of)]
    findings = [_refusing(calls.task, refused)] if refused else []
    return findings + ([_right_at(calls.task, right)] if right else [])


def no_long_rows(tier: str, language: languages.Language, device: Device) -> bool:
    """Whether this check has no rows beyond 16 bits: three of four in the quick tier, where kernels are compiled for
    them. A Triton block of 131,072 elements takes 43 s with four warps and 2 s with sixteen (Triton 3.7.1, one
    processor, for sm_90), in each direction; all the rest of such a verdict takes some 12 s.
    """
    compiled = language.compiles_by_length and not device.pauses
    return tier == "quick" and compiled and secrets.randbelow(_LONG_ROWS_ONE_IN) > 0


def _right_at(task: Task, cases: Sequence[Case]) -> Finding:
    """In how many cases, and from which to which size of each dim; the cases are evidence."""
    ends = {dim.name: [case.dims_map[dim.name] for case in cases] for dim in task.dims}
    sizes = ", ".join(f"{name} {min(found)} to {max(found)}" for name, found in ends.items())
    ranks = sorted({_rank(task, case) for case in cases if case.folds})
    message = f"right in {len(cases)} cases at sizes that are not in the plan: {sizes}"
    message += f"; arguments of {', '.join(map(str, ranks))} dims too" if ranks else ""
    return Finding(check=_CHECK, level="info", message=message, evidence={"cases": [case.key for case in cases]})


def _rank(task: Task, case: Case) -> int:
    """How many dims the first tensor has."""
    return next(len(arg.shape) for arg in task.arguments(case.dims_map, case.dtype) if isinstance(arg, TensorSpec))


def _elements(task: Task, case: Case) -> int:
    """How many elements the first tensor has; 1: there is none."""
    specs = task.arguments(case.dims_map, case.dtype)
    return next((arg.numel for arg in specs if isinstance(arg, TensorSpec)), 1)


def _refusing(task: Task, refused: Mapping[int, str]) -> Finding:
    """What to say of a candidate that raises at some numbers of dims: it is not wrong, since its caller sees that."""
    ranks = ", ".join(map(str, sorted(refused)))
    text = f"the candidate raises where the first argument has {ranks} dims ({_brief(next(iter(refused.values())))})"
    return Finding(check=_CHECK, level="warn", message=f"{text}; {task.table.folded_text}")


def far_offsets(judge: CellJudge, planned: Mapping[Case, Outcome], line_of: LineOf) -> list[Finding]:
    """Findings at offsets beyond 31 bits: the candidate is wrong there, refuses them, or was not judged there; none in
    the quick tier, and where a planned case is already wrong.
    """
    calls = judge.calls
    if calls.protocol.tier == "quick" or any(_wrong(outcome) for outcome in planned.values()):
        return []
    language, room = languages.find(calls.loaded.candidate.language), room_bytes(calls.device)
    findings = []
    for case in far_cases(calls.task, [c for c, outcome in planned.items() if isinstance(outcome, Passed)]):
        if case.layout == FAR and language.needs_build:
            continue  # it gets contiguous copies
        need, why = far_bytes(calls.task, case), ""
        if need > room:
            why = f"{need >> 30} GiB are needed, and {room >> 30} GiB may be taken here"
        elif case.layout != FAR and calls.device.pauses and not language.needs_build:
            why = "on processors so many elements are for native languages alone"
        if why:
            text = f"offsets beyond 31 bits were not evaluated at {case.key}: {why}"
            findings.append(Finding(check=_FAR_CHECK, level="info", message=text))
            continue
        outcome = judge.judge(case)
        if not isinstance(outcome, Failed):
            findings.append(Finding(check=_FAR_CHECK, level="info", message=f"right at {case.key}"))
        elif _raises(outcome) or outcome.reason in ("timeout", "memory_limit"):
            text = f"the candidate gives nothing where offsets exceed 31 bits, at {case.key}: {_brief(outcome.message)}"
            findings.append(Finding(check=_FAR_CHECK, level="warn", message=text))
            judge.go_on()
        else:
            found = _failure(case, "", outcome.stage, cast("Reason", outcome.reason), outcome.message, line_of)
            text = f"where offsets exceed 31 bits, {case.key}: {outcome.message}"
            return [*findings, replace(found, check=_FAR_CHECK, message=text)]
    return findings


def _brief(message: str) -> str:
    """The first line of an error's text."""
    return message.partition("\n")[0][:200]


def _raises(outcome: Failed) -> bool:
    """Whether it is one that a caller sees at once: no wrong result, and no process that died."""
    return outcome.reason == "unsupported" or (outcome.stage, outcome.reason) == ("call", "exception")


def _among_taken(case: Case, planned: Mapping[Case, Outcome]) -> bool:
    """Whether every dim is within what the candidate was seen to take in that direction: above that, and below, it may
    have limits that no planned size met.
    """
    taken = [c.dims_map for c, o in planned.items() if c.direction == case.direction and not isinstance(o, Failed)]
    sizes = {name: [dims[name] for dims in taken] or [0] for name, _ in case.dims}
    return all(min(sizes[name]) <= size <= max(sizes[name]) for name, size in case.dims)


def _wrong(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.reason != "unsupported"


def _failure(case: Case, others: str, stage: str, reason: Reason, message: str, line_of: LineOf) -> Finding:
    return Finding(
        check=_CHECK,
        level="fail",
        stage=stage,
        reason=reason,
        message=f"at sizes that are not in the plan, {case.key}{others}: {message}",
        replay=line_of(case, stage),
    )
