"""The page on models has every setting."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from kerneleval import devices
from kerneleval.generators.common.base import usual_language
from kerneleval.generators.llm.settings import PriceTable, Settings

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text()


def test_every_setting_is_explained() -> None:
    explained = {
        name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([a-z_]+)`", row)
    }
    assert explained == {field.name for field in dataclasses.fields(Settings)}


def test_every_price_is_explained() -> None:
    for field in dataclasses.fields(PriceTable):
        assert f"`{field.name}`" in PAGE, field.name


def test_defaults_are_those_of_the_program() -> None:
    shown = dict(re.findall(r"^\| `([a-z_]+)` \| ([0-9]+|true|`[a-z_]+`) \|", PAGE, re.MULTILINE))
    assert len(shown) > 10
    for field in dataclasses.fields(Settings):
        if field.name in shown:
            default = str(field.default).lower() if isinstance(field.default, bool) else f"{field.default}"
            assert shown[field.name].strip("`") in (default, default.removesuffix(".0")), field.name


def test_every_device_has_its_language() -> None:
    (row,) = re.findall(r"^\| `language` \|.*$", PAGE, re.MULTILINE)
    told = re.findall(r"`(\w+)` on ([a-z, ]+?)(?=, `| \|)", row)
    by_device = {device: language for language, those in told for device in re.split(r", | and ", those)}
    assert by_device == {device: usual_language(device) for device in devices.names()}
