"""What is asked for on a device where nothing names a language, and how its file is called."""

from __future__ import annotations

import pytest

from kerneleval import devices, languages
from kerneleval.generators.common.base import candidate_name, usual_language


@pytest.mark.parametrize("device", devices.names())
def test_the_usual_language_runs_on_the_device(device: str) -> None:
    assert device in languages.find(usual_language(device)).devices


@pytest.mark.parametrize("language", sorted(languages.all_languages()))
def test_a_files_suffix_is_its_languages(language: str) -> None:
    suffix = "." + candidate_name(language).rsplit(".", 1)[1]
    assert suffix in languages.find(language).suffixes
