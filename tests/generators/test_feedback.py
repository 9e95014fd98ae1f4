"""What a generator is told of a draft."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.store.store_builders import machine

from kerneleval import tasks
from kerneleval.generators.common.feedback import feedback_of
from kerneleval.records import (
    Case,
    CellResult,
    Failed,
    Finding,
    Limits,
    Passed,
    Protocol,
    Samples,
    SpeedupSummary,
    Timing,
    Trust,
    UsesEvidence,
    Verdict,
)

TASK = tasks.find("softmax")


def case(m: int, n: int, **changes: Any) -> Case:
    common: dict[str, Any] = {"task": "softmax", "direction": "forward", "dtype": "float32", "shape_category": "medium"}
    return Case(dims=(("M", m), ("N", n)), **(common | changes))


def verdict(*cells: CellResult, **changes: Any) -> Verdict:
    failed = next((c.outcome for c in cells if isinstance(c.outcome, Failed)), None)
    common: dict[str, Any] = {
        "verdict": "failed" if failed else "passed",
        "stage": failed.stage if failed else "timing",
        "reason": failed.reason if failed else "ok",
        "message": failed.message if failed else "",
        "task": "softmax",
        "candidate": "0" * 64,
        "track": "custom",
        "trust": Trust(level="standard"),
        "machine": machine(),
        "protocol": Protocol(),
        "speedup": None,
        "cells": cells,
    }
    return Verdict(**(common | changes))


def wrong(of: Case, message: str = "output 0: element [0, 3] is 0, expected 0.25", **changes: Any) -> CellResult:
    common: dict[str, Any] = {"stage": "correctness", "reason": "wrong_output", "message": message}
    return CellResult(case=of, outcome=Failed(**(common | changes)))


def right(of: Case, speedup: float = 0.0) -> CellResult:
    timing = None
    if speedup:
        samples = Samples(candidate_ns=(1e6 / speedup,) * 3, baseline_ns=(1e6,) * 3, calls=10, sessions=(0, 0, 0))
        timing = Timing(samples=samples, speedup=speedup, low=speedup, high=speedup, noise=0.01, claim="faster")
    return CellResult(case=of, outcome=Passed(timing=timing))


def test_what_wrong_cells_share_is_told() -> None:
    cells = [right(case(7, n)) for n in (32, 64, 256)] + [wrong(case(9, n)) for n in (33, 70, 257)]
    cause = Finding(check="cause", level="info", message="all 3 cases have N that is no multiple of 32")
    told = feedback_of(verdict(*cells, findings=(cause,)), TASK)
    assert "3 of 6 cases are right" in told
    assert "- all 3 cases have N that is no multiple of 32" in told
    assert "Failing case: forward, float32, M=9, N=33" in told and "expected 0.25" in told


def test_kinds_of_cells_that_fail_are_counted() -> None:
    cells = [right(case(8, 8)), wrong(case(8, 8, layout="transposed")), wrong(case(8, 8, direction="backward"))]
    told = feedback_of(verdict(*cells), TASK)
    assert "wrong by layout: contiguous 1 of 2, transposed 1 of 1" in told
    assert "wrong by direction: forward 1 of 2, backward 1 of 1" in told
    assert told.count("Failing case") == 2


def test_a_build_log_is_told_once_and_shortened() -> None:
    log = "g++ failed\n" + "\n".join(f"line {i}: error" for i in range(2000))
    cells = [wrong(case(8, n), log, stage="build", reason="build_error") for n in (1, 2, 3)]
    told = feedback_of(verdict(*cells), TASK)
    assert told.count("line 0: error") == 1 and "characters are left out" in told
    assert len(told) < 4000 and told.startswith("The candidate was rejected: build_error")


def test_a_traceback_begins_in_the_candidate() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/opt/tool/worker/child.py", line 83, in serve\n    answer()\n'
        '  File "/tmp/x7/candidate.py", line 12, in softmax\n    y = x @ x\nRuntimeError: mat1 and mat2'
    )
    told = feedback_of(
        verdict(
            wrong(case(3, 4), "raised RuntimeError", stage="call", reason="exception", evidence={"traceback": trace})
        ),
        TASK,
    )
    assert 'File "candidate.py", line 12' in told and "mat1 and mat2" in told
    assert "child.py" not in told and "/tmp" not in told


def test_secrets_and_places_are_left_out() -> None:
    said = "differs under suite_seed 12345 in /home/someone/judge/probes/cells.py; replay: seed=77"
    one = wrong(case(3, 4), said, replay="kerneleval check /home/someone/x.py --case softmax/forward/M=3,N=4")
    told = feedback_of(verdict(one, replay="kerneleval check /home/someone/x.py --suite-seed 12345"), TASK)
    for secret in ("12345", "77", "/home", "kerneleval check"):
        assert secret not in told
    assert "cells.py" in told


def test_findings_of_attacks_are_told() -> None:
    findings = (
        Finding(check="caching", level="fail", message="results are kept by address"),
        Finding(check="track", level="info", message="launches one kernel"),
    )
    told = feedback_of(
        verdict(right(case(3, 4)), verdict="failed", stage="honesty", reason="cached", findings=findings), TASK
    )
    assert "rejected: cached (stage honesty)" in told and "results are kept by address" in told
    assert "launches one kernel" not in told


def test_speed_is_told_beside_the_machines_limit() -> None:
    limits = Limits(bandwidth_bytes_per_s=1e9, flop_per_s=(("float32", 1e12),))
    cells = [right(case(100, 1000), 0.5), right(case(10, 10), 2.0)]
    speedup = SpeedupSummary(value=1.0, low=0.9, high=1.1, claim="equal", cells=2)
    told = feedback_of(verdict(*cells, speedup=speedup), TASK, limits)
    assert "right in every case" in told and "1x (95 % interval 0.9 to 1.1)" in told
    slow, fast = (told.index(f"M={m}") for m in (100, 10))
    least = TASK.bytes({"M": 100, "N": 1000}, "float32") / 1e9
    assert "2 ms against 1 ms" in told and f"{least / 2e-3:.0%} of it reached" in told and "bound by memory" in told
    assert slow < fast or told.index("M=100, N=1000") < told.index("M=10, N=10")
    assert "limit" not in feedback_of(verdict(*cells, speedup=speedup), TASK)


def test_what_is_declared_unsupported_is_not_wrong() -> None:
    refused = wrong(case(3, 4, dtype="float16"), "no", stage="call", reason="unsupported")
    told = feedback_of(replace(verdict(right(case(8, 8)), refused), verdict="passed", reason="ok", message=""), TASK)
    assert "right in every case" in told and "1 of 2 cases were declared unsupported" in told


def test_texts_of_others_do_no_harm() -> None:
    nasty = "\x1b[31m\x00``` \ud800\n" * 3000
    told = feedback_of(verdict(wrong(case(3, 4), nasty)), TASK)
    assert len(told) < 10_000 and "\x00" not in told and "\x1b" not in told
    told.encode()


def test_what_the_compiled_kernels_take_is_told() -> None:
    message = "fused: 64 registers a thread, 1024 bytes of shared memory a block; row: 32 registers a thread, 0 bytes"
    finding = Finding(check="resources", level="info", message=message, evidence={"kernels": [{}]})
    told = feedback_of(verdict(right(case(64, 64), 0.5), findings=(finding,)), TASK)
    assert "The kernels as compiled here:\n- fused: 64 registers a thread, 1024 bytes of shared memory a block" in told
    assert "- row: 32 registers a thread" in told
    used = Finding(
        check="uses", level="info", message="fused: 96 instructions, 8 mma (HMMA.16816)", evidence={"kernels": [{}]}
    )
    told = feedback_of(verdict(right(case(64, 64), 0.5), findings=(used, finding)), TASK)
    assert "row: 32 registers a thread, 0 bytes\n- fused: 96 instructions, 8 mma (HMMA.16816)" in told
    assert "compiled here" not in feedback_of(verdict(right(case(64, 64), 0.5)), TASK)
    nothing = replace(used, message="no objdump: install binutils", evidence=UsesEvidence(kernels=()))
    assert "objdump" not in feedback_of(verdict(right(case(64, 64), 0.5), findings=(nothing,)), TASK)
