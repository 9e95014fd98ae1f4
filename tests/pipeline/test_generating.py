"""Asking without judging: prompts, candidates as files, and what a run would cost beside what it did cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("openai", reason="the openai package is not installed (pip install 'kerneleval[llm]')")

from tests.generators.llm.chat_server import GOOD, Say, serving

from kerneleval import cli, devices, generators, pipeline, tasks
from kerneleval.cli import app
from kerneleval.generators.common.base import usual_language
from kerneleval.generators.common.prompts import TEMPLATES
from kerneleval.judge import Judge
from kerneleval.languages.common import opencl_runtime
from kerneleval.records import Limits, Protocol, Request, RunSpec, UsageError, asked

from .test_sampling import price, settings, usage


def test_prompts_are_printed_and_nothing_is_asked(tmp_path: Path) -> None:
    with serving(lambda body, number: Say()) as server:
        path = settings(tmp_path, server)
        options = ["generate", "-g", path, "-t", "relu", "-t", "gelu", "--device", "cpu", "--dry-run"]
        store = ["--store", str(tmp_path / "s.db")]
        shown = CliRunner().invoke(app, [*options, *store])
        assert shown.exit_code == 0, shown.output
        assert "[system]" in shown.output and "# Task: relu" in shown.output and "# Task: gelu" in shown.output
        prompts = json.loads(CliRunner().invoke(app, [*options, *store, "--json"]).stdout)
        assert not server.requests
        assert [p["task"] for p in prompts] == ["relu", "gelu"]
        assert [m["role"] for m in prompts[0]["messages"]] == ["system", "user"]
    assert not (tmp_path / "s.db").exists()
    with pytest.raises(UsageError, match="robust has no prompts: only models"):
        pipeline.prompts(RunSpec(generators=("robust",), tasks=("relu",), device="cpu"), Protocol())


def test_the_prompt_is_in_the_language_of_the_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")
    fast = Limits(bandwidth_bytes_per_s=1e13, flop_per_s=(("float32", 1e15),))
    monkeypatch.setattr("kerneleval.judge.machine.peaks.measure_limits", lambda *_, **__: fast)  # takes ten seconds
    with serving(lambda body, number: Say()) as server:
        options = ["generate", "-g", settings(tmp_path, server, language=""), "-t", "gelu", "--device", "opencl"]
        options += ["--dry-run", "--store", str(tmp_path / "s.db")]
        assert cli.main(options) == 0
        shown = capsys.readouterr().out
        assert cli.main([*options, "--json"]) == 0
        (prompt,) = json.loads(capsys.readouterr().out)
        assert not server.requests
    assert "opencl/v1" in shown and "kernel void gelu_float32(" in shown and "compute units" in shown
    assert prompt["template"] == "opencl/v1"
    text = prompt["messages"][-1]["content"]
    assert "tagged `opencl`" in text and "for another task, `softmax`" in text


def test_every_device_has_a_language_with_a_prompt(tmp_path: Path) -> None:
    with serving(lambda body, number: Say()) as server:
        model = generators.find(settings(tmp_path, server, language=""))
    assert isinstance(model, generators.llm.Model)
    for device in devices.names():
        request = Request(task=tasks.find("gelu"), device=device)
        assert model.prompt(request).template == f"{usual_language(device)}/v1" in TEMPLATES
    assert model.language("opencl") == "opencl" and model.language("metal") == "metal"


STRING = """
from kerneleval.tasks.define import ROWS, data, operator, plain

TASKS = (operator("named", "elementwise", "out = x", dims=ROWS, args=(data("x", "M N"), plain("mode", "up")),
                  out=("M N",), reference=lambda x, mode: x * 1, flops="M * N"),)
