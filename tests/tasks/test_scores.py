"""Scores of a softmax are large beside large inputs, also where a ``tanh`` or a norm keeps them small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kerneleval.tasks.formats.kernelbench import read
from kerneleval.tasks.formats.module_problem import ModuleProblem

from .test_frozen_arguments import write

POOLS = {
    "softmax": (
        "self.h, self.s = nn.Linear(6, 9), nn.Linear(9, 1)",
        "s = self.s(torch.tanh(self.h(x))).squeeze(-1)\nreturn torch.softmax(s, 1) @ x",
    ),
    "mask": (
        "self.h, self.s = nn.LayerNorm(6), nn.Parameter(torch.randn(6) / 9)",
        "s = (self.h(x) @ self.s).masked_fill(torch.arange(7) > 4, -math.inf)\nreturn torch.softmax(s, 1)[:, None] @ x",
    ),
    "segments": (
        "self.h, self.s = nn.Linear(6, 9), nn.Conv1d(9, 1, 1)",
        "s = self.s(torch.tanh(self.h(x)).mT)[:, 0]\ne = (s - s.amax(1, keepdim=True)).exp()\n"
        "return e / e.sum(1, keepdim=True)",
    ),
    "logsumexp": (
        "self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 5)",
        "s = self.s(self.h(x)) / 2\nreturn s - torch.logsumexp(s, -1, True)",
    ),
}
POOLS["queries and keys"] = (
    "self.h, self.sq, self.sk = nn.LayerNorm(6), nn.Linear(6, 8, bias=False), nn.Linear(6, 8, bias=False)",
    "h = self.h(x)\nreturn torch.softmax(self.sq(h) @ self.sk(h).mT, -1) @ x",
)
POOLS["fused"] = (
    "self.h, self.s = nn.LayerNorm(6), nn.Parameter(torch.randn(6, 12) / 9)",
    "q, k = (self.h(x) @ self.s).chunk(2, -1)\nreturn F.scaled_dot_product_attention(q, k, x)",
)
POOLS["shared keys"] = (
    "self.h, self.sq, self.sk = nn.LayerNorm(6), nn.Linear(6, 8, bias=False), nn.Linear(6, 4, bias=False)",
    "q, k = (one(self.h(x)).unflatten(-1, (-1, 2)).transpose(1, 2) for one in (self.sq, self.sk))\n"
    "return F.scaled_dot_product_attention(q, k, k.detach(), enable_gqa=True)",
)
POOLS["a sum"] = (
    "self.h, self.s = nn.Linear(6, 9), nn.Parameter(torch.randn(9) / 9)",
    "return torch.softmax((torch.tanh(self.h(x)) * self.s).sum(-1), 1)[:, None] @ x",
)
POOLS["two products"] = (
    "self.h, self.sa, self.sb = nn.LayerNorm(6), nn.Linear(6, 1, bias=False), nn.Linear(6, 1, bias=False)",
    "h = self.h(x)\nreturn torch.softmax(F.leaky_relu(self.sa(h) + self.sb(h).mT, 0.2), -1) @ x",
)
POOLS["a scale of their own"] = (
    "self.h, self.sq, self.sk = nn.LayerNorm(6), nn.Linear(6, 64, bias=False), nn.Linear(6, 64, bias=False)",
    "h = self.h(x)[:, None]\n"
    "v = x[:, None].repeat(1, 1, 1, 11)[..., :64]\n"
    "return F.scaled_dot_product_attention(self.sq(h), self.sk(h), v, scale=1 / 64)",
)
POOLS["gains of queries and keys"] = (
    "self.h, self.sq, self.sk = nn.Linear(6, 6), nn.LayerNorm(6, bias=False), nn.Parameter(torch.ones(6))",
    "q, k = self.sq(self.h(x)), F.normalize(self.h(x), dim=-1) * self.sk\nreturn torch.softmax(q @ k.mT, -1) @ x",
)
POOLS["a scale"] = (
    "self.h, self.s = nn.Linear(6, 6), nn.Parameter(torch.ones(1))",
    "h = F.normalize(self.h(x), dim=-1)\nreturn torch.softmax(h @ h.mT * self.s, -1) @ x",
)
OTHERS = {
    "a temperature": (
        "self.h, self.s = nn.Linear(6, 6), nn.Parameter(torch.ones(1))",
        "h = F.normalize(self.h(x), dim=-1)\nreturn torch.softmax(h @ h.mT / self.s, -1) @ x",
    ),
    "a logarithm of a scale": (
        "self.h, self.s = nn.Linear(6, 6), nn.Parameter(torch.ones(2, 1, 1))",
        "h = F.normalize(self.h(x), dim=-1).unflatten(-1, (2, 3)).transpose(1, 2)\n"
        "return torch.softmax(h @ h.mT * self.s.clamp(max=9).exp(), -1) @ x[:, None]",
    ),
}
NONE = {
    "a mask of -100": (
        "self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 5)",
        "return torch.softmax(self.s(self.h(x)).masked_fill(x[..., :5] < 0, -100.0), -1)",
    ),
    "an earlier softmax": (
        "self.h, self.s, self.t = nn.LayerNorm(6), nn.Linear(6, 5), nn.Linear(5, 5)",
        "s = torch.softmax(self.s(self.h(x)), -1)\nreturn torch.softmax(self.t(x[..., 1:]), -1) * s",
    ),
    "large as they are": ("self.s = nn.Linear(6, 5)", "return torch.softmax(self.s(x), -1)"),
    "no scores": ("self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 5)", "return torch.relu(self.s(self.h(x)))"),
    "decays": (
        "self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 5)",
        "c = -torch.sigmoid(self.s(self.h(x))).cumsum(1)\nreturn (c[:, 1:] - c[:, :-1]).exp()",
    ),
    "norms of queries and keys": (
        "self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 6)",
        "q = F.normalize(self.s(self.h(x)), dim=-1)\nreturn torch.softmax(q @ F.normalize(x, dim=-1).mT, -1)",
    ),
    "a tanh of scores": (
        "self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 6)",
        "return torch.softmax(20 * torch.tanh(self.s(self.h(x)) @ x.mT / 20), -1) @ self.h(x)",
    ),
    "half types inside": (
        "self.h, self.s = nn.LayerNorm(6), nn.Linear(6, 5)",
        "return torch.softmax(self.s(self.h(x)).bfloat16().float(), -1)",
    ),
}


def problem_of(folder: Path, init: str, forward: str) -> ModuleProblem:
    path = write(folder, "import math\n" + forward, "return [torch.randn(3, 7, 6)]", init)
    task = read(path, sweep=False)
    assert "large_scale" in task.distributions and task.build is not None
    made = task.build({}, "cpu")
    assert isinstance(made, ModuleProblem)
    return made


@pytest.mark.parametrize("name", POOLS)
def test_parameters_that_make_small_scores_are_larger_beside_large_inputs(name: str, tmp_path: Path) -> None:
    """A softmax without its maximum passed behind a norm, and -100 for minus infinity."""
    problem = problem_of(tmp_path, *POOLS[name])
    plain = problem.weights(1)
    weights = problem.weights(1, "large_scale")
    changed = {key for key in plain if not torch.equal(plain[key], weights[key])}
    assert changed == {key for key in plain if key.startswith("s")}
    assert all(float(weights[key].abs().max() / plain[key].abs().max()) > 4 for key in changed)
    assert all(bool((weights[key] < -400).all()) for key in changed & {"s.bias"})
    assert all(bool(out.isfinite().all()) for out in problem.reference(problem.inputs(1, "large_scale"), weights))
    assert all(torch.equal(plain[key], value) for key, value in problem.weights(1, "small_scale").items())


@pytest.mark.parametrize("name", OTHERS)
def test_scales_of_scores_are_larger_in_their_own_way(name: str, tmp_path: Path) -> None:
    """Without its maximum a softmax of cosines passed."""
    problem = problem_of(tmp_path, *OTHERS[name])
    own, large, args = problem.weights(0), problem.weights(0, "large_scale"), problem.inputs(1, "large_scale")
    assert {key for key in own if not torch.equal(own[key], large[key])} == {"s"}
    with pytest.MonkeyPatch.context() as patch:
        given = []
        patch.setattr(torch, "softmax", lambda s, dim, plain=torch.softmax: given.append(s) or plain(s, dim))
        problem.reference(args, large)
    assert 400 < float(given[0].max()) < 600


@pytest.mark.parametrize("name", NONE)
def test_other_parameters_stay(name: str, tmp_path: Path) -> None:
    assert problem_of(tmp_path, *NONE[name]).louder == {}


def test_steps_of_a_layer_are_so_large_that_their_exponential_overflows(tmp_path: Path) -> None:
    """A softplus as log(1 + exp(x)) passed where a layer makes decays of its steps, for no input is large there."""
    forward = (
        "y = self.h(x)\ndt = F.softplus(self.g(y) + self.s)\nh, out = 0, []\n"
        "for t in range(x.shape[1]):\n    h = (-dt[:, t]).exp() * h + dt[:, t] * y[:, t]\n    out.append(h)\n"
        "return torch.stack(out, 1)"
    )
    init = "self.h, self.g, self.s = nn.LayerNorm(6), nn.Linear(6, 6), nn.Parameter(torch.zeros(6))"
    task = read(write(tmp_path, forward, "return [torch.randn(2, 24, 6)]", init))
    assert "large_scale" in task.distributions and task.build is not None and task.tolerance.rms > 1
    problem = task.build({}, "cpu")
    assert problem.louder == {"s": (1.0, 100.0)}
    assert torch.equal(problem.inputs(1)[0], problem.inputs(1, "large_scale")[0])
    trained, usual = problem.weights(1, "trained"), problem.weights(1)
    assert float(trained["g.weight"].std() / usual["g.weight"].std()) < 1.4 and bool((trained["h.weight"] < 0).any())
    assert bool(((trained["h.weight"].abs() >= 0.5) & (trained["h.weight"].abs() <= 2)).all())
    assert [finding for finding in task.findings if "makes decays of it" in finding.message]
