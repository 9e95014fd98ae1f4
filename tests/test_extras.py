"""Optional packages: each has an extra that brings it, and an error that names that extra where one is missing."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from kerneleval import cli
from kerneleval.records import UsageError
from kerneleval.records.errors import EXTRAS, how_to_install, optional

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
INDIRECT = {"markupsafe": "jinja2", "lizard_languages": "lizard", "httpx2": "openai"}
"""Module -> the package that brings it along."""


def test_each_extra_brings_its_modules():
    for module, extra in EXTRAS.items():
        wanted = INDIRECT.get(module, module).replace("_", "-")
        names = [re.match(r"[\w-]+", line)[0].lower() for line in PROJECT["optional-dependencies"][extra]]
        assert wanted in names, f"{module}: {names}"


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    said = r"^prices need genai_prices; .* pip install 'kerneleval\[llm\]'$"
    with pytest.raises(UsageError, match=said), optional("prices need"):
        import genai_prices  # noqa: F401
    assert how_to_install("jinja2", "llm") == "pip install 'kerneleval[llm]'"


def test_other_modules_are_not_ours_to_explain():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), optional("this needs"):
        import no_such_module  # noqa: F401


@pytest.mark.slow
def test_an_estimate_names_the_extra(monkeypatch, tmp_path, capsys):
    pytest.importorskip("jinja2", reason="Jinja2 is not installed (pip install 'kerneleval[llm]')")
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    settings = tmp_path / "model.toml"
    settings.write_text('[generator]\nkind = "llm"\nmodel = "gpt-4o"\n')
    words = ["estimate", "-g", str(settings), "--task", "relu", "--device", "cpu", "--store", str(tmp_path / "s.db")]
    assert cli.main(words) == 2
    assert "pip install 'kerneleval[llm]'" in " ".join(capsys.readouterr().err.split())