"""


@pytest.mark.parametrize(
    ("more", "task", "device", "said"),
    [
        ({}, "gelu", "metal", "error: device 'metal' cannot be used here: "),
        ({}, "gelu", "quantum", "error: no device is called 'quantum'; known are cpu, "),
        ({"language": "openclc"}, "gelu", "cpu", "language 'openclc' has no prompt; did you mean opencl?"),
        ({"language": "opencl", "template": "metal/v1"}, "gelu", "cpu", "the template 'metal/v1' is not for opencl"),
        (
            {"language": "opencl"},
            "STRING",
            "cpu",
            "no OpenCL C kernel can take, mode (string): ask for another language",
        ),
        ({"language": "metal"}, "STRING", "cpu", "no Metal kernel can take, mode (string): ask for another language"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, str], task: str, device: str, said: str
) -> None:
    if device == "metal" and not devices.find("metal").available():
        pytest.skip("not run: there is a Metal device")
    own = tmp_path / "own.py"
    own.write_text(STRING)
    with serving(lambda body, number: Say()) as server:
        path = settings(tmp_path, server, **({"language": ""} | more))
        options = ["-t", str(own) if task == "STRING" else task, "--device", device, "--store", str(tmp_path / "s.db")]
        assert cli.main(["generate", "-g", path, *options, "--dry-run"]) == 2
        shown = capsys.readouterr()
        assert not server.requests
    assert shown.out == "" and shown.err.startswith("error: ") and said in shown.err
    assert shown.err.count("\n") == 1


def test_candidates_become_files_that_are_a_generator(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Say:
        return Say(text="I won't." if body["seed"] == 2 else GOOD, usage=usage(body["seed"]))

    out = tmp_path / "out"
    with serving(script) as server:
        path = settings(tmp_path, server, samples=4)
        spec = RunSpec(generators=(path,), tasks=("relu",), device="cpu", store_url=str(tmp_path / "s.db"))
        found = pipeline.generate(spec, Protocol(), out)
        again = pipeline.generate(spec, Protocol(), out)
        assert again == found and len(server.requests) == 4
    assert found["candidates"] == 3 and found["without"] == {"refused": 1}
    assert found["usd"] == pytest.approx(sum(price(s) for s in range(4)), abs=1e-12)
    assert (out / "relu" / "sample_2.answer.txt").read_text() == "I won't."
    maker = generators.find(str(out))
    assert isinstance(maker, generators.Generator)
    made = list(maker.candidates(tasks.find("relu"), "cpu"))
    assert [c.origin.sample for c in made] == [0, 1, 3]
    assert [c.origin.money_usd for c in made] == pytest.approx([price(s) for s in (0, 1, 3)], abs=1e-12)
    assert {c.origin.generator for c in made} == {"tiny"}


def test_a_place_is_needed() -> None:
    done = CliRunner().invoke(app, ["generate", "-g", "robust"])
    assert isinstance(done.exception, UsageError) and "--out FOLDER" in str(done.exception)


def test_an_estimate_and_the_run_that_it_is_of(tmp_path: Path, judge: Judge) -> None:
    store = str(tmp_path / "s.db")
    common: dict[str, Any] = {"device": "cpu", "store_url": store, "tier": "quick"}
    cheap: dict[str, Any] = {"directions": ("forward",), "categories": ("tiny",), "timed": False, "judge": judge}
    with serving(lambda body, number: Say(usage=usage(body["seed"]))) as server:
        path = settings(tmp_path, server, samples=4)
        blind = pipeline.estimate(*asked(RunSpec, {"generators": (path,), "tasks": ("relu",), **common}))["generators"][
            "tiny"
        ]
        assert blind["requests"] == 4
        assert "assumed" in blind["tokens_out"]["basis"] and "asking_s" not in blind
        assert blind["judging_s"] is None
        assert blind["tokens_in"]["low"] < blind["tokens_in"]["value"] < blind["tokens_in"]["high"]
        pipeline.run((path,), ("relu",), **cheap, **common)

        path = settings(tmp_path, server, samples=12)
        told = pipeline.estimate(*asked(RunSpec, {"generators": (path,), "tasks": ("relu",), **common}))["generators"][
            "tiny"
        ]
        run = pipeline.run((path,), ("relu",), **cheap, **common)
        found = pipeline.estimate(*asked(RunSpec, {"generators": (path,), "tasks": ("relu",), **common}), against=run)[
            "generators"
        ]["tiny"]
    assert told["requests"] == 12 and "4 earlier answers" in told["tokens_out"]["basis"]
    exact = {
        "tokens_in": sum(usage(s)["prompt_tokens"] for s in range(12)),
        "tokens_out": sum(usage(s)["completion_tokens"] for s in range(12)),
        "usd": sum(price(s) for s in range(12)),
    }
    for key, actual in exact.items():
        assert found[key]["actual"] == pytest.approx(actual, abs=1e-9)
        assert told[key]["low"] <= actual <= told[key]["high"], key
        assert told[key]["value"] == pytest.approx(actual, rel=0.1), key
    assert told["judging_s"]["value"] > 0 and found["judging_s"]["actual"] > 0
    shown = CliRunner().invoke(
        app, ["estimate", "-g", path, "-t", "relu", "--device", "cpu", "--quick", "--store", store, "--against", run]
    )
    assert shown.exit_code == 0 and "tokens out" in shown.output and "the run" in shown.output
