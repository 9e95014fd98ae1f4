"""Tasks as plain data and as text: every field is there, and the list can be read at any width."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kerneleval.records import CATEGORIES, SHAPE_CATEGORIES, Task, TensorSpec
from kerneleval.reports import json as documents
from kerneleval.reports.tasks import describe, summarise
from kerneleval.reports.tasks_view import render_task, render_tasks
from kerneleval.tasks import CORE, all_tasks, find, open_task

LISTED = [summarise(task) for task in all_tasks().values()]


def printed(render: Any, value: Any, width: int, *more: Any) -> str:
    out = io.StringIO()
    render(value, Console(file=out, width=width), *more)
    return out.getvalue()


# --------------------------------------------------------------------------------------------------------------------
# Data
# --------------------------------------------------------------------------------------------------------------------


def test_a_description_has_every_field_of_a_task() -> None:
    callables = {
        "arguments",
        "reference",
        "flops",
        "bytes",
        "constraint",
        "build",
        "unfused",
        "baseline_source",
        "table",
    }
    fields = {field.name for field in dataclasses.fields(Task)} - callables - {"case_dims", "findings"}
    assert fields <= set(describe(find("gelu")))
    assert {field.name for field in dataclasses.fields(TensorSpec)} <= set(
        describe(find("gelu"))["sample"]["arguments"][0]
    )


@pytest.mark.parametrize("name", CORE)
def test_samples_are_one_call_in_each_shape_category(name: str) -> None:
    task = find(name)
    found = describe(task)
    categories = [sample["shape_category"] for sample in found["samples"]]
    assert len(set(categories)) == len(categories)
    assert set(categories) <= set(SHAPE_CATEGORIES)
    for sample in found["samples"]:
        dims = sample["dims"]
        assert sample["flops"] == task.flops(dims)
        assert sample["bytes"] == task.bytes(dims, task.dtypes[0])
        assert sample["intensity"] == pytest.approx(sample["flops"] / sample["bytes"])
        assert sample["terms"] >= 1
        assert task.constraint is None or task.constraint(dims)
    at = found["sample"]
    assert at["shape_category"] == "medium"
    for argument, named in zip(at["arguments"], found["arguments"], strict=True):
        assert argument["name"] == named["name"]
        if "shape" in named:
            assert len(named["shape"].split()) == len(argument["shape"])
    documents.dumps(found)


def test_shapes_of_models_come_with_their_cost_and_source() -> None:
    found = describe(find("matmul"))
    shape = next(s for s in found["real_shapes"] if s["name"] == "llama3_8b.mlp_down")
    assert shape["dims"] == {"M": 2048, "N": 4096, "K": 14336}
    assert shape["flops"] == 2 * 2048 * 4096 * 14336
    assert "https://huggingface.co/meta-llama" in shape["source"]
    assert summarise(find("matmul"))["real_shapes"] == [s["name"] for s in found["real_shapes"]]
    assert summarise(find("cholesky"))["real_shapes"] == []
    text = printed(render_task, found, 120)
    assert "real:llama3_8b.mlp_down" in text
    assert f"llama3_8b: {shape['source']}" in text


def test_attention_says_what_is_allowed_and_what_is_summed() -> None:
    found = describe(find("attention"))
    assert "S >= 4" in found["constraint"]
    assert found["tolerance"]["reduction"] == "S + D"
    assert [a["shape"] for a in found["arguments"][:3]] == ["B H L D", "B H S D", "B H S D"]
    assert found["outputs"][0]["shape"] == "B H L D"
    dims = found["sample"]["dims"]
    assert found["sample"]["outputs"] == [[dims[name] for name in "BHLD"]]


def test_a_problem_file_has_numbers_for_names(tmp_path: Path) -> None:
    path = tmp_path / "linear.py"
    path.write_text(
        "import torch\nimport torch.nn as nn\n\n"
        "class Model(nn.Module):\n"
        "    def __init__(self, width):\n        super().__init__()\n        self.fc = nn.Linear(width, 8)\n"
        "    def forward(self, x):\n        return self.fc(x)\n\n"
        "batch, width = 70000, 512\n"
        "def get_inputs():\n    return [torch.rand(batch, width)]\n"
        "def get_init_inputs():\n    return [width]\n"
    )
    found = describe(open_task(str(path)))
    assert found["arguments"] == []
    assert found["samples"][0]["shape_category"] == "given"  # however large: nothing is allocated
    text = printed(render_task, found, 80)
    assert "x [70000 x 512]: data" in text
    assert json.loads(documents.dumps(found))["sample"]["dims"] == {"batch": 70000, "width": 512}


# --------------------------------------------------------------------------------------------------------------------
# Text
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_the_list_keeps_to_the_width_and_names_every_task_in_its_category(width: int) -> None:
    lines = printed(render_tasks, LISTED, width).splitlines()
    assert max(map(len, lines)) <= width
    named = {line.split("  ")[0].strip().rstrip("…") for line in lines}
    if width >= 80:
        assert {task["name"] for task in LISTED} <= named
    heads = [line for line in lines if line.partition(":")[0] in CATEGORIES and line.endswith(("tasks", "task"))]
    assert [line.partition(":")[0] for line in heads] == list(dict.fromkeys(t["category"] for t in LISTED))
    assert sum(int(line.split()[1]) for line in heads) == len(LISTED)


def test_the_formula_has_room_at_80_columns() -> None:
    """A long name takes its own line's room alone."""
    shown = next(line for line in printed(render_tasks, LISTED, 80).splitlines() if line.startswith("silu "))
    assert find("silu").summary[:30] in shown


def test_counts_stand_at_the_end() -> None:
    text = " ".join(printed(render_tasks, LISTED[:5], 200, len(LISTED)).split())
    assert f"5 of {len(LISTED)} tasks: 5 {LISTED[0]['category']}" in text
    assert "by source: " in text
    assert "by level: " in text
    assert printed(render_tasks, [], 80, 7).strip().startswith("task")


@pytest.mark.parametrize("name", [*CORE, "linear_w4a16", "clamp", "embedding"])
def test_one_task_shows_what_the_issue_of_its_author_would_be(name: str) -> None:
    found = describe(find(name))
    text = printed(render_task, found, 120)
    assert found["summary"][:50] in text
    for word in ("dims", "arguments", "outputs", "dtypes", "backward", "inputs", "layouts", "tolerance", "relations"):
        assert f"\n{word}" in text
    for argument in found["arguments"]:
        assert f"{argument['name']} " in text
    for sample in found["samples"]:
        assert f"\n{sample['shape_category']}" in text
    assert found["group"] in text
    assert f"K {found['complexity']}" in text
    assert all(relation in text for relation in found["relations"])


def test_why_there_is_no_backward_and_where_there_is() -> None:
    assert "no: the output is an index" in printed(render_task, describe(find("argmax")), 120)
    assert "yes; not under outlier" in printed(render_task, describe(find("attention")), 120)
