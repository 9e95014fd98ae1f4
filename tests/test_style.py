"""No function takes more than eight parameters, and none is longer than sixty lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kerneleval

SOURCE = Path(kerneleval.__file__).parent
PARAMETERS = 8
LINES = 60
COMMAND_LINE = SOURCE / "cli"
"""Its commands take one parameter for each option."""
REFERENCES = SOURCE / "tasks" / "operators" / "optimizer"
"""Its private functions are references: their parameters are the arguments of the optimizer's step."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[Path, Function]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if COMMAND_LINE not in path.parents:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, Function):
                    yield path, node


def parameters(function: Function) -> list[str]:
    taken = function.args
    named = [arg.arg for arg in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return [name for name in named if name not in ("self", "cls")]


def takes_the_operators_arguments(path: Path, function: Function) -> bool:
    is_kernel = any(ast.unparse(decorator) == "triton.jit" for decorator in function.decorator_list)
    return is_kernel or (path.parent == REFERENCES and function.name.startswith("_"))


def test_no_function_takes_more_than_eight_parameters() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{function.lineno} {function.name}: {len(parameters(function))}"
        for path, function in functions()
        if len(parameters(function)) > PARAMETERS and not takes_the_operators_arguments(path, function)
    ]
    assert not found


def test_no_function_is_longer_than_sixty_lines() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{function.lineno} {function.name}: {lines}"
        for path, function in functions()
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > LINES
    ]
    assert not found


def test_a_public_method_without_a_docstring_is_one_of_a_documented_interface() -> None:
    """Devices and languages leave out docstrings of what their interfaces, such as ``Device``, describe."""
    methods = {
        (path, owner.name, method.name): ast.get_docstring(method) or ""
        for room in ("devices", "languages")
        for path in sorted((SOURCE / room).rglob("*.py"))
        for owner in ast.parse(path.read_text()).body
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
    }
    interfaces = {("devices", "Device"), ("devices", "EventTimer")}
    interfaces |= {("languages", name) for name in ("Language", "Loaded", "Native")}
    described = {
        (path.relative_to(SOURCE).parts[0], name)
        for (path, owner, name), text in methods.items()
        if text and (path.relative_to(SOURCE).parts[0], owner) in interfaces
    }
    missing = [
        f"{path.relative_to(SOURCE)}: {owner}.{name}"
        for (path, owner, name), text in methods.items()
        if not text
        and owner[0] != "_"
        and name[0] != "_"
        and (path.relative_to(SOURCE).parts[0], name) not in described
    ]
    assert not missing
