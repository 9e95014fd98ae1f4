"""The registry of plugins: what it finds in a package, and what it says of a package that is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from kerneleval.records import KernelEvalError, UsageError
from kerneleval.records.registry import Registry

Make = Callable[..., Registry]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A registry over a new package ``animals`` with the modules given; names end in ``/`` for packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)

    def made(options: str = "", **modules: str) -> Registry:
        package = tmp_path / "animals"
        package.mkdir()
        (package / "__init__.py").write_text(
            "from kerneleval.records.registry import Registry\n"
            "ANIMALS = Registry('animal', 'animals', problem=lambda p: '' if callable(p) or p.name else 'no name'"
            f"{options})\nregister = ANIMALS.register\n"
        )
        for name, text in modules.items():
            text = dedent(text)
            if name.endswith("_package"):
                folder = package / name.removesuffix("_package")
                folder.mkdir()
                (folder / "__init__.py").write_text(text)
            else:
                (package / f"{name}.py").write_text(text)
        import animals

        return animals.ANIMALS

    yield made
    for name in set(sys.modules) - known:
        if name.partition(".")[0] == "animals":
            del sys.modules[name]


CAT = """
    from animals import register

    @register
    class Cat:
        name = "cat"
    """

DOG = """
    from animals import register

    @register
    def dog():
        return "woof"
    """


def test_classes_functions_and_objects_are_found(make: Make) -> None:
    registry = make(
        cat=CAT,
        dog=DOG,
        many="from animals import register\nfrom animals.cat import Cat\n"
        "for _name in ('lynx', 'puma'):\n    _one = Cat()\n    _one.name = _name\n    register(_one)\n",
    )
    assert registry.names() == ("cat", "dog", "lynx", "puma")
    assert registry.find("dog")() == "woof"
    assert type(registry.find("cat")).__name__ == "Cat"


def test_a_plugin_is_returned_unchanged(make: Make) -> None:
    registry = make(cat=CAT)
    from animals.cat import Cat

    assert isinstance(Cat, type)
    assert registry.register(len) is len


def test_modules_are_imported_at_the_first_look_up(make: Make) -> None:
    registry = make(cat=CAT)
    assert "animals.cat" not in sys.modules
    registry.names()
    assert "animals.cat" in sys.modules


def test_an_unknown_name_suggests_near_ones(make: Make) -> None:
    with pytest.raises(UsageError, match="no animal is called 'caat'; did you mean cat"):
        make(cat=CAT, dog=DOG).find("caat")


def test_an_import_error_is_shown_each_time(make: Make) -> None:
    registry = make(cat="import no_such_module")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            registry.names()


def test_a_module_without_a_plugin_is_an_error(make: Make) -> None:
    registry = make(cat=CAT, helper="x = 1")
    with pytest.raises(KernelEvalError, match=r"animals/helper\.py declares no animal: put @register"):
        registry.all()


def test_two_of_one_name_are_an_error_that_names_both_places(make: Make) -> None:
    registry = make(cat=CAT, tom=CAT)
    with pytest.raises(KernelEvalError, match=r"two animals are called 'cat': at \S+cat\.py:\d+ and at \S+tom\.py:\d+"):
        registry.all()


def test_what_is_no_plugin_is_an_error_that_names_its_place(make: Make) -> None:
    registry = make(cat="from animals import register\n\n@register\nclass Cat:\n    name = ''\n")
    with pytest.raises(KernelEvalError, match=r"cat\.py:\d+: this is no animal: no name"):
        registry.all()


def test_a_name_other_than_the_modules(make: Make) -> None:
    registry = make(", module_is_name=True", tom=CAT)
    with pytest.raises(KernelEvalError, match=r"tom\.py:\d+: the animal 'cat' must have the name of its module, 'tom'"):
        registry.all()


def test_a_function_has_the_name_of_its_module(make: Make) -> None:
    registry = make(", module_is_name=True", rex=DOG)
    assert registry.names() == ("rex",)


def test_packages_hold_helpers(make: Make) -> None:
    registry = make(cat=CAT, helpers_package="raise AssertionError")
    assert registry.names() == ("cat",)


def test_packages_hold_plugins_where_the_registry_says_so(make: Make) -> None:
    registry = make(", packages=True", dog_package=DOG, common_package="raise AssertionError")
    assert registry.names() == ("dog",)


def test_options_have_defaults(make: Make) -> None:
    slow = DOG.replace("@register", "@register(slow=True)")
    registry = make(", options={'slow': False}", cat=CAT, dog=slow)
    assert [registry.option(name, "slow") for name in registry.names()] == [False, True]


def test_an_unknown_option_is_an_error(make: Make) -> None:
    registry = make(", options={'slow': False}", dog=DOG.replace("@register", "@register(slwo=True)"))
    with pytest.raises(KernelEvalError, match=r"dog\.py:\d+: option 'slwo' is unknown; did you mean slow"):
        registry.all()


def test_two_registries_of_one_package(make: Make) -> None:
    registry = make(cat=CAT, food="from animals import FOOD\nFOOD.register(print, name='fish')\n")
    import animals

    animals.FOOD = Registry("food", "animals", problem=lambda plugin: "", beside=registry)
    assert registry.names() == ("cat",)
    assert animals.FOOD.names() == ("fish",)


def test_a_file_of_the_user(make: Make, tmp_path: Path) -> None:
    registry = make(cat=CAT)
    file = tmp_path / "mine.py"
    file.write_text(dedent(CAT))  # the name of one that is built in
    for _ in range(2):
        assert list(registry.of_file(file)) == ["cat"]
    assert type(registry.find("cat")).__module__ == "animals.cat"
    file.write_text("1 / 0")
    with pytest.raises(UsageError, match=r"the animal \S+mine\.py cannot be used: ZeroDivisionError"):
        registry.of_file(file)
    assert registry.names() == ("cat",)
