"""Finding tasks: families, duplicates, import errors, near names, files."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from kerneleval import tasks
from kerneleval.judge.oracle.reference_call import ReferenceCall
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import CATEGORIES, Case, KernelEvalError, Protocol, Task, UsageError
from kerneleval.reports import tasks as report
from kerneleval.reports import tasks_view

DEFINITION = """
import torch
from kerneleval.tasks.define import ROWS, data, operator

def make(name):
    return operator(name, "elementwise", "out = 2 x", dims=ROWS, args=(data("x", "M N"),), out=("M N",),
                    reference=lambda x: 2 * x, flops="M * N")
"""


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **modules: str) -> str:
    """A package of families, as ``tasks.operators`` is."""
    name = f"families_{abs(hash(str(tmp_path)))}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(DEFINITION + textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_every_category_has_its_four_operators() -> None:
    found = tasks.all_tasks()
    assert len(tasks.CORE) == len(set(tasks.CORE)) == 28
    for category in CATEGORIES:
        assert sum(found[name].category == category for name in tasks.CORE) == 4, category
    assert all(name == task.name for name, task in found.items())
    assert tasks.find("gelu") is found["gelu"]


def test_looking_tasks_up_is_what_imports_torch() -> None:
    script = "import sys, kerneleval.tasks, kerneleval.tasks.shapes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "right"), [("gleu", "gelu"), ("layernorm", "layer_norm"), ("batched", "batched_matmul")]
)
def test_an_unknown_name_suggests_near_ones(wrong: str, right: str) -> None:
    with pytest.raises(UsageError, match=right):
        tasks.find(wrong)


@pytest.mark.slow
def test_a_look_up_imports_the_family_of_the_task_alone() -> None:
    script = (
        "import sys; from kerneleval.tasks import find; find('gelu'); find('conv2d_relu_bias_add');"
        "print(*sorted(m.split('operators.')[1] for m in sys.modules if 'tasks.operators.' in m))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["elementwise", "elementwise.activation", "fused", "fused.chains"]


@pytest.mark.parametrize("name", tuple(tasks.all_tasks())[::25])
def test_the_family_is_among_the_first_that_are_looked_at(name: str) -> None:
    assert tasks._by_likelihood(name).index(tasks.home(name)) < 7


def test_an_alias_names_a_task_and_is_none_itself() -> None:
    found = tasks.all_tasks()
    for alias, name in tasks.ALIASES.items():
        assert alias not in found
        assert tasks.find(alias) is tasks.open_task(alias) is found[name]


def test_aliases_are_in_the_list_and_in_the_view_of_a_task() -> None:
    shown = io.StringIO()
    tasks_view.render_tasks([report.summarise(tasks.find("cat"))], Console(file=shown, width=200))
    assert "hstack = cat" in shown.getvalue()
    assert report.describe(tasks.find("solve"))["aliases"] == ["lu_factor_solve", "qr_solve"]


def test_a_new_family_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = package(tmp_path, monkeypatch, one='TASKS = (make("twice"),)', two='TASKS = (make("again"),)')
    assert list(tasks._discover(families)) == ["again", "twice"]


def test_two_tasks_of_one_name_are_an_error_that_names_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    families = package(tmp_path, monkeypatch, one='TASKS = (make("twice"),)', two='TASKS = (make("twice"),)')
    with pytest.raises(KernelEvalError, match=r"'twice'.*\.one and in .*\.two"):
        tasks._discover(families)


def test_an_import_error_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = package(tmp_path, monkeypatch, broken="import a_module_that_is_not_there")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        tasks._discover(families)


def test_a_family_without_tasks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelEvalError, match=r"one\.py: TASKS must be a tuple"):
        tasks._discover(package(tmp_path, monkeypatch, one="TASKS = [make('twice')]"))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("category='elementary'", "category 'elementary' is unknown"),
        ("dtypes=('float8',)", "dtypes: 'float8' is unknown"),
        ("layouts=()", "layouts is empty"),
        ("name='two words'", "must be an identifier"),
        ("dims=(Dim(name='M', low=5, high=7, multiple_of=4), Dim(name='N'))", "dim M: no multiple of 4 is in"),
        ("dims=(Dim(name='M', scaled=False), Dim(name='N', scaled=False))", "nothing to sample"),
        ("dims=(Dim(name='M'), Dim(name='M'))", "two dims share a name"),
    ],
)
def test_a_declaration_that_does_not_hold_together_is_refused(field: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        DEFINITION
        + "import dataclasses\nfrom kerneleval.records import Dim\n"
        + f"TASKS = (dataclasses.replace(make('twice'), {field}),)\n"
    )
    with pytest.raises(UsageError, match=message) as caught:
        tasks.open_task(str(file))
    assert "mine.py" in str(caught.value)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(DEFINITION + 'TASKS = (make("twice"),)\n')
    task = tasks.open_task(str(file))
    assert isinstance(task, Task)
    assert task.name == "twice"
    file.write_text(DEFINITION + 'TASKS = (make("twice"), make("thrice"))\n')
    with pytest.raises(UsageError, match=r"defines 2 tasks: name one, as in .*mine\.py:thrice"):
        tasks.open_task(str(file))
    assert tasks.open_task(f"{file}:thrice").name == "thrice"
    with pytest.raises(UsageError, match="has no task 'thrise'; did you mean thrice"):
        tasks.open_task(f"{file}:thrise")


OWN = (
    DEFINITION
    + """
def run(x):
    return (x.to(torch.float32) / 3).to(x.dtype)

TASKS = (operator("third", "elementwise", "out = x / 3", dims=ROWS, args=(data("x", "M N"),), out=("M N",),
                  reference=lambda x: run(x), flops="M * N"),)
"""
)


@pytest.mark.parametrize("kind", ["eager", "compile"])
def test_the_baseline_of_ones_own_file_leaves_its_names_alone(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    candidate = baseline_candidate(tasks.open_task(str(tmp_path / "mine.py")), Protocol(baseline=kind))
    names: dict[str, Any] = {}
    exec(candidate.files[0][1].replace("torch.compile", "(lambda f: f)"), names)
    assert float(names[candidate.entry](torch.tensor(6.0))) == 2


def test_the_oracle_of_ones_own_file_widens_what_it_casts_to_fp32(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    task = tasks.open_task(str(tmp_path / "mine.py"))
    case = Case(task="third", direction="forward", dims=(("M", 4), ("N", 5)), dtype="float32")
    (found,) = ReferenceCall(task=task, case=case, args=[torch.ones(4, 5, dtype=torch.float64)]).run("fp64")
    assert float((found - 1 / 3).abs().max()) < 1e-15
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the task file .*missing"),
        ("x = 1", "defines no task: a KernelBench problem has"),
        ("def (:", "cannot read the task file"),
        ("TASKS = ()", "must be a tuple of one or more"),
        ("TASKS = undefined", "raised NameError"),
    ],
)
def test_a_file_that_is_no_task(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "missing.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=message):
        tasks.open_task(str(file))


def test_a_built_in_name_opens_too() -> None:
    assert tasks.open_task("softmax_cross_entropy").category == "fused"
