"""What becomes of outputs whose elements share memory: they are written out while the clock runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from kerneleval.languages.common.base import OutputSpec
from kerneleval.worker import host
from kerneleval.worker.calls import mismatch, outputs_of, written
from kerneleval.worker.child import Worker, _error

BASE = torch.arange(64.0)
KINDS = (torch.Tensor, torch.nn.Parameter)


@pytest.mark.parametrize(
    "view",
    [
        BASE.unfold(0, 8, 3),
        BASE.unfold(0, 8, 8).unfold(1, 4, 1),
        BASE[:8].expand(4, 8),
        BASE[:8, None].expand(8, 4),
        BASE.as_strided((4, 4), (2, 3)),  # each element in a place of its own but two
    ],
)
def test_views_that_repeat_elements_are_written_out(view: torch.Tensor) -> None:
    (output,) = written(view, [view])
    assert output.is_contiguous() and output.data_ptr() != view.data_ptr() and torch.equal(output, view)


@pytest.mark.parametrize(
    "view",
    [
        BASE,
        BASE.view(8, 8).t(),
        BASE.view(8, 8)[:, 2:5],
        BASE.view(2, 4, 8).permute(2, 0, 1)[::2],
        BASE.unfold(0, 8, 8),
        BASE.unfold(0, 3, 5),
        BASE[:8].view(1, 8).expand(1, 8),
        BASE[:0].view(0, 8).t(),
        BASE[3],
    ],
)
def test_others_stay_as_they_are(view: torch.Tensor) -> None:
    (output,) = written(view, [view])
    assert output is view


def test_one_of_another_shape_is_not_written_out() -> None:
    view = torch.zeros(1).expand(2**30, 2**30)
    (output,) = written(view, [BASE])
    assert output is view


@pytest.mark.parametrize("result", [None, [1.0, 2.0], "text"])
def test_that_nothing_was_returned_is_told(result: object) -> None:
    wrong = mismatch(outputs_of(result, None), [OutputSpec(shape=(2,), dtype="float32")], "cpu", KINDS)
    assert wrong is not None and wrong["got"].startswith("no tensor was returned")


def test_a_class_in_the_place_of_parameters_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(torch.Tensor):
        pass

    monkeypatch.setattr(torch.nn, "Parameter", Later)
    made = [torch.zeros(2).as_subclass(Later)]
    wrong = mismatch(made, [OutputSpec(shape=(2,), dtype="float32")], "cpu", KINDS)
    assert wrong == {"what": "type", "got": "output 0 is a Later", "want": "a plain tensor, of no subclass"}


def test_a_window_is_recorded_until_its_outputs_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that was put off until then was not seen."""
    recorded: list[bool] = []

    @contextlib.contextmanager
    def recording() -> Iterator[None]:
        recorded.append(True)
        yield
        recorded.append(False)

    worker = Worker(SimpleNamespace(send=None), "cpu")  # type: ignore[arg-type]
    worker.recording, worker.arenas = recording(), {"in": None}  # type: ignore[dict-item]
    worker.calling = worker.loaded = worker.timer = worker.in_order = SimpleNamespace(elapsed_ns=lambda: 0.0)  # type: ignore[assignment]
    worker.observing = SimpleNamespace(end=lambda _loaded: {})  # type: ignore[assignment]
    monkeypatch.setattr(worker, "_timed", lambda _make: None)
    monkeypatch.setattr(worker, "_tampering", list)
    monkeypatch.setattr(worker, "staging", SimpleNamespace(stage=lambda *_: None, retire=lambda *_: None))
    worker.on_go({"calls": [0, 0], "rounds": 1, "recorded": False})
    assert recorded == [True]
    worker.on_observed({})
    assert recorded == [True, False]


def test_errors_are_told_without_colours() -> None:
    """Numba's held codes of terminals, and a verdict showed them."""
    answer = {"kind": "TypingError", "message": "\x1b[1m\x1b[31mUntyped name 'x':\x1b[0m here"}
    raised = host.Worker._raised(SimpleNamespace(_output=-1, _kept=b""), answer)  # type: ignore[arg-type]
    assert str(raised) == "Untyped name 'x': here"


def test_an_exception_whose_text_and_class_are_odd_is_told() -> None:
    class Text(str):
        def __getitem__(self, _key: object) -> str:
            raise RuntimeError

    class Kind(type):
        @property
        def __name__(cls) -> str:
            raise RuntimeError

    class OddError(Exception, metaclass=Kind):
        def __str__(self) -> str:
            return Text("said")

    class NoClassError(Exception):
        __class__ = property(lambda _: 1 / 0)  # type: ignore[assignment]

    told = _error("go", OddError())
    assert (told["kind"], told["message"], type(told["message"])) == ("OddError", "said", str)
    told = _error("go", NoClassError())
    assert (told["kind"], told["unsupported"]) == ("NoClassError", False)


def test_of_a_long_traceback_both_ends_are_told() -> None:
    """The cause comes first, and where it led to last."""
    try:
        try:
            raise ValueError("begin" + "x" * 5000)
        except ValueError as error:
            raise RuntimeError("end") from error
    except RuntimeError as error:
        lines = _error("go", error)["traceback"]
    assert len(lines) == 4000 and "begin" in lines and lines.endswith("end\n")
