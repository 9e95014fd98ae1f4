"""Public is what ``__all__`` says: every such name exists, and nothing else is shown."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import kerneleval

SOURCE = Path(kerneleval.__file__).parent


def modules() -> list[str]:
    names = [info.name for info in pkgutil.walk_packages([str(SOURCE)], "kerneleval.")]
    return sorted(name for name in names if not name.endswith("__main__"))


@pytest.mark.parametrize("name", kerneleval.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(kerneleval, name) is not None


def test_dir_shows_what_is_public() -> None:
    assert dir(kerneleval) == sorted(kerneleval.__all__)
    assert len(set(kerneleval.__all__)) == len(kerneleval.__all__)


def test_public_names_come_from_where_type_checkers_are_told() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert told == {name: home for name, home in kerneleval._HOME.items() if name != "__version__"}


def test_an_unknown_name_is_an_attribute_error_that_names_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'chek'.*check"):
        kerneleval.chek  # noqa: B018


@pytest.mark.parametrize("module", modules())
def test_all_of_a_module_exists_in_it(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name), f"{module}.__all__ names {name}, which is not there"


def test_every_module_says_what_it_is() -> None:
    silent = [
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "examples"  # candidates that models are shown
        and path.read_text().strip()
        and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent
