"""What compiled code is like, from the findings of verdicts, and what is told of nobody."""

from __future__ import annotations

import dataclasses
import io
import math
from typing import Any

from rich.console import Console
from tests.scores.score_builders import rows
from tests.store import store_builders as stored

from kerneleval.analysis.compiled import METRICS, CompiledMetrics, by_generators, measure
from kerneleval.judge.binaries.uses import finding
from kerneleval.languages.binaries.instructions import read_code
from kerneleval.records import Finding, UsesEvidence, Verdict, from_plain, to_plain
from kerneleval.reports.analysis_view import render_compiled

SASS = """
        /*0010*/  LDG.E.128 R4, [R2] ;
        /*0020*/  LDG.E R4, [R2] ;
        /*0030*/  HGMMA.64x64x16.F32 R24, gdesc[UR8], R24 ;
        /*0040*/  UTMALDG.2D [UR8], [UR6] ;
        /*0050*/  LDGSTS.E.BYPASS.128 [R5], [R2.64] ;
        /*0060*/  STL [R1+0x4], R3 ;
"""


def verdict(*findings: Any) -> Verdict:
    case = stored.case("gelu")
    plain = stored.verdict("gelu", stored.candidate("gelu"), (stored.passed(case),))
    return dataclasses.replace(plain, findings=findings)


def used(*uses: Any) -> Finding:
    return from_plain(Finding, to_plain(finding(UsesEvidence(kernels=uses, complete=True))))


def test_figures_are_those_of_the_findings() -> None:
    rows = [
        {"kernel": "a", "binaries": 2, "registers": [8, 40], "local_bytes": [0, 16], "shared_bytes": [0, 1024]},
        {"kernel": "b", "binaries": 1, "registers": [90, 90], "local_bytes": [0, 0], "shared_bytes": [0, 0]},
    ]
    resources = from_plain(Finding, {"check": "resources", "level": "info", "message": "", "kernels": rows})
    found = measure(
        verdict(used(read_code(SASS, "sass", "a"), read_code("HMMA.16816.F32 R4 ;\n", "sass", "b")), resources)
    )
    assert found == CompiledMetrics(
        instructions=7,
        matrix_instructions=2,
        pipeline_instructions=1,
        frontier_instructions=2,
        spill_instructions=1,
        widest_bytes=16,
        vectorised=2 / 3,
        registers=90,
        local_bytes=16,
        shared_bytes=1024,
        vector_instructions=found.vector_instructions,
    )
    assert math.isnan(found.vector_instructions)
    on_cpu = measure(verdict(used(read_code("  10:\tvmulps (%rax),%ymm1,%ymm2\n", "x86", "f"))))
    assert (on_cpu.vector_instructions, on_cpu.widest_bytes, on_cpu.vectorised) == (1, 32, 1)
    assert math.isnan(on_cpu.spill_instructions) and math.isnan(on_cpu.registers)


def test_findings_of_another_form_tell_nothing() -> None:
    for kernels in (None, 7, [7], [{"registers": 7, "local_bytes": [1], "shared_bytes": [0, "x"]}], {"a": 1}):
        for check in ("uses", "resources"):
            found = measure(
                verdict(from_plain(Finding, {"check": check, "level": "info", "message": "", "kernels": kernels}))
            )
            assert all(math.isnan(getattr(found, name)) for name in METRICS)


def test_medians_of_generators_and_what_is_told_of_nobody() -> None:
    results = [*rows("gelu", [1.0]), *rows("matmul", [1.0])]
    told = measure(verdict(used(read_code(SASS, "sass", "a"))))
    key = next((r.generator, r.task, r.sample) for r in results if r.task == "gelu")
    found = by_generators({key: told}, results)
    one = found[key[0]]["frontier_instructions"]
    assert (one.value, one.n, one.note.startswith("1 not known")) == (2.0, 1, True)
    assert (found[key[0]]["registers"].n, found[key[0]]["registers"].note) == (0, "not known for any attempt")

    def shown(of: Any) -> str:
        console = Console(file=io.StringIO(), width=80)
        render_compiled(to_plain(of), console)
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    assert "newest features" in shown(found) and "registers" not in shown(found)
    assert "no verdict of this run has any" in shown(by_generators({}, results))
