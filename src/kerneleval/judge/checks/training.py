"""What training asks beyond single gradients: outputs while autograd watches, several forward calls before the first
gradient, and gradients of some arguments alone.

A candidate knows that autograd is watching; without this check it could leave its outputs uncomputed then, be timed by
its gradients alone, and be wrong for everybody who trains with it. And what its backward needs it may keep in one place
for all calls, which is right for one layer and wrong for two.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.checks.track import chosen
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.probes.calls import BoundCase, Calls, Drawn
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout
from kerneleval.judge.windows.protocol import Window, output_views
from kerneleval.judge.windows.worker_pool import Loaded, baseline_candidate
from kerneleval.records import Case, Finding, Outcome, Reason, new_secret
from kerneleval.worker.host import WorkerError, WorkerFailure

_MOST_CALLS, _MOST_BYTES = 12, 16 << 20
"""Most forward calls before the first gradient, and the memory that their inputs and outputs may take."""

_APART = ("transposed", "sliced")
"""Layouts in which the elements of arguments, and of upstream gradients, do not follow one another."""

_FEW_ARGUMENTS = 4
"""Of so many arguments every part is asked for by itself."""


class _Wrong(NamedTuple):
    """What is wrong with outputs or gradients."""

    message: str
    alone: bool = False
    """Whether it is in an ordinary window as well, so that training is not the reason."""
    reason: Reason = "wrong_in_training"
    warns: bool = False
    """Whether it is a warning alone."""


@register
def training(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """Whether outputs and gradients are right in training."""
    backward = [c for c in chosen(cases, outcomes, calls.protocol.timed_dtypes) if c.direction == "backward"]
    looks: Mapping[str, _Look] = _LOOKS
    if calls.loaded.explicit_backward:  # autograd asks it for nothing
        looks = _EXPLICIT if "forward" in {c.direction for c in cases} else {}
    else:
        backward += _strided(calls, backward)
    right = []
    warned: set[str] = set()
    for case in backward:
        for words, look in looks.items():
            if words in warned:
                continue
            try:
                wrong = look(calls, case)
            except WorkerError as error:
                if not error.unsupported or (case.layout == "contiguous" and looks is _LOOKS):
                    raise
                break  # strided arguments, or a forward of sizes that only the backward entry point takes
            if wrong is not None and wrong.warns and not wrong.alone:
                warned.add(words)
                yield Finding(level="warn", message=f"{case.key}: {words}: {wrong.message}")
            elif wrong is not None:
                reason: Reason = "wrong_output" if wrong.alone else wrong.reason
                message = f"{case.key}: {wrong.message if wrong.alone else f'{words}: {wrong.message}'}"
                yield Finding(level="fail", stage="correctness", reason=reason, message=message)
                return
        else:
            right.append(case.key)
    if right and looks:
        text = "outputs are right while gradients are asked for"
        if looks is _EXPLICIT:
            text = "gradients are right when the forward was called on other inputs before"
        yield Finding(level="info", message=f"{text}, in {len(right)} cases", evidence={"cases": right})


def _strided(calls: Calls, cases: Sequence[Case]) -> list[Case]:
    """Of these cases, a secret one in each layout in which elements lie apart, if PyTorch itself is right there; none
    of problem files, which have no layouts.

    A candidate may have a path of its own for strided arguments while gradients are asked for.
    """
    found = []
    for layout in _APART:
        if calls.task.module or not cases or layout not in calls.task.layouts:
            continue
        case = replace(secrets.choice([c for c in cases if c.shape_category != "tiny"] or cases), layout=layout)
        bound = calls.bind(case)
        drawn = bound.draw(new_secret())
        if bound.native_is_right(drawn, bound.call_layout(drawn)):
            found.append(case)
    return found


def _forward_between(calls: Calls, case: Case) -> _Wrong | None:
    """Gradients by an entry point of their own, when the forward was called on other inputs of the same form since."""
    bound, forward = calls.bind(case), calls.bind(replace(case, direction="forward"))
    two = [bound.draw(new_secret()) for _ in range(2)]
    calls.call(forward, [forward.expect(one.args, []) for one in two], look=False)
    window, layout = calls.call(bound, two, look=False)
    return _first_wrong(window, layout, two)


def _outputs(calls: Calls, case: Case) -> _Wrong | None:
    wanted = calls.bind(case).wanted
    bound = calls.bind(replace(case, direction="forward"))
    two = [bound.draw(new_secret()) for _ in range(2)]
    drawn = [two[secrets.randbelow(2)] for _ in range(_count(calls, bound.call_layout(two[0])) - 2)] + two
    layout = WindowLayout([replace(bound.call_layout(one), wanted=wanted) for one in drawn], "training")
    window = _window(calls.loaded, calls, layout, drawn, look=True)
    if (wrong := _first_wrong(window, layout, drawn, lambda one: _wrong_alone(calls, bound, one))) is not None:
        return wrong
    return None if calls.task.in_place or not window.mutated else _Wrong(f"the call changed {window.mutated}")


def _interleaved(calls: Calls, case: Case) -> _Wrong | None:
    """Gradients that are taken when several forward calls have been made."""
    bound = calls.bind(case)
    two = [bound.draw(new_secret()) for _ in range(2)]
    # what the first one saved is what nothing may write over, and each takes back its own
    more = _count(calls, bound.call_layout(two[0])) - len(two)
    drawn = [*two, *(two[secrets.randbelow(2)] for _ in range(more))]
    ranks = _shuffled_ranks(len(drawn))
    layout = WindowLayout(
        [replace(bound.call_layout(one), gradient_rank=rank) for one, rank in zip(drawn, ranks, strict=True)],
        "interleaved",
    )
    window = _window(calls.loaded, calls, layout, drawn)
    return _first_wrong(window, layout, drawn, lambda one: _wrong_alone(calls, bound, one))


def _after_backward(calls: Calls, case: Case) -> _Wrong | None:
    """The outputs of a call that are read when its gradients have been taken."""
    if calls.task.in_place:
        return None
    bound, forward = calls.bind(case), calls.bind(replace(case, direction="forward"))
    drawn = bound.draw(new_secret())
    there = forward.expect(drawn.args, [])
    outputs = forward.call_layout(there).outputs
    layout = WindowLayout([replace(bound.call_layout(drawn), outputs=outputs)], "after_backward")
    window = _window(calls.loaded, calls, layout, [drawn])
    wrong = _first_wrong(window, layout, [there], lambda one: _wrong_alone(calls, forward, one))
    return wrong and wrong._replace(reason="output_overwritten")


def _backward_twice(calls: Calls, case: Case) -> _Wrong | None:
    """The gradients of a graph that is kept and gone through twice (``retain_graph=True``), each time with other
    upstream gradients. A backward pass may raise then. Wrong and missing gradients are a warning, as is the end of the
    process: published kernels write over what they saved, and few programs take gradients twice.
    """
    bound = calls.bind(case)
    drawn = bound.draw(new_secret())
    layout = WindowLayout([bound.call_layout(drawn)], "backward_twice")
    try:
        window = _window(calls.loaded, calls, layout, [drawn])
    except WorkerError as error:
        return _Wrong(str(error), warns=True) if error.kind == "MissingGradientError" else None
    except WorkerFailure as error:
        calls.loaded.revive()
        return _Wrong(str(error), warns=True)
    wrong = _first_wrong(window, layout, [drawn], lambda one: _wrong_alone(calls, bound, one))
    return wrong and wrong._replace(warns=True)


def _first_wrong(
    window: Window, layout: WindowLayout, drawn: Sequence[Drawn], alone: Callable[[Drawn], bool] = lambda _: False
) -> _Wrong | None:
    """The first call of a window that is wrong; ``alone`` says whether a call is so in an ordinary window too."""
    if window.wrong is not None:
        return _Wrong(str(window.wrong.get("got", "another form")))
    for index, one in enumerate(drawn):
        result = compare(output_views(window, layout, index), one.expectation)
        if isinstance(result, Mismatch):
            return _Wrong(result.message, alone=alone(one))
    return None


def _wrong_alone(calls: Calls, bound: BoundCase, drawn: Drawn) -> bool:
    """Whether the same call is wrong in an ordinary window too."""
    window, layout = calls.call(bound, [drawn], look=False)
    return isinstance(compare(output_views(window, layout, 0), drawn.expectation), Mismatch)


def _shuffled_ranks(count: int) -> list[int]:
    """A secret order of gradients: neither that of the forward calls nor its reverse, if there is another."""
    ranks = list(range(count))
    while count > 1:
        secrets.SystemRandom().shuffle(ranks)
        if count == 2 or sorted(ranks) not in (ranks, ranks[::-1]):
            break
    return ranks


def _some(calls: Calls, case: Case) -> _Wrong | None:
    """Gradients where only a part of the arguments asks for them, as in a first layer and beside frozen weights."""
    bound = calls.bind(case)
    drawn = bound.draw(new_secret())
    call_layout = bound.call_layout(drawn)
    parts = _parts(len(call_layout.wanted))
    for part in parts[: max(1, calls.affordable(len(parts)))]:
        try:
            wrong = _part(calls, call_layout, drawn, part)
        except WorkerFailure:
            if case.layout not in _APART or not _ends_pytorch(calls, call_layout, drawn, part):
                raise
            calls.loaded.revive()
            continue
        if wrong is not None:
            return wrong._replace(alone=_wrong_alone(calls, bound, drawn))
    return None


def _ends_pytorch(calls: Calls, call_layout: CallLayout, drawn: Drawn, part: Sequence[int]) -> bool:
    """Whether the eager reference dies of the same, in a worker of its own, as group_norm of PyTorch 2.13 does on a CPU
    where channels come last and no gradient of its input is asked for.
    """
    protocol = calls.protocol
    candidate = baseline_candidate(calls.task, replace(protocol, baseline="eager"))
    reference = Loaded(calls.loaded.pool, candidate, ("run",), trusted=True, tf32=protocol.tf32)
    try:
        _window(reference, calls, _for_part(call_layout, part), [drawn])
    except WorkerFailure:
        return True
    except WorkerError:
        return False
    finally:
        reference.close()
    return False


def _parts(count: int) -> list[tuple[int, ...]]:
    """Parts of so many arguments in a secret order: all that are some and not all of them, or of more than four each
    alone, all but each, and as many others.
    """
    everything = range(count)
    chance = secrets.SystemRandom()
    sizes = range(1, count) if count <= _FEW_ARGUMENTS else (1, count - 1)
    parts = [part for size in sizes for part in itertools.combinations(everything, size)]
    if count > _FEW_ARGUMENTS:
        parts += [tuple(sorted(chance.sample(everything, chance.randrange(2, count - 1)))) for _ in everything]
    chance.shuffle(parts)
    return parts


def _part(calls: Calls, call_layout: CallLayout, drawn: Drawn, part: Sequence[int]) -> _Wrong | None:
    """The gradients of these arguments alone, by their places among those that can have one."""
    layout = _for_part(call_layout, part)
    try:
        window = _window(calls.loaded, calls, layout, [drawn])
    except WorkerError as error:
        return _Wrong(str(error))
    wanted = drawn.expectation.mapped(lambda outputs: [outputs[position] for position in part])
    return _first_wrong(window, layout, [replace(drawn, expectation=wanted)])


def _for_part(call_layout: CallLayout, part: Sequence[int]) -> WindowLayout:
    outputs = tuple(call_layout.outputs[i] for i in part)
    return WindowLayout(
        [replace(call_layout, wanted=tuple(call_layout.wanted[i] for i in part), outputs=outputs)], "backward"
    )


def _count(calls: Calls, call_layout: CallLayout) -> int:
    """Calls of a window: a secret number of 6 to 12, which rings of buffers hardly fit; two where a call takes much."""
    most = min(_MOST_CALLS, _MOST_BYTES // max(call_layout.nbytes, 1))
    most = max(2, calls.affordable(most))
    least = max(2, most // 2)
    return least + secrets.randbelow(most - least + 1)


def _window(
    loaded: Loaded, calls: Calls, layout: WindowLayout, drawn: Sequence[Drawn], *, look: bool = False
) -> Window:
    buffer = WindowBuffer(layout, calls.device, [one.tensors for one in drawn])
    return loaded.runner.window(buffer, limit=calls.limit, check_mutation=look)


_Look = Callable[[Calls, Case], _Wrong | None]

_LOOKS: Mapping[str, _Look] = {
    "right gradients, but while they are asked for, the outputs are wrong": _outputs,
    "gradients are wrong inside a network, or when the forward is called again before they are taken": _interleaved,
    "gradients are wrong where only some arguments ask for theirs": _some,
    "the backward pass writes over an output of its forward call, and who reads it afterwards reads something else. "
    "Give gradients memory of their own": _after_backward,
    "gradients are wrong when they are taken again from the same graph (retain_graph=True), as for a second loss: the "
    "backward pass changes what it saved, or keeps what it gave. It may raise an error then": _backward_twice,
}
"""Ways in which training differs from a single gradient, by what is wrong there."""

_EXPLICIT: Mapping[str, _Look] = {
    "gradients are wrong when the forward was called on other inputs before: backward has the arguments, and nothing "
    "else belongs to its call": _forward_between,
}
"""The same for an entry point for gradients."""
