"""Libraries and torch.compile as generators."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kerneleval import generators, tasks
from kerneleval.generators.library.kernels import KERNELS, MODULES
from kerneleval.records import UsageError


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: f"{kernel.library}-{kernel.task}-{kernel.name}")
def test_a_wrapper_takes_the_arguments_of_its_task(kernel) -> None:
    task = tasks.find(kernel.task)
    smallest = {dim.name: -(-dim.low // dim.multiple_of) * dim.multiple_of for dim in task.dims}
    names = [argument.name for argument in task.arguments(smallest, task.dtypes[0])]
    functions = {node.name: node for node in ast.parse(kernel.source).body if isinstance(node, ast.FunctionDef)}
    taken = [argument.arg for argument in functions["run"].args.args]
    assert len(taken) == len(names)
    assert not set(taken) & set(names) or taken == names, "one that is called alike must stand in its place"


def test_a_library_that_is_not_there_is_named() -> None:
    for library in MODULES:
        assert list(generators.find(library).candidates(tasks.find("softmax"), "cpu")) == []
    with pytest.raises(UsageError, match="pip install liger-kernel"):
        list(generators.find("liger").candidates(tasks.find("softmax"), "cuda"))  # type: ignore[union-attr]


def settings(folder: Path, text: str) -> str:
    path = folder / "own.toml"
    path.write_text('[generator]\nkind = "library"\npackage = "math"\ndevices = ["cpu"]\n' + text)
    return str(path)


def test_a_library_of_ones_own(tmp_path: Path) -> None:
    path = settings(
        tmp_path,
        '[generator.operators]\nrelu = "math.deep:Rows.relu"\n'
        '[[generator.operators.softmax]]\ncall = "math:softmax"\narguments = ["x", -1]\noptions = { fast = true }\n'
        '[[generator.operators.softmax]]\ncall = "math:other"\n',
    )
    maker = generators.find(path)
    assert isinstance(maker, generators.Generator)
    (relu,) = maker.candidates(tasks.find("relu"), "cpu")
    assert "from math.deep import Rows as _library" in relu.main and "return _library.relu(x)" in relu.main
    first, second = maker.candidates(tasks.find("softmax"), "cpu")
    assert "return _library(x, -1, fast=True)" in first.main and second.origin.sample == 1
    assert list(maker.candidates(tasks.find("softmax"), "cuda")) == []
    for candidate in (relu, first, second):
        ast.parse(candidate.main)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "operators is missing"),
        ('[generator.operators]\nrelu = "math.relu"\n', "module:function"),
        ('[generator.operators.relu]\ncal = "math:relu"\n', "did you mean call"),
        ('[generator.operators.relu]\ncall = "math:relu"\noptions = { a = [1] }\n', "options must be a table"),
        ('[generator.operators.relu]\ncall = "math:relu; import os"\n', "module:function"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        generators.find(settings(tmp_path, text))


def test_an_argument_that_the_task_lacks_is_named(tmp_path: Path) -> None:
    path = settings(tmp_path, '[generator.operators.relu]\ncall = "math:relu"\narguments = ["y"]\n')
    with pytest.raises(UsageError, match="relu has no argument 'y'"):
        list(generators.find(path).candidates(tasks.find("relu"), "cpu"))  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["gelu", "softmax_cross_entropy", "attention", "softmax_one"])
def test_compiled_references_are_called_by_their_own_entry(name: str) -> None:
    (made,) = generators.find("compile").candidates(tasks.find(name), "cpu")
    ast.parse(made.main)
    assert made.entry == "run" and "torch.compile(reference)" in made.main
    assert "fail_on_cache_limit_hit = True" in made.main


def test_modes_of_compile(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[generator]\nkind = "compile"\nmode = "max-autotune"\nfullgraph = true\n')
    maker = generators.find(str(path))
    assert maker.name == "compile-max-autotune"
    (made,) = maker.candidates(tasks.find("gelu"), "cpu")  # type: ignore[union-attr]
    assert "torch.compile(reference, mode='max-autotune', fullgraph=True)" in made.main
    path.write_text('[generator]\nkind = "compile"\nmode = "max-autotun"\n')
    with pytest.raises(UsageError, match="did you mean max-autotune"):
        generators.find(str(path))
