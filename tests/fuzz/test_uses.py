"""What a worker sends of binaries, what stores hold of them, what disassemblers print: nothing of it raises."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.hostile import effort, json_values, texts
from tests.store import store_builders as stored

from kerneleval.analysis import compiled
from kerneleval.judge.binaries.uses import read_sent
from kerneleval.languages.binaries.instructions import kernels_reached, listing, read_code, sass_functions
from kerneleval.records import ISAS, CodeUse, Finding, UsageError, UsesEvidence, from_plain

FIELDS = ("data", "kernel", "kind", "hash", "shared", "classes", "lines", "isa", "instructions", "widest_bytes")


@effort(60)
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), json_values()), max_size=4) | json_values())
def test_what_a_worker_sends(files: Any) -> None:
    for one in read_sent(files):
        assert isinstance(one.data, bytes) and len(one.kernel) <= 200


@effort(60)
@given(
    st.dictionaries(st.sampled_from(FIELDS), json_values())
    | json_values()
    | st.fixed_dictionaries(
        {"kernel": texts(), "isa": texts(), "accesses": st.integers(), "wide_accesses": st.integers()}
    )
)
def test_what_a_store_holds(row: Any) -> None:
    try:
        use = from_plain(CodeUse, row)
    except UsageError:
        return
    assert use.vectorised is None or use.vectorised >= 0
    verdict = stored.verdict("gelu", stored.candidate("gelu"), (stored.passed(stored.case("gelu")),))
    told = {"check": "uses", "level": "info", "message": "", "kernels": [row], "complete": True}
    assert isinstance(from_plain(Finding, told).evidence, UsesEvidence)
    compiled.measure(dataclasses.replace(verdict, findings=(from_plain(Finding, told),)))


@pytest.mark.parametrize("isa", ISAS)
@effort(60)
@given(st.lists(texts() | st.sampled_from(["\n", " <a>:\n", "\tv_mfma_", "  1:\t", "/*00*/ ", "%zmm0", "Function : "])))
def test_what_disassemblers_print(isa: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    use = read_code(text, isa)
    assert use.instructions >= sum(line.count for line in use.lines)
    kernels_reached(listing(text), ["a"], ["a", "b"])
    list(sass_functions(text))
