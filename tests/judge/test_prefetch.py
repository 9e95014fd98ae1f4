"""Cases drawn ahead of their turn."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerneleval import tasks
from kerneleval.devices.cpu import Cpu
from kerneleval.judge import Judge
from kerneleval.judge.probes import cells
from kerneleval.judge.probes.cells import Prefetch
from kerneleval.pipeline import check
from kerneleval.records import Case, InfrastructureError

GELU = """
import torch


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
"""

ELSEWHERE = SimpleNamespace(pauses=False)


def cases(count: int, size: int = 8) -> list[Case]:
    """Cases of one operator at sizes of their own."""
    return [
        Case(task="gelu", direction="forward", dims=(("M", size), ("N", size + i)), dtype="float32")
        for i in range(count)
    ]


class Drawing:
    """Stands for what binds cases; remembers which thread drew which."""

    def __init__(self, refused: set[Case] | None = None) -> None:
        self.drawn: list[tuple[Case, str]] = []
        self.refused = refused or set()
        self.go_on = threading.Event()
        """Every draw but the first waits for it."""
        self.go_on.set()

    def __call__(self, case: Case) -> Any:
        def draw(seed: int) -> Case:
            if self.drawn:
                assert self.go_on.wait(60)
            self.drawn.append((case, threading.current_thread().name.split("_")[0]))
            if case in self.refused:
                self.refused.remove(case)
                raise InfrastructureError("no memory")
            return case

        return SimpleNamespace(draw=draw)


def test_every_case_comes_in_its_turn_and_once() -> None:
    drawing, planned = Drawing(), cases(20)
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over(planned):
        assert [taken[1] for case in planned if (taken := drawn_ahead.take(case))] == planned
    assert [case for case, _ in drawing.drawn] == planned
    assert {thread for _, thread in drawing.drawn} == {"prefetch"}


def test_no_more_than_a_few_are_held_and_none_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, planned = Drawing(), cases(20)
    monkeypatch.setattr(cells, "_HELD_BYTES", 5 * tasks.find("gelu").bytes(planned[0].dims_map, "float32"))
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over(planned):
        drawn_ahead.take(planned[0])
    assert 1 <= len(drawing.drawn) <= 1 + 5
    assert not drawn_ahead._drawn


def test_cases_left_out_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, planned = Drawing(), cases(40)
    monkeypatch.setattr(cells, "_HELD_BYTES", 8 * tasks.find("gelu").bytes(planned[0].dims_map, "float32"))
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over(planned):
        assert drawn_ahead.take(planned[20]) is None
        assert (taken := drawn_ahead.take(planned[21])) is not None and taken[1] == planned[21]
        assert all(planned.index(case) > 21 for case in drawn_ahead._drawn)
        assert drawn_ahead._drawn, "others are drawn in their place"


def test_cases_with_which_a_process_may_begin_are_drawn_first_and_kept() -> None:
    drawing, planned = Drawing(), cases(20)
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over(planned, [planned[15], planned[10]]):
        order = [planned[15], *planned[:15], *planned[16:]]
        assert [taken[1] for case in order if (taken := drawn_ahead.take(case))] == order
    assert [case for case, _ in drawing.drawn[:2]] == [planned[15], planned[10]]
    assert len(drawing.drawn) == 20, "each once"


def test_calls_with_exchanged_elements_are_drawn_ahead_of_their_case(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, planned, exchanged = Drawing(), cases(2), list[tuple[Case, str]]()

    def exchange(_bound: Any, drawn: Case) -> None:
        exchanged.append((drawn, threading.current_thread().name.split("_")[0]))

    monkeypatch.setattr(cells, "exchanged_call", exchange)
    special = [replace(case, distribution="nonfinite") for case in planned]
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over([*planned, *special]):
        found = [drawn_ahead.take(case) for case in [*planned, *special]]
        assert [ahead is not None and ahead[0].exchanged is not None for ahead in found] == [True, True, False, False]
        assert [ahead[0].exchanged() for ahead in found[:2] if ahead and ahead[0].exchanged] == [None, None]
    assert exchanged == [(case, "prefetch") for case in planned]


def test_large_cases_wait_for_their_turn() -> None:
    drawing, planned = Drawing(), cases(3, size=4096)
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over(planned):
        assert [drawn_ahead.take(case) for case in planned] == [None] * 3
    assert not drawing.drawn


def test_nothing_more_is_drawn_beside_calls_where_workers_compute_on_the_same_processors() -> None:
    drawing, planned = Drawing(), cases(50)
    drawing.go_on.clear()
    drawn_ahead = Prefetch(tasks.find("gelu"), Cpu(), drawing)
    with drawn_ahead.over(planned):
        while not drawing.drawn:
            time.sleep(0.01)
        assert drawn_ahead.take(planned[0]) is not None
        assert drawn_ahead.take(planned[40]) is None
        drawing.go_on.set()
    assert len(drawing.drawn) <= 2, "the one under way goes on"


def test_a_case_without_memory_is_drawn_again_in_its_turn() -> None:
    planned = cases(3)
    drawing = Drawing({planned[1]})
    drawn_ahead = Prefetch(tasks.find("gelu"), ELSEWHERE, drawing)  # type: ignore[arg-type]
    with drawn_ahead.over(planned):
        assert [drawn_ahead.take(case) is None for case in planned] == [False, True, False]


def test_cases_are_drawn_while_the_candidate_is_loaded(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    take = Prefetch.take

    def noted(self: Prefetch, case: Case) -> Any:
        taken.append((found := take(self, case)) is not None)
        return found

    monkeypatch.setattr(Prefetch, "take", noted)
    file = tmp_path / "gelu.py"
    file.write_text("import time\ntime.sleep(1)\n" + GELU)
    small: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["tiny", "small"]}
    assert check(file, "gelu", judge=judge, allow=("library",), timed=False, **small).verdict == "passed"
    assert any(taken)


@pytest.mark.parametrize("source", [GELU, GELU.replace("0.5", "0.501")], ids=["right", "wrong"])
def test_the_verdict_is_the_same(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(Cpu, "pauses", False)
    file = tmp_path / "gelu.py"
    file.write_text(source)
    small: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["tiny", "small"]}
    verdict = check(file, "gelu", judge=judge, allow=("library",), timed=False, **small)
    assert verdict.verdict == ("passed" if source == GELU else "failed"), verdict.message
    assert len(verdict.cells) == len({c.case for c in verdict.cells}) > 8


NORM = """
import torch


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
"""


def test_secret_cases_are_drawn_ahead_with_their_own_numbers(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    take = Prefetch.take

    def noted(self: Prefetch, case: Case) -> Any:
        taken.append((case, found := take(self, case)))
        return found

    monkeypatch.setattr(Cpu, "pauses", False)
    monkeypatch.setattr(Prefetch, "take", noted)
    file = tmp_path / "rms_norm.py"
    file.write_text(NORM)
    small: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["tiny", "small"]}
    verdict = check(file, "rms_norm", judge=judge, allow=("library",), timed=False, **small)
    assert verdict.verdict == "passed", verdict.message
    planned = {cell.case for cell in verdict.cells}
    usual = {found[0].specs[-1].value for case, found in taken if found and case in planned}
    secret = [found[0].specs[-1].value for case, found in taken if found and case not in planned]
    assert secret and usual and usual.isdisjoint(secret)
