"""What a constructor alone is told, as an epsilon or the k of a top-k, is other numbers in one case of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval.tasks.formats.problem_file import ProblemFile, is_of_constructor
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import variants

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, {takes}):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

rows, width = 12, 24

def get_inputs():
    return [torch.randn(rows, width)]

def get_init_inputs():
    return {given}
"""


def others(folder: Path, takes: str, init: str, forward: str, given: str) -> dict[str, int]:
    """Numbers of the constructor that are not the file's own in one case of a sweep, or in none."""
    path = folder / "problem.py"
    path.write_text(FILE.format(takes=takes, init=init, forward=forward, given=given))
    surveys = Surveys(ProblemFile(path))
    file, found = surveys.file, [dims for _, dims in variants(surveys)]
    names = {name for dims in found for name in dims if is_of_constructor(name)}
    changed = [{n: dims[n] for n in names if dims[n] != file.value(n)} for dims in found]
    assert sum(map(bool, changed)) <= 1
    return next(filter(None, changed), {})


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("takes", "init", "forward", "given", "expected"),
    [
        ("k", "self.k = k", "return x.topk(self.k).values", "[3]", {"Model[k]": 4}),
        ("*, top_k", "self.k = top_k", "return x.topk(self.k).values", '[[], {"top_k": 3}]', {"Model[top_k]": 4}),
        ("top_k, slope=1", "self.k = top_k", "return x.topk(self.k).values", '{"top_k": 3}', {"Model[top_k]": 4}),
        ("scale", "self.s = scale", "return F.interpolate(x[None], scale_factor=self.s)", "[2]", {"Model[scale]": 1}),
        ("repeats", "self.n = repeats", "return x.repeat(1, self.n)", "[2]", {"Model[repeats]": 3}),
        (
            "scale",
            "self.s = scale",
            "return (x.sigmoid() * self.s).round().to(torch.uint8)",
            "[255]",
            {"Model[scale]": 254},
        ),
        ("patch_size", "self.p = patch_size", "return F.max_pool1d(x, self.p)", "[4]", {"Model[patch_size]": 5}),
        ("neighbours", "self.n = neighbours", "return x.topk(self.n)[0]", "[4]", {"Model[neighbours]": 5}),
        ("ratio", "self.r = ratio", "return x.view(12, -1, self.r).mean(-1)", "[4]", {"Model[ratio]": 3}),
        ("duration", "self.d = duration", "return x[:, : self.d].cumsum(1)", "[8]", {}),
        ("dispatch", "self.d = dispatch", "return x[:, : self.d].cumsum(1)", "[8]", {}),
        ("power", "self.p = power", "return x.abs() ** self.p", "[3]", {"Model[power]": 5}),
        ("slope", "self.s = slope", "return F.leaky_relu(x, self.s)", "[0.25]", {"Model[slope%]": 75}),
        ("eps", "self.e = eps", "return F.layer_norm(x, x.shape[-1:], eps=self.e)", "[1e-5]", {"Model[eps%]": 100_000}),
        ("heads", "self.h = heads", "return x.view(len(x), self.h, -1).amax(-1)", "[4]", {"Model[heads]": 3}),
        ("num_sinks", "self.n = num_sinks", "return x[:, self.n :].sum(-1)", "[24]", {"Model[num_sinks]": 23}),
        (
            "iters",
            "self.n = iters",
            "for _ in range(self.n): x = x.sin()\n        return x",
            "[3]",
            {"Model[iters]": 4},
        ),
        ("pad", "self.p = pad", "return F.pad(x, self.p)", "[(2, 0)]", {"Model[pad[0]]": 3, "Model[pad[1]]": 1}),
        (
            "groups, width",
            "self.norm = nn.GroupNorm(groups, width)",
            "return self.norm(x[..., None])",
            "[2, width]",
            {"Model[groups]": 3},
        ),
    ],
)
def test_numbers_of_the_constructor_are_others_once(tmp_path, takes, init, forward, given, expected):
    assert others(tmp_path, takes, init, forward, given) == expected


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("takes", "init", "forward", "given"),
    [
        ("scale", "self.s = scale", "return (x @ x.T) * self.s", "[width ** -0.5]"),  # follows a size
        ("scale_axis", "self.a = scale_axis", "return x / x.abs().amax(self.a, keepdim=True)", "[1]"),
        ("scale_bits", "self.n = scale_bits", "return (x * 2**self.n).round()", "[3]"),
        ("block_size", "self.b = block_size", "return x.unflatten(1, (self.b, -1)).amax(-1)", "[8]"),
        ("dim", "self.d = dim", "return x.sum(self.d)", "[1]"),
        ("bits", "self.q = 2.0 ** bits", "return x * self.q", "[8]"),
        ("p", "self.p = p; self.eval()", "return F.dropout(x, self.p, self.training)", "[0.5]"),  # changes nothing
        ("heads", "self.h = heads", "return x.view(len(x), self.h, -1).amax(-1)", "[24]"),  # as many as columns
        (
            "layers",
            "self.all = nn.ModuleList(nn.Linear(24, 24) for _ in range(layers))",
            "return self.all[0](x)",
            "[2]",
        ),
        ("causal", "self.c = causal", "return x.tril() if self.c else x", "[True]"),
        ("k", "self.k = k", "return (x * self.k).sqrt().nan_to_num()", "[0]"),
    ],
)
def test_other_numbers_of_the_constructor_stay(tmp_path, takes, init, forward, given):
    assert others(tmp_path, takes, init, forward, given) == {}
