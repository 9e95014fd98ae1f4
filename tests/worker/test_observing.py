"""Watched windows: what they see, and that they leave no trace in what comes after."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from kerneleval.worker import calls
from kerneleval.worker.below import close, registered
from kerneleval.worker.observing import Observing


class Nothing:
    """A loaded candidate that launches nothing."""

    def launches(self) -> dict[str, int]:
        return {}

    def sizes(self) -> dict[str, int]:
        return {}

    def linked(self) -> dict[str, int]:
        return {}

    def binaries(self) -> list[str]:
        return []

    def mute(self, on: bool) -> None:
        pass

    def watch(self, on: bool) -> None:
        pass

    def look(self, at: object) -> None:
        pass


@pytest.fixture
def observing() -> Observing:
    return Observing(Nothing, Nothing())


def compiled(runs: list[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that torch.compile made, which tells when what it made is run."""

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            runs.append(1)
            return graph(*args)

        return run

    return torch.compile(lambda x: torch.sigmoid(x) * x, fullgraph=True, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize(("record", "mute"), [(True, False), (False, True), (True, True)])
def test_compiled_code_is_used_again_after_a_watched_window(observing: Observing, record: bool, mute: bool) -> None:
    """PyTorch skips a function for good that was called under a dispatch mode: it was timed without its compiler."""
    runs: list[int] = []
    function = compiled(runs)
    x = torch.randn(5)
    wanted = function(x)
    assert len(runs) == 1
    with observing.begin(Nothing(), record=record, mute=mute):  # type: ignore[arg-type]
        watched = function(x)
    told = observing.end(Nothing())  # type: ignore[arg-type]
    assert len(runs) == (1 if record else 2), "compiled code is not used under a dispatch mode"
    assert told["compiled"] is True
    assert told["aten"] == ({"aten.sigmoid.default": 1, "aten.mul.Tensor": 1} if record else {})
    assert torch.equal(watched, wanted)
    assert torch.equal(function(x), wanted)
    assert len(runs) == (2 if record else 3)


@pytest.mark.slow
def test_operators_of_every_namespace_are_counted_in_every_thread(observing: Observing) -> None:
    """PyTorch brings more than ``aten``; operators that others register are known by what they dispatch."""
    x = torch.randn(4, 4)

    def compute() -> None:
        torch.ops.mkldnn._linear_pointwise(x, x, None, "none", [], "")

    with torch.library._scoped_library("of_others", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda one: one * 2, "CPU")
        with observing.begin(Nothing(), record=True, mute=False), ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
            pool.submit(compute).result()
            pool.submit(torch.ops.of_others.double, x).result()
        seen = observing.end(Nothing())["aten"]  # type: ignore[arg-type]
    assert seen["mkldnn._linear_pointwise.default"] == 1
    assert seen["aten.mul.Tensor"] == 1
    assert not any(name.startswith("of_others") for name in seen)


def test_nothing_has_changed_until_something_has(observing: Observing, monkeypatch: pytest.MonkeyPatch) -> None:
    assert observing.changed() == []
    monkeypatch.setattr(Observing, "begin", lambda *args, **options: None)
    assert observing.changed() == ["Observing.begin"]
    monkeypatch.setattr(calls, "type", lambda value: torch.Tensor, raising=False)  # hides the interpreter's
    assert sorted(observing.changed()) == ["Observing.begin", "kerneleval.worker.calls.type"]


class _Below:
    told = 1


class _Closed(_Below):
    def end(self) -> int:
        return self.told


@pytest.mark.parametrize(
    "change",
    [
        lambda kind: setattr(kind, "end", property(lambda self: lambda: 2)),
        lambda kind: type.__setattr__(kind, "__getattribute__", lambda self, name: lambda: 2),
        lambda kind: delattr(kind, "end"),
        lambda kind: setattr(kind, "__bases__", (Exception,)),
        lambda kind: setattr(kind.__bases__[0], "told", 2),
        lambda kind: setattr(kind, "__class__", type("Other", (type,), {})),
    ],
)
def test_a_closed_class_stays_what_it_is(change: Callable[[type], None]) -> None:
    """A property put in a method's place could answer for it, and put the method back before anybody looks."""
    close(_Closed)
    with pytest.raises(TypeError):
        change(_Closed)
    assert _Closed().end() == 1


@pytest.mark.parametrize(
    ("operator", "counted"),
    [
        ("aten::mm", True),
        ("aten::matmul", False),
        ("aten::silu_backward", True),  # made of others on some devices alone
        ("aten::max_pool1d", True),  # of none, where no gradient is asked for
        ("aten::fbgemm_linear_fp16_weight", True),
        ("aten::reshape", False),
    ],
)
def test_operators_that_compute_are_counted_in_every_thread(operator: str, counted: bool) -> None:
    assert (operator in registered()) is counted
