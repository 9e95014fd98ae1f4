"""Messages of outcomes name the argument, and say no more than is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kerneleval.judge import Judge
from kerneleval.judge.probes.repeats import OtherLayouts
from kerneleval.judge.windows.buffers import CallLayout, WindowLayout, dense
from kerneleval.records import Candidate, Failed, Passed, Protocol, Verdict, refusals
from kerneleval.tasks import find

IMPORTS = "import torch\n\n"
WRITES = "def sub(x, y):\n    out = x - y\n    {}\n    return out\n"
GRADIENTS = """class Sub(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x - y

    @staticmethod
    def backward(ctx, grad):
        {}

def sub(x, y):
    return Sub.apply(x, y)
"""


def judged(judge: Judge, source: str, direction: Any = "forward") -> Verdict:
    task = find("sub")
    allow = ("custom", "mixed", "library")
    protocol = Protocol(timed=False, allow=allow, tier="quick", dtypes=("float32",), directions=(direction,))
    candidate = Candidate(files=(("candidate.py", IMPORTS + source),), language="torch")
    return judge.check(candidate, task, protocol, cases=judge.plan(task, protocol)[:1])


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("y.add_(1)", "changed argument 1 (y)"),
        ("x.view(-1)[-1] = 0", "changed argument 0 (x)"),
        ("y.t_()", "argument 1 (y) is in the same memory"),
    ],
)
def test_a_changed_input_is_named(judge, statement, what):
    verdict = judged(judge, WRITES.format(statement))
    assert verdict.reason == "input_mutation" and what in verdict.message


def test_every_byte_of_the_inputs_has_a_name():
    x, y = dense((3,), "float32"), dense((5,), "float64")
    call = CallLayout(args=(x, 2.0, y), grads=(x,), outputs=(), wanted=(), dims={})
    layout = WindowLayout([call, call], "backward")
    for (first, second, grad), start in zip(layout.offsets, layout.starts, strict=True):
        assert [layout.where(start), layout.where(first + 11)] == ["argument 0", "argument 0"]
        assert layout.where(first + 12) == layout.where(second - 1) == "memory behind argument 0"
        assert [layout.where(second), layout.where(grad)] == ["argument 2", "upstream gradient 0"]


@pytest.mark.parametrize(("returned", "named"), [("grad, None", "argument 1 (y)"), ("None, -grad", "argument 0 (x)")])
def test_a_missing_gradient_is_named(judge, returned, named):
    verdict = judged(judge, GRADIENTS.format(f"return {returned}"), "backward")
    assert (verdict.stage, verdict.reason) == ("call", "exception")
    assert f"no gradient of {named}" in verdict.message and "allow_unused" not in verdict.message


def test_what_no_language_can_do_is_not_declared_unsupported():
    declared = Failed(stage="call", reason="unsupported", message="no halves")
    missing = Failed(stage="load", reason="unsupported", message="triton cannot be judged in bfloat16 on cpu")
    assert refusals([Passed(), Failed(stage="call", reason="exception")]) == ""
    assert refusals([declared, Passed()]) == "1 declared unsupported"
    told = "2 not judged (triton cannot be judged in bfloat16 on cpu)"
    assert refusals([missing, missing]) == told
    assert refusals([missing, declared, missing]) == f"1 declared unsupported, {told}"


@pytest.mark.parametrize("anyway", [True, False])
def test_strides_are_named_only_where_they_matter(anyway):
    """Not where the same values are wrong in the case's own strides, too."""

    def window(bound: Any, drawn: Any, layouts: Any = None, excused: Any = None) -> Any:
        wrong = Failed(stage="correctness", reason="wrong_output", message="output 0 is off")
        return wrong if layouts or anyway else Passed()

    calls = SimpleNamespace(affordable=lambda count: count, window=window)
    repeats = SimpleNamespace(kind=lambda case: None, pair=lambda bound, first: None)
    bound = SimpleNamespace(case=None, other_layouts=lambda first: [SimpleNamespace(nbytes=1)])
    windows = OtherLayouts(cast(Any, calls), cast(Any, repeats))
    outcome = windows.judge(cast(Any, bound), cast(Any, None), Passed())
    assert isinstance(outcome, Failed)
    assert ("strided in another way" in outcome.message) == (not anyway)
