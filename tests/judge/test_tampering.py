"""What the judge makes of a worker's word on tampering. Whole candidates: ``tests/attacks``."""

from __future__ import annotations

import pytest

from kerneleval.judge.checks.tampering import findings
from kerneleval.judge.windows.protocol import TamperingClaim, tampering_claims
from kerneleval.records import TamperingEvidence


@pytest.mark.parametrize(
    "told", [None, 7, "x", {}, [None, 3, [], {}, {"what": 3}, {"level": "fail"}], [{"what": None, "level": "warn"}]]
)
def test_a_word_of_another_form_is_left_out(told: object) -> None:
    assert tampering_claims({"tampering": told}) == []
    assert tampering_claims({}) == []


def test_claims_are_bounded_and_nothing_softens_them() -> None:
    told = [{"what": f"{i}" + "x" * 1000, "level": "info", "when": ["load"]} for i in range(1000)]
    found = tampering_claims({"tampering": told})
    assert 0 < len(found) <= 100
    assert all(len(c.what) <= 200 and (c.level, c.when) == ("fail", "call") for c in found)


def test_only_what_fails_has_a_reason_and_load_comes_first() -> None:
    told = [
        TamperingClaim(what="opens /proc/self/maps", level="warn", when="load"),
        TamperingClaim(what="replaced time.time", level="fail", when="call"),
        *(TamperingClaim(what=f"replaced torch.f{i}", level="fail", when="load") for i in range(6)),
    ]
    first, second, third = findings(told)
    assert (first.level, first.evidence, first.reason) == ("fail", TamperingEvidence(when="load"), "tampering")
    assert "replaced torch.f0" in first.message and first.message.endswith("and 2 more")
    assert (second.evidence, second.reason) == (TamperingEvidence(when="call"), "tampering")
    assert third.level == "warn" and third.reason == ""
    assert list(findings([])) == []
