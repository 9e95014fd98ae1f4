"""In which line of a candidate a call raised, as a verdict tells it."""

from __future__ import annotations

import pytest

from kerneleval.judge.windows.protocol import place, raised
from kerneleval.worker.host import WorkerError

_WORKER = '  File "/x/src/kerneleval/worker/calls.py", line 9, in run\n    function(*args)\n'
_OWN = '  File "/tmp/worker/a/source-1/candidate.py", line 3, in gelu\n    helper(x)\n'
_INNER = '  File "/tmp/worker/a/source-1/candidate.py", line 7, in helper\n    torch.sqrt(x, 2)\n'
_LIBRARY = '  File "/usr/lib/python3/torch/functional.py", line 5, in sqrt\n    raise TypeError\n'


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        ((_WORKER, _OWN), " (candidate.py:3, in gelu)"),
        ((_WORKER, _OWN, _INNER, _LIBRARY), " (candidate.py:7, in helper)"),
        ((_WORKER,), ""),
        ((_WORKER, '  File "<string>", line 1, in f\n'), ""),
        ((), ""),
    ],
)
def test_the_innermost_line_of_its_own_is_told(frames: tuple[str, ...], told: str) -> None:
    error = WorkerError("TypeError", "wrong", unsupported=False, evidence={"traceback": "".join(frames)})
    assert place(error) == told
    assert raised(error).message == f"TypeError: wrong{told}"


def test_in_an_interpreted_kernel_the_place_is_the_kernels_own_line() -> None:
    """Triton raises another error from what its interpreter met; the launch is the place of that one."""
    lines = (
        '  File "/x/candidate.py", line 10, in _kernel\n    v = tl.nothing(v)\nAttributeError: nothing\n'
        "\nThe above exception was the direct cause of the following exception:\n\n"
        '  File "/x/candidate.py", line 17, in gelu\n    _kernel[(1,)](x)\ntriton.InterpreterError: nothing\n'
    )
    for kind, told in (("InterpreterError", "(candidate.py:10, in _kernel)"), ("Other", "(candidate.py:17, in gelu)")):
        error = WorkerError(kind, "nothing", unsupported=False, evidence={"traceback": lines})
        assert raised(error).message == f"{kind}: nothing {told}"
    cut = lines.partition("AttributeError")[2]  # of long ones the beginning is left out
    error = WorkerError("InterpreterError", "nothing", unsupported=False, evidence={"traceback": cut})
    assert raised(error).message == "InterpreterError: nothing (candidate.py:17, in gelu)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("AssertionError('ranks')", "AssertionError: ranks"),
        ("InterpreterError('InterpreterError(\"AssertionError(\\'ranks\\')\")')", "AssertionError: ranks"),
        ("ValueError('a', 2)", "ValueError: 'a', 2"),
        ("ValueError('\\\\x')", "ValueError: \\x"),
        ("ValueError('\\x')", "ValueError: '\\x'"),
        ("KeyError(x)", "KeyError: x"),
        ("ValueError()", "ValueError: "),
        ("nothing", "InterpreterError: nothing"),
        ("KeyError({[]: 1})", "KeyError: {[]: 1}"),
    ],
)
def test_of_an_error_in_an_interpreted_kernel_its_cause_is_told(text: str, told: str) -> None:
    assert raised(WorkerError("InterpreterError", text, unsupported=False, evidence={})).message == told
    other = WorkerError("ValueError", text, unsupported=False, evidence={})
    assert raised(other).message == f"ValueError: {text}"
