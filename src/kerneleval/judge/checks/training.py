"""What training asks beyond single gradients: outputs while autograd watches, several forward calls before the first
gradient, and gradients of some arguments alone.

A candidate knows that autograd is watching; without this check it could leave its outputs uncomputed then, be timed by
its gradients alone, and be wrong for everybody who trains with it. And what its backward needs it may keep in one place
for all calls, which is right for one layer and wrong for two.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kerneleval.judge.cells import CALL_TIMEOUT_S, CellJudge
from kerneleval.judge.checks.track import chosen
from kerneleval.judge.comparison import Mismatch, compare
from kerneleval.judge.images import Image, Plan
from kerneleval.judge.windows import output_views
from kerneleval.records import Case, Evidence, Outcome, new_secret
from kerneleval.worker.host import WorkerError

__all__ = ["CHECK"]

_ALONE = "alone: "
"""Before what is wrong with gradients that are wrong in a window of their own too."""


def _check(judge: CellJudge, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Evidence]:
    if judge.loaded.explicit_backward:
        return  # no forward call is made there
    right = []
    for case in chosen(cases, outcomes, judge.protocol.timed_dtypes):
        if case.direction != "backward":
            continue
        wrong = _wrong(judge, case)
        if wrong:
            message = f"{case.key}: right gradients, but while they are asked for, the outputs are wrong: {wrong}"
            yield {"level": "fail", "stage": "correctness", "reason": "wrong_in_training", "message": message}
            return
        wrong = _interleaved(judge, case)
        if wrong.startswith(_ALONE):
            message = f"{case.key}: {wrong.removeprefix(_ALONE)}"
            yield {"level": "fail", "stage": "correctness", "reason": "wrong_output", "message": message}
            return
        if wrong:
            message = f"{case.key}: gradients are wrong when the forward is called again before they are taken: {wrong}"
            yield {"level": "fail", "stage": "correctness", "reason": "wrong_in_training", "message": message}
            return
        wrong = _some(judge, case)
        if wrong:
            message = f"{case.key}: gradients are wrong where only some arguments ask for theirs: {wrong}"
            yield {"level": "fail", "stage": "correctness", "reason": "wrong_in_training", "message": message}
            return
        right.append(case.key)
    if right:
        yield {"level": "info", "message": f"outputs are right while gradients are asked for: {', '.join(right)}"}


def _wrong(judge: CellJudge, case: Case) -> str:
    """What is wrong with the outputs of the forward call of a backward case; empty: nothing."""
    wanted = judge.bind(case).wanted
    bound = judge.bind(replace(case, direction="forward"))
    drawn = bound.draw(new_secret())
    plan = Plan([replace(bound.form(drawn), wanted=wanted)], "training")
    image = Image(plan, judge.device)
    image.fill(0, drawn.tensors)
    window = judge.loaded.runner.window(image, timeout_s=CALL_TIMEOUT_S, check_mutation=True)
    if window.wrong is not None:
        return str(window.wrong.get("got", "another form"))
    result = compare(output_views(window, plan, 0), drawn.expectation)
    if isinstance(result, Mismatch):
        return result.message
    return "" if judge.task.in_place or not window.mutated else "the call changed its inputs"


def _interleaved(judge: CellJudge, case: Case) -> str:
    """What is wrong with gradients that are taken when two forward calls have been made; empty: nothing."""
    bound = judge.bind(case)
    drawn = [bound.draw(new_secret()) for _ in range(2)]
    plan = Plan([bound.form(one) for one in drawn], "interleaved")
    image = Image(plan, judge.device)
    for index, one in enumerate(drawn):
        image.fill(index, one.tensors)
    window = judge.loaded.runner.window(image, timeout_s=CALL_TIMEOUT_S, check_mutation=False)
    if window.wrong is not None:
        return str(window.wrong.get("got", "another form"))
    for index, one in enumerate(drawn):
        result = compare(output_views(window, plan, index), one.expectation)
        if isinstance(result, Mismatch):
            alone, form = judge.call(bound, [one], look=False)
            if isinstance(compare(output_views(alone, form, 0), one.expectation), Mismatch):
                return f"{_ALONE}{result.message}"
            return result.message
    return ""


def _some(judge: CellJudge, case: Case) -> str:
    """What is wrong with gradients where a secret part of the arguments asks for them, as in a first layer and beside
    frozen weights; empty: nothing.
    """
    bound = judge.bind(case)
    drawn = bound.draw(new_secret())
    form = bound.form(drawn)
    if len(form.wanted) < 2:
        return ""
    chance = secrets.SystemRandom()
    part = sorted(chance.sample(range(len(form.wanted)), chance.randrange(1, len(form.wanted))))
    asked = replace(form, wanted=tuple(form.wanted[i] for i in part), outputs=tuple(form.outputs[i] for i in part))
    plan = Plan([asked], "backward")
    image = Image(plan, judge.device)
    image.fill(0, drawn.tensors)
    try:
        window = judge.loaded.runner.window(image, timeout_s=CALL_TIMEOUT_S, check_mutation=False)
    except WorkerError as error:
        return str(error)
    if window.wrong is not None:
        return str(window.wrong.get("got", "another form"))
    wanted = replace(drawn.expectation, outputs=tuple(drawn.expectation.outputs[i] for i in part))
    result = compare(output_views(window, plan, 0), wanted)
    return result.message if isinstance(result, Mismatch) else ""


CHECK = _check
