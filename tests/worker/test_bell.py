"""The bell: what rings on one side arrives whole on the other."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kerneleval.worker.bell import Bell, Go


@pytest.fixture
def sides() -> Iterator[tuple[Bell, Bell]]:
    fd = Bell.file()
    yield Bell(fd), Bell(fd)
    os.close(fd)


@pytest.mark.parametrize("go", [Go(0, 1), Go(3, 512, 1, True), Go(16382, 16383, (1 << 19) - 1, True), Go(0, 0, 7)])
def test_what_is_rung_arrives(sides: tuple[Bell, Bell], go: Go) -> None:
    judge, worker = sides
    assert worker.heard() is None
    judge.ring(go)
    assert worker.heard() == go
    assert worker.heard() is None, "it is heard once"
    assert judge.ended(0.0) == 0
    worker.end()
    assert judge.ended(0.0) > 0


def test_it_rings_more_often_than_its_numbers_reach(sides: tuple[Bell, Bell]) -> None:
    judge, worker = sides
    for count in range(70_000):
        go = Go(count % 16000, 16000)
        judge.ring(go)
        assert worker.heard() == go
    worker.end()
    assert judge.ended(0.0) > 0


def test_the_end_of_another_window_is_not_that_of_this_one(sides: tuple[Bell, Bell]) -> None:
    judge, worker = sides
    judge.ring(Go(0, 1))
    worker.heard()
    worker.end()
    judge.ring(Go(1, 2))
    assert judge.ended(0.001) == 0


@pytest.mark.parametrize("go", [Go(0, 1 << 14), Go(0, 1, 1 << 19)])
def test_what_is_too_much_for_a_word_is_said_otherwise(go: Go) -> None:
    assert not go.fits


def test_a_worker_cannot_take_the_page_away() -> None:
    """A judge that looks at a page that is no more would be killed."""
    fd = Bell.file()
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)
