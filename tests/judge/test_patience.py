"""How long a candidate's calls may take: an honest one compiles, an endless loop does not."""

from __future__ import annotations

import pytest

from kerneleval.judge.probes.patience import Patience
from kerneleval.records import Candidate


def patience(text: str, language: str = "torch") -> Patience:
    return Patience(Candidate(files=(("gelu.py", text),), language=language), "cpu")


@pytest.mark.parametrize(
    ("text", "compiles"),
    [
        ("import math\nimport torch\nfrom torch.nn import functional as F\n", False),
        ("import torch, numpy as np\n\ndef gelu(x):\n    while True: pass\n", False),
        ("import warp as wp\nimport torch\n", True),
        ("import torch\n\ndef gelu(x):\n    import helion\n", True),
        ("from torch.utils.cpp_extension import load_inline\n", True),
        ("import torch\n\ngelu = torch.compile(torch.nn.functional.gelu)\n", True),
    ],
)
def test_first_calls_may_take_long_where_something_compiles(text: str, compiles: bool) -> None:
    one = patience(text)
    assert one.may_compile == compiles
    assert one.limit_s(0.1, first=True, longest_s=120.0) == (120.0 if compiles else 20.0)
    assert one.limit_s(0.1, first=False, longest_s=120.0) == 20.0


def test_the_budget_counts_what_is_beyond_the_references_pace() -> None:
    one = patience("import torch\n")
    assert one.charge(50.0, 1.0) == "", "fifty times as slow as the reference"
    assert one.charge(30.0, 0.0) == "" and 30.0 < one.left_s < 31.0
    assert one.charge(40.0, 0.0, compiling_s=39.0) == "", "compiling is its own"
    assert "kept the judge waiting 60 s longer than 50 times" in one.charge(40.0, 0.0)
