"""Every reason and every check has its layer, and a verdict tells what each layer found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerneleval.judge import checks
from kerneleval.records import (
    LAYERS,
    STAGES,
    Case,
    CellResult,
    Failed,
    Finding,
    Machine,
    Passed,
    Protocol,
    TrackEvidence,
    Trust,
    Verdict,
    caught_by,
    layer_of,
    layer_of_finding,
    layers_of,
)

PAGE = (Path(__file__).parent.parent / "docs" / "verdicts.md").read_text()
SECTION = PAGE.split("## Stages and reasons")[1].split("\n## ")[0]
NOT_JUDGED = SECTION.split("A task that is `not_judged`")[1].split("\n\nWhere")[0]
"""Why there is no verdict: no layer caught anything."""
REASONS = set(re.findall(r"^\| `([a-z_]+)` \|", SECTION.replace(NOT_JUDGED, ""), re.MULTILINE)) - {"ok", *STAGES}


def verdict(outcomes: list[Passed | Failed], *findings: Finding, **changes: object) -> Verdict:
    cells = [
        CellResult(case=Case(task="gelu", direction="forward", dims=(("M", i),), dtype="float32"), outcome=o)
        for i, o in enumerate(outcomes)
    ]
    values = {
        "verdict": "passed",
        "stage": "timing",
        "reason": "ok",
        "message": "",
        "task": "gelu",
        "candidate": "ab",
        "track": "custom",
        "trust": Trust(level="strong"),
        "machine": Machine(
            device="cpu", name="x", arch="x", memory_bytes=1, cache_bytes=1, units=1, driver="1", torch="2"
        ),
        "protocol": Protocol(),
        "speedup": None,
        "cells": tuple(cells),
        "findings": findings,
    }
    return Verdict(**(values | changes))


def test_every_reason_has_a_layer() -> None:
    assert {"wrong_output", "crash", "decoy_kernel", "tampering"} <= REASONS
    assert {r for r in REASONS if layer_of("call", r) not in LAYERS} == set()


def test_every_layer_is_explained() -> None:
    explained = PAGE.split("## Layers")[1].split("\n##")[0]
    assert set(re.findall(r"^\| `([a-z_]+)` \|", explained, re.MULTILINE)) == set(LAYERS)


def test_every_check_has_a_layer() -> None:
    assert {name for name in checks.in_order() if layer_of("", "", name) not in LAYERS} == set()
    assert {layer_of("", "", name) for name in ("conditions", "timing", "secret_shapes")} == {"temporal", "numerical"}


@pytest.mark.parametrize(
    ("stage", "reason", "check", "layer"),
    [
        ("correctness", "wrong_output", "", "numerical"),
        ("timing", "wrong_output", "", "temporal"),
        ("timing", "crash", "", "sandbox"),
        ("honesty", "decoy_kernel", "track", "ghost"),
        ("", "", "track", "launch"),
        ("call", "hard_coded_shapes", "secret_shapes", "behavioural"),
        ("timing", "ok", "", ""),
        ("", "", "of_the_future", ""),
    ],
)
def test_layers(stage: str, reason: str, check: str, layer: str) -> None:
    assert layer_of(stage, reason, check) == layer
    assert (
        layer_of_finding(Finding(stage=stage, reason=reason, check=check, level="fail", message=""))  # type: ignore[arg-type]
        == layer
    )


def test_a_verdict_tells_what_each_layer_found() -> None:
    passed = verdict(
        [Passed(), Passed()],
        Finding(check="track", level="info", message="", evidence=TrackEvidence(track="custom", ghost="needed")),
        Finding(check="static", level="warn", message=""),
        Finding(check="static", level="warn", message=""),
    )
    assert caught_by(passed) == ""
    assert layers_of(passed) == {
        "numerical": "2/2 right",
        "launch": "custom",
        "ghost": "its kernels are needed",
        "static": "2 warnings",
    }
    wrong = Failed(stage="timing", reason="wrong_output")
    crash = Failed(stage="call", reason="crash")
    failed = verdict(
        [Passed(), wrong, crash, Failed(stage="call", reason="unsupported")],
        Finding(check="tampering", level="fail", reason="tampering", message=""),
        verdict="failed",
        reason="wrong_output",
        track="",
    )
    assert caught_by(failed) == "temporal"
    assert layers_of(failed) == {
        "sandbox": "1 case failed",
        "numerical": "1/3 right",
        "temporal": "1 case failed",
        "tampering": "1 failure",
    }


def test_what_never_ran_says_nothing_of_its_outputs() -> None:
    stillborn = Failed(stage="build", reason="build_error")
    found = layers_of(verdict([stillborn] * 3, verdict="failed", stage="build", reason="build_error", track=""))
    assert found == {"build": "3 cases failed"}
