"""The doctor: what it finds is tried on the machine, and what is missing comes with a way to get it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kerneleval import cli
from kerneleval.judge.windows import worker_pool
from kerneleval.pipeline import doctor
from kerneleval.worker.host import zygote_of


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("doctor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "zygote_of", zygote_of)  # as it starts by itself
        return doctor.examine(str(folder / "new.db"), folder / "not" / "there" / "yet")


def test_the_cpu_judges(found: dict[str, Any]) -> None:
    assert found["usable"]
    (cpu,) = (device for device in found["devices"] if device["name"] == "cpu")
    assert cpu["available"]
    assert cpu["machine"]["memory_bytes"] > 1 << 28
    assert cpu["machine"]["units"] >= 1
    assert cpu["case_budget_bytes"] > 0
    assert cpu["case_budget_flops"] > 0
    ready = {language["name"] for language in cpu["languages"] if not language["missing"]}
    assert {"cpp", "torch"} <= ready


def test_the_sandbox_is_that_of_a_real_worker(found: dict[str, Any]) -> None:
    (cpu,) = (device for device in found["devices"] if device["name"] == "cpu")
    sandbox = cpu["sandbox"]
    assert not sandbox["error"]
    assert sandbox["level"] in ("strong", "standard", "weak")
    assert "process" in sandbox["layers"]
    assert sandbox["level"] == "strong" or sandbox["missing"]
    assert 0 < sandbox["fork_s"] < sandbox["zygote_start_s"]


def test_what_is_missing_is_advice(found: dict[str, Any]) -> None:
    for device in found["devices"]:
        if not device["available"]:
            assert device["reason"]
            assert any(line.startswith(f"{device['name']}: ") for line in found["advice"])


def test_it_is_plain_data(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_compilers_have_versions_or_are_absent(found: dict[str, Any]) -> None:
    names = {compiler["name"] for compiler in found["compilers"]}
    assert {"c++", "nvcc", "nvrtc", "hipcc", "triton", "numba", "pyopencl"} == names
    packages = ("triton", "numba", "pyopencl")
    for compiler in found["compilers"]:
        assert bool(compiler["version"]) == bool(compiler["path"]) or compiler["name"] in packages


@pytest.mark.serial
def test_the_clock_is_measured() -> None:
    measured = doctor.clock(spins=60)
    assert 0 < measured["resolution_ns"] < 100_000
    assert 2e5 < measured["spin_ns"] < 2e7
    assert 0 <= measured["spread"] < 5
    assert measured["p99_over_median"] >= 1
    assert 0 <= measured["stalls"] <= 1


def test_a_store_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    place = tmp_path / "text.db"
    place.write_text("this is no database, but long enough to be looked at as one" * 10)
    answer = doctor._store(str(place))
    assert not answer["reachable"]
    assert str(place) in answer["message"]
    assert not doctor._store(str(tmp_path / "no" / "folder.db"))["reachable"]
    assert doctor._store(str(tmp_path / "new.db"))["reachable"]
    assert not (tmp_path / "new.db").exists(), "looking must not make one"


def test_a_server_that_does_not_answer_is_said_without_its_password() -> None:
    answer = doctor._store("postgresql://me:secret@127.0.0.1:1/results")
    assert not answer["reachable"]
    assert "secret" not in json.dumps(answer)


def test_the_text_says_the_same(found: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from kerneleval.reports import machine_view

    machine_view.render_doctor(found, Console(width=140))
    text = " ".join(capsys.readouterr().out.split())
    assert "This machine can judge." in text
    for compiler in found["compilers"]:
        assert (compiler["version"] or f"{compiler['name']}: absent") in text


def test_as_a_command(
    found: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: found)
    assert cli.main(["doctor", "--store", str(tmp_path / "s.db"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {
        "usable",
        "versions",
        "clock",
        "memory",
        "compilers",
        "devices",
        "store",
        "advice",
    }


def test_without_torch_it_says_what_to_install() -> None:
    code = """
import importlib.abc, importlib.util, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
from kerneleval import cli
sys.exit(cli.main(["doctor", "--json"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert not answer["usable"]
    assert any("pip install torch" in line for line in answer["advice"])
