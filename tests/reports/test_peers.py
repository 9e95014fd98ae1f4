"""The map of peers, as it is shown."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from kerneleval.records import UsageError
from kerneleval.reports.tasks import summarise_peer
from kerneleval.reports.tasks_view import render_peer


def shown(system: str, width: int = 120) -> str:
    text = io.StringIO()
    render_peer(summarise_peer(system), Console(file=text, width=width, color_system=None))
    return text.getvalue()


def test_names_tasks_notes_and_counts_are_shown() -> None:
    text = shown("kernelbench-x")
    assert "Activation: 16 of 16" in text
    assert "gelu_tanh" in text
    assert "mask given as an argument" in text
    assert text.strip().splitlines()[-1].startswith("KernelBench-X: 184 of 184 mapped, to ")
    assert text.strip().endswith("; 176 of 176 of its own list")


@pytest.mark.parametrize("width", [40, 80, 400])
def test_every_name_and_task_can_be_read_at_any_width(width: int) -> None:
    peer = summarise_peer("KernelBench")
    text = "".join(shown("KernelBench", width).split())
    if width == 400:  # where the longest name fits beside notes
        assert all(row["name"] in text for row in peer["rows"])
    assert max(map(len, shown("KernelBench", width).splitlines())) <= width


def test_what_has_no_task_says_so() -> None:
    rows = {row["name"]: row for row in summarise_peer("KernelGenBench")["rows"]}
    assert rows["zeros"]["tasks"] == []
    assert "none" in shown("KernelGenBench")


def test_a_peer_is_plain_data() -> None:
    peer = summarise_peer("KernelGenBench")
    assert json.loads(json.dumps(peer)) == peer
    assert peer["names"] == len(peer["rows"]) == 210


def test_an_unknown_peer_is_an_error() -> None:
    with pytest.raises(UsageError, match="no peer is called 'tritonbench'"):
        summarise_peer("tritonbench")
