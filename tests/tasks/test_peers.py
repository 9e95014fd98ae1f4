"""The map of peers: complete, of tasks that exist, and the same as the page that is printed from it."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

from kerneleval import tasks
from kerneleval.records import KernelEvalError, UsageError
from kerneleval.tasks import peers

ROOT = Path(__file__).parents[2]
HEAD = "system,group,name,tasks,note\n"
KNOWN = ("relu", "leaky_relu")


def test_every_name_of_the_peers_is_there() -> None:
    assert Counter(row.system for row in peers.names()) == {
        "KernelBench-X": 184,
        "KernelGenBench": 210,
        "KernelBench": 200,
    }
    assert Counter((row.system, row.group) for row in peers.names() if row.system != "KernelBench-X") == {
        ("KernelGenBench", "ATen"): 110,
        ("KernelGenBench", "cuBLAS"): 50,
        ("KernelGenBench", "vLLM"): 50,
        ("KernelBench", "level1"): 100,
        ("KernelBench", "level2"): 100,
    }
    assert Counter(row.group for row in peers.names("KernelBench-X")) == {
        "Activation": 16,
        "Convolution": 2,
        "Fusion": 60,
        "Index": 6,
        "LinearAlgebra": 17,
        "Loss": 6,
        "Math": 38,
        "MatrixMultiply": 10,
        "Normalization": 5,
        "Optimizer": 5,
        "Pooling": 2,
        "Quantization": 6,
        "Random": 2,
        "Reduce": 6,
        "SpatialOps": 3,
    }


def test_the_problems_of_kernelbench_are_numbered_without_gaps() -> None:
    for level in ("level1", "level2"):
        numbers = [int(row.name.split("_")[0]) for row in peers.names("KernelBench", level)]
        assert sorted(numbers) == list(range(1, 101))


def test_every_task_exists_and_every_gap_has_a_reason() -> None:
    known = tasks.all_tasks()
    for row in peers.names():
        assert set(row.tasks) <= set(known), row
        assert row.tasks or len(row.note.split()) >= 3, row


def test_groups_of_kernelbench_x_are_those_of_the_tasks() -> None:
    from kerneleval.records import GROUPS

    assert {row.group for row in peers.names("KernelBench-X")} == set(GROUPS)


def test_counts() -> None:
    counts = peers.covered("KernelBench-X")
    assert (counts.names, counts.listed) == (184, 176)
    assert counts.mapped == counts.names
    assert counts.listed_mapped == counts.listed
    assert str(counts).startswith("184 of 184 mapped (176 of 176 in the peer's own list), to ")
    for level in ("level1", "level2"):
        counts = peers.covered("kernelbench", level.upper())
        assert counts.mapped == counts.names == 100
        assert "list" not in str(counts)
    assert peers.covered("KernelGenBench").mapped >= 200


def test_every_peer_and_unlisted_file_is_known() -> None:
    assert peers.systems() == ("KernelBench-X", "KernelGenBench", "KernelBench")
    assert {row.name for row in peers.names("KernelBench-X") if not row.listed} == set(peers.UNLISTED)


def test_the_names_that_a_task_covers() -> None:
    found = {(row.system, row.name) for row in peers.covering("relu")}
    assert {("KernelBench-X", "relu"), ("KernelBench-X", "relu_fp16"), ("KernelBench", "19_ReLU")} <= found
    assert peers.covering("no_such_task") == ()


def test_the_page_is_what_the_map_says() -> None:
    page = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(ROOT / "scripts" / "peers_page.py"))["page"]()
    assert page == made, "python scripts/peers_page.py > docs/peers.md"


@pytest.mark.parametrize("page", ["README.md", "docs/tasks.md"])
def test_what_the_number_of_tasks_means_is_said_as_it_is(page: str) -> None:
    assert peers.origins() in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_no_cell_breaks_the_page() -> None:
    assert not [row for row in peers.names() if "|" in row.note or "\n" in row.note]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system,name\n", "must begin with the line system,group,name,tasks,note"),
        ("", "must begin with"),
        (HEAD + "A,g,n,relu\n", "line 2: 4 cells, not 5"),
        (HEAD + "A,,n,relu,\n", "line 2, A  n: system, group and name must be given"),
        (HEAD + "A,g,n,relu,\nA,g,n,relu,\n", "line 3, A g n: the name is there twice"),
        (HEAD + "A,g,n,,\n", "line 2, A g n: neither a task nor the reason"),
        (HEAD + "A,g,n,relu relu,\n", "line 2, A g n: a task is there twice"),
        (HEAD + "A,g,n,relo,\n", "line 2, A g n: no task is called 'relo'; did you mean relu?"),
    ],
)
def test_a_map_that_does_not_hold_together_is_told_by_its_row(text: str, message: str) -> None:
    with pytest.raises(KernelEvalError) as raised:
        peers.parse(text, KNOWN)
    assert message in str(raised.value)


def test_the_same_name_may_be_in_two_groups() -> None:
    rows = peers.parse(HEAD + "A,g,n,relu leaky_relu,differs\nA,h,n,,no tensor comes out\n", KNOWN)
    assert [row.tasks for row in rows] == [("relu", "leaky_relu"), ()]


@pytest.mark.parametrize(("system", "group"), [("KernelBenchX", ""), ("KernelBench", "level7")])
def test_an_unknown_peer_or_group_is_an_error_that_names_near_ones(system: str, group: str) -> None:
    with pytest.raises(UsageError, match=r"is called .*; did you mean"):
        peers.names(system, group)


def test_one_task_under_several_names():
    found = peers.same_tasks(["relu", "KernelBench/level1/19_ReLU", "KernelBench-X/Activation/relu", "my/own/task"])
    assert found == {
        "relu": "relu",
        "KernelBench/level1/19_ReLU": "relu",
        "KernelBench-X/Activation/relu": "relu",
        "my/own/task": "my/own/task",
    }
    files = peers.same_tasks(["kernelbench:19_ReLU@d33d85b3", "KernelBench/level1/19_ReLU", "gelu"])
    assert files["kernelbench:19_ReLU@d33d85b3"] == files["KernelBench/level1/19_ReLU"] == "KernelBench 19_ReLU"
    assert files["gelu"] == "gelu"
    assert peers.same_tasks(["KernelBench/level9/no_such"]) == {"KernelBench/level9/no_such": "KernelBench no_such"}
