"""A run of an agent, judged by the real judge: its drafts, its budget, what it cannot read."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kerneleval import pipeline
from kerneleval.judge import Judge
from kerneleval.store import open_store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's")

AGENT = """
import json, os, pathlib, subprocess, sys

SOURCE = "import torch\\n\\n\\ndef relu(x):\\n    return torch.{}(x)\\n"
print(json.dumps({"sees": sorted(os.listdir()), "task": "relu" in open("TASK.md").read(),
                  "reference": "torch" in open("reference.py").read(), "device": json.load(open("device.json"))}))


def check(function):
    pathlib.Path("candidate.py").write_text(SOURCE.format(function))
    done = subprocess.run(["kerneleval", "check", "candidate.py"], capture_output=True, text=True)
    print(json.dumps({"check": function, "code": done.returncode, "said": done.stdout + done.stderr}))


def look(place):
    try:
        found = os.listdir(place) if os.path.isdir(place) else open(place, "rb").read(100)
        print(json.dumps({"read": str(place), "got": repr(found)[:200]}))
    except OSError as error:
        print(json.dumps({"denied": str(place), "errno": error.errno}))


check("zeros_like")
parent = f"/proc/{os.getppid()}"
for place in [*sys.argv[1:], parent + "/mem", parent + "/environ", str(pathlib.Path.home().parent)]:
    look(place)
check("relu")
check("relu")
"""


@pytest.mark.slow
def test_an_agent_that_checks_spends_its_budget_and_reads_nothing_of_the_judge(tmp_path: Path, judge: Judge) -> None:
    scripts, store, cache = tmp_path / "scripts", tmp_path / "s.db", tmp_path / "cache"
    scripts.mkdir()
    cache.mkdir()
    (scripts / "agent.py").write_text(AGENT)
    settings = tmp_path / "agent.toml"
    words = [sys.executable, str(scripts / "agent.py"), str(store), str(cache), str(settings), str(tmp_path)]
    settings.write_text(
        f'[generator]\nkind = "agent"\nname = "scripted"\ncommand = {json.dumps(words)}\n'
        f'reads = ["{scripts}"]\nlanguage = "torch"\nchecks = 2\n'
    )
    pipeline.run(
        (str(settings),),
        ("relu",),
        judge=judge,
        store_url=str(store),
        directions=("forward",),
        categories=("tiny", "small"),
        timed=False,
    )
    with open_store(str(store), write=False) as opened:
        run = opened.run("latest")
        [(attempt, verdict)] = opened.verdicts(run.id)
        [response] = opened.responses()
    assert (verdict.verdict, verdict.reason, verdict.track) == ("passed", "ok", "library")
    assert attempt.origin is not None and attempt.origin.seconds > 0

    told = [json.loads(line) for line in response["text"].splitlines() if line.startswith("{")]
    said: dict[str, list[dict[str, Any]]] = {}
    for one in told:
        said.setdefault(next(iter(one)), []).append(one)
    [saw] = said["sees"]
    assert {"TASK.md", "reference.py", "device.json", "README.md", "bin"} <= set(saw["sees"])
    assert saw["task"] and saw["reference"] and saw["device"]
    wrong, right, beyond = said["check"]
    assert wrong["code"] == 1 and "wrong" in wrong["said"].lower()
    assert right["code"] == 0
    assert beyond["code"] == 3 and "budget" in beyond["said"].lower()
    assert "read" not in said, said.get("read")
    assert len(said["denied"]) == 7
    # drafts are judged where the final candidate is not
    drafts = {(int(m), int(n)) for m, n in re.findall(r"M=(\d+), N=(\d+)", wrong["said"])}
    final = {tuple(size for _, size in cell.case.dims) for cell in verdict.cells}
    assert drafts and final and not drafts & final
