"""Generators from TOML files: what is asked for, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.generators.agent.agents import FakeCache

from kerneleval import generators
from kerneleval.generators.common import settings
from kerneleval.records import UsageError


class Made:
    """What a kind gets."""

    name, summary = "made", "for a test"

    def __init__(self, *given: object) -> None:
        self.given = given

    def candidates(self, task, device):
        return ()


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.KINDS, "all", lambda: {"model": Made})


def write(folder: Path, text: str) -> str:
    path = folder / "g.toml"
    path.write_text(text)
    return str(path)


def test_a_kind_gets_its_settings(tmp_path: Path, kind: None) -> None:
    cache, path = FakeCache(), write(tmp_path, '[generator]\nkind = "model"\nname = "a"\nsamples = 3\n')
    found = generators.find(path, cache)
    assert isinstance(found, Made)
    assert found.given == ({"name": "a", "samples": 3}, f"{path}: [generator]", cache)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[generator\n", "is no TOML"),
        ("kind = 'model'\n", r"there is no table \[generator\]"),
        ("[generator]\nname = 'a'\n", r"\[generator\] kind is missing; .*model"),
        ("[generator]\nkind = 'modle'\n", "kind 'modle' is unknown; did you mean model"),
        ("[generator]\nkind = 'model'\n[prices]\nx = 1\n", "unknown table or key 'prices'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, kind: None, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        generators.find(write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory or file"):
        generators.find(str(tmp_path / "no.toml"))


def test_every_kind_is_a_module_of_the_package() -> None:
    names = {path.stem for path in Path(generators.__file__).parent.iterdir()}
    assert set(settings.KINDS.names()) <= {name.removesuffix(".py") for name in names}
