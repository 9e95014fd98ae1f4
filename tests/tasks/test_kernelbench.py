"""KernelBench problem files: reading, sizes, inputs, weights, reference, oracle, sweep."""

from __future__ import annotations

import gc
import importlib.util
import sys
import textwrap
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from kerneleval.records import InfrastructureError, Protocol, TensorSpec, UsageError, flat, nested
from kerneleval.tasks import open_task, shapes
from kerneleval.tasks.formats import survey as surveys
from kerneleval.tasks.formats.kernelbench import category_of, read
from kerneleval.tasks.formats.module_problem import DISTRIBUTIONS, ModuleProblem
from kerneleval.tasks.formats.problem_file import ITEMS, ProblemFile
from kerneleval.tasks.formats.survey import survey
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import GROWTH, Unit, shrink, units, variants
from kerneleval.worker.wire import decode_plain, encode_plain

ROOT = Path(__file__).resolve().parents[2]

LINEAR = """
import torch
import torch.nn as nn

class Model(nn.Module):
    \"\"\"A product and a ReLU.

    More text.
    \"\"\"
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        return torch.relu(self.linear(x))

batch = 8 * 2
features_in = 24
features_out = 40

def get_inputs():
    return [torch.rand(batch, features_in)]

def get_init_inputs():
    return [features_in, features_out]
"""


def write(folder: Path, text: str, name: str = "problem.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def model(forward: str, init: str = "pass", inputs: str = "[torch.rand(n, 4)]", top: str = "n = 6") -> str:
    """A problem with these bodies."""
    return "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            "import torch.nn.functional as F",
            top,
            "class Model(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in init.split("\n")),
            "    def forward(self, x, *more):",
            *(f"        {line}" for line in forward.split("\n")),
            "def get_inputs():",
            f"    return {inputs}",
            "def get_init_inputs():",
            "    return []",
        ]
    )


def problem(folder: Path, text: str, **dims: int) -> ModuleProblem:
    return ModuleProblem(ProblemFile(write(folder, text)), dims, "cpu")


def largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max())


# --------------------------------------------------------------------------------------------------------------------
# The task
# --------------------------------------------------------------------------------------------------------------------


def test_a_problem_becomes_a_module_task(tmp_path):
    task = read(write(tmp_path, LINEAR, "level2/7_Linear_ReLU.py"))
    assert task.name.startswith("kernelbench:7_Linear_ReLU@") and len(task.name.partition("@")[2]) == 8
    assert (task.category, task.source, task.level) == ("fused", "kernelbench", 2)
    assert task.summary == "A product and a ReLU."
    assert task.case_dims == (("given", {"batch": 16, "features_in": 24, "features_out": 40}),)
    assert task.module and task.directions == ("forward",)
    assert (task.dtypes, task.layouts) == (("float32",), ("contiguous",))
    assert task.distributions == ("standard", "large_scale", "small_scale", "negative", "outlier", "trained")
    assert "class Model" in task.baseline_source
    dims = task.case_dims[0][1]
    assert task.arguments(dims, "float32") == (TensorSpec(name="x", shape=(16, 24), dtype="float32"),)
    assert task.flops(dims) == 2 * 16 * 24 * 40
    assert task.bytes(dims, "float32") == 4 * (16 * 24 + 24 * 40 + 40 + 16 * 40)
    assert task.tolerance.reduction(dims) == 24


def test_costs_follow_the_dims(tmp_path):
    task = read(write(tmp_path, LINEAR))
    dims = {"batch": 3, "features_in": 5, "features_out": 7}
    assert task.arguments(dims, "float32")[0].shape == (3, 5)
    assert task.flops(dims) == 2 * 3 * 5 * 7
    built = task.build(dims, "cpu")
    (out,) = built.reference(built.inputs(1), built.weights(0))
    assert out.shape == (3, 7)


def test_two_files_of_one_name_are_two_tasks(tmp_path):
    one = read(write(tmp_path / "a", LINEAR))
    other = read(write(tmp_path / "b", LINEAR.replace("relu", "tanh")))
    assert one.name != other.name
    assert read(write(tmp_path / "c", LINEAR)).name == one.name


def test_the_tasks_own_reference_runs_at_the_given_sizes(tmp_path):
    task = read(write(tmp_path, LINEAR))
    assert task.reference(torch.rand(16, 24))[0].shape == (16, 40)


def test_a_problem_too_large_says_so_with_its_sizes_where_it_has_names_for_them(tmp_path):
    budget = shapes.Budget(memory_bytes=8, flops=1 << 60)
    nameless = open_task(str(write(tmp_path, model("return x * 2", inputs="[torch.rand(64, 4)]", top=""))))
    with pytest.raises(UsageError, match=r"^task kernelbench:problem@[0-9a-f]{8} in float32, forward, takes 0\.0 MiB"):
        shapes.plan(nameless, Protocol(), budget)
    named = open_task(str(write(tmp_path, LINEAR)))
    with pytest.raises(UsageError, match=r"@[0-9a-f]{8} at batch=16,.*features_out=40 in float32, forward, takes"):
        shapes.plan(named, Protocol(), budget)


def test_open_task_reads_problem_files(tmp_path):
    path = write(tmp_path, LINEAR)
    assert open_task(str(path)).source == "kernelbench"
    assert len(open_task(str(path), sweep=True).case_dims) > 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = 1", "defines no Model and no get_inputs and no get_init_inputs"),
        ("class Model: pass\ndef get_inputs(): return []", "defines no get_init_inputs"),
        ("def f(:\n  pass", "line 1: not Python"),
        (LINEAR.replace("batch = 8 * 2", "batch = 8 // 0"), "line 17: executing the file raised ZeroDivisionError"),
        (LINEAR.replace("return [features_in", "return [nope"), r"line 25: get_init_inputs\(\) raised NameError"),
        (LINEAR.replace("[features_in, features_out]", "[object()]"), "argument 0 of get_init_inputs.. holds a object"),
        (LINEAR.replace("[features_in, features_out]", "[torch.zeros(65, 65)]"), "tensor of 4225 elements"),
        (LINEAR.replace("[features_in, features_out]", "3"), r"get_init_inputs\(\) must give a list"),
        ("Model = get_inputs = get_init_inputs = 3", "Model is not callable"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, body, message):
    path = write(tmp_path, body)
    with pytest.raises(UsageError, match=message) as raised:
        read(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("torch.rand(batch, features_in)", "torch.rand(batch, nope)"), r"line 22: get_inputs\(\) raised NameError"),
        (("torch.relu(", "torch.relu(2, "), r"line 15: Model.forward raised TypeError"),
        (("nn.Linear(features_in", "nn.Linear(-1"), r"line 12: Model\(...\) raised"),
        (("return [torch.rand(batch, features_in)]", "return torch.rand(3)"), "must give a list"),
        (("class Model(nn.Module)", "class Model(list)"), r"must be a torch\.nn\.Module"),
    ],
)
def test_errors_that_need_a_run_name_the_line(tmp_path, change, message):
    task = read(write(tmp_path, LINEAR.replace(*change)))
    with pytest.raises(UsageError, match=message):
        task.arguments(task.case_dims[0][1], "float32")


def test_a_full_device_is_not_the_files_fault(tmp_path):
    full = "raise torch.OutOfMemoryError('CUDA out of memory.')\n        return torch.relu("
    path = write(tmp_path, LINEAR.replace("return torch.relu(", full))
    with pytest.raises(InfrastructureError, match=r"line 15: too little device memory for Model\.forward"):
        read(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="cannot read the problem file"):
        read(tmp_path / "nothing.py")


@pytest.mark.parametrize(
    ("stem", "body", "level", "category"),
    [
        ("a", "x @ x", 1, "gemm"),
        ("a", "F.conv2d(x, x)", 1, "convolution"),
        ("a", "F.scaled_dot_product_attention(x, x, x)", 1, "attention"),
        ("a", "F.layer_norm(x, (4,))", 1, "normalization"),
        ("a", "x.sum(1)", 1, "reduction"),
        ("a", "F.gelu(x)", 1, "elementwise"),
        ("a", "F.layer_norm(x @ x, (4,))", 1, "fused"),
        ("36_RMSNorm_", "x / torch.sqrt(torch.mean(x * x))", 1, "normalization"),
        ("12_Matmul_diagonal", "x * x", 1, "gemm"),
        ("a", "F.gelu(x)", 2, "fused"),
    ],
)
def test_categories_are_guessed_from_names(tmp_path, stem, body, level, category):
    tree = ProblemFile(write(tmp_path, model(f"return {body}"))).tree
    assert category_of(stem, tree, level) == category


def test_argmax_is_judged_as_an_index(tmp_path):
    assert read(write(tmp_path, model("return torch.argmax(x, dim=1)"), "a.py")).tolerance.kind == "index"
    assert read(write(tmp_path, model("return x[torch.argmax(x, dim=0)]"), "b.py")).tolerance.kind == "float"
    assert read(write(tmp_path, model("return x.T.flatten(0).view(4, n).argmin(0)"), "c.py")).tolerance.kind == "float"
    assert read(write(tmp_path, model("return x.T.argmin(0)"), "d.py")).tolerance.kind == "index"


def test_who_chooses_among_computed_numbers_has_no_ties(tmp_path):
    """Any place that was as black as the right one passed."""
    assert read(write(tmp_path, model("return torch.argmax(x * 2, dim=1)"))).tolerance.kind == "float"


# --------------------------------------------------------------------------------------------------------------------
# Integers and namespaces
# --------------------------------------------------------------------------------------------------------------------

INTEGERS = model(
    "return x * SCALE",
    top="""a = 2 ** 3 - 1
b = c = 64
d, e = 5, (6)
h, w = (9, 10)
shape = (3, 1024 * 2)
sizes = [4, 4]
flag = True
ratio = 1.5
low = -2
zero = 0
again = 1
again = 12
late = 4
late = late * 2
half = b // 2
typed: int = 30
SCALE = half
n = 6""",
)


def test_top_level_integers_are_found(tmp_path):
    file = ProblemFile(write(tmp_path, INTEGERS))
    assert file.sizes == {
        "a": 7, "b": 64, "c": 64, "d": 5, "e": 6, "h": 9, "w": 10, "shape[0]": 3, "shape[1]": 2048, "sizes[0]": 4,
        "sizes[1]": 4, "again": 12, "late": 4, "typed": 30, "n": 6,
    }  # fmt: skip
    assert file.integers == file.sizes | {"low": -2, "zero": 0}


def test_new_values_reach_what_is_derived_from_them(tmp_path):
    file = ProblemFile(write(tmp_path, INTEGERS))
    changed = file.execute({"b": 10, "w": 1, "shape[1]": 5, "sizes[0]": 3, "again": 2, "late": 5, "typed": 1})
    assert (changed.b, changed.c, changed.half) == (10, 64, 5)
    assert (changed.h, changed.w) == (9, 1)
    assert (changed.shape, changed.sizes) == ((3, 5), [3, 4])
    assert (changed.again, changed.late, changed.typed) == (2, 10, 1)
    assert file.execute({}).half == 32


def test_an_unknown_integer_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no top-level integer 'bathc'; did you mean batch"):
        ProblemFile(write(tmp_path, LINEAR)).execute({"bathc": 3})


def test_line_numbers_survive_a_change_of_sizes(tmp_path):
    file = ProblemFile(write(tmp_path, LINEAR.replace("torch.rand(batch, features_in)", "torch.rand(nope)")))
    with pytest.raises(UsageError, match=r"line 22: get_inputs\(\) raised NameError"):
        survey(file, {"batch": 3, "features_in": 5})


RECURRENT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.{made}

    def forward(self, x):
        out, state = self.net(x)
        return out.sum(-1), *(state if isinstance(state, tuple) else (state,))

def get_inputs():
    return [torch.rand({shape})]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        ("LSTM(6, 5, 2, batch_first=True)", (3, 24, 6)),
        ("LSTM(6, 5, bidirectional=True, proj_size=2)", (24, 3, 6)),
        ("GRU(6, 5)", (24, 6)),
        ("RNN(6, 5, nonlinearity='relu', bias=False)", (24, 3, 6)),
    ],
)
def test_long_recurrences_are_surveyed_by_their_first_steps(tmp_path, monkeypatch, made, shape):
    file = ProblemFile(write(tmp_path, RECURRENT.format(made=made, shape=shape)))
    short = survey(file, {})
    monkeypatch.setattr(surveys, "_FIRST_STEPS", 24)
    whole = survey(file, {})
    assert replace(short, steps=0, flops=0) == replace(whole, steps=0, flops=0)
    assert short.flops == pytest.approx(whole.flops, rel=0.01)
    assert short.steps == pytest.approx(whole.steps, rel=0.5)


def test_integers_that_the_model_reads_itself_are_known(tmp_path):
    file = ProblemFile(write(tmp_path, INTEGERS))
    assert {"SCALE", "half", "b"} <= file.read_by_model
    assert not {"n", "a", "c"} & file.read_by_model
    # a parameter or local of the same name is something else
    assert not {"features_in", "batch"} & ProblemFile(write(tmp_path, LINEAR)).read_by_model


def test_namespaces_never_meet(tmp_path):
    text = LINEAR.replace("batch = 8 * 2", "batch = 8 * 2\nstate = []")
    file = ProblemFile(write(tmp_path, text))
    before = set(sys.modules)
    one, other, third = file.execute({}), file.execute({}), file.execute({"batch": 2})
    one.state.append(1)
    assert other.state == [] and third.state == [] and one.Model is not other.Model
    added = set(sys.modules) - before
    assert added and all(name.startswith("kerneleval_problem_") for name in added)


# --------------------------------------------------------------------------------------------------------------------
# Inputs
# --------------------------------------------------------------------------------------------------------------------

CLASSES = model(
    "return x",
    inputs="[torch.rand(n, 5), torch.randint(0, 5, (n,)), 3.14, (1, 2), torch.rand(n) < 0.5]",
)


def test_inputs_vary_with_the_seed_and_keep_their_kinds(tmp_path):
    made = problem(tmp_path, CLASSES, n=400)
    args, again, others = made.inputs(5), made.inputs(5), made.inputs(6)
    assert [a.dtype for a in args if isinstance(a, torch.Tensor)] == [torch.float32, torch.int64, torch.bool]
    assert args[2:4] == [3.14, (1, 2)]
    for index in (0, 1, 4):
        assert torch.equal(args[index], again[index]) and not torch.equal(args[index], others[index])
    assert int(args[1].min()) >= 0 and int(args[1].max()) < 5


def test_arguments_are_named_after_forward(tmp_path):
    names = [a.name for a in Surveys(ProblemFile(write(tmp_path, CLASSES))).at({}).arguments]
    assert names == ["x", "arg1", "arg2", "arg3", "arg4"]


def test_drawing_leaves_the_callers_random_numbers_alone(tmp_path):
    made = problem(tmp_path, CLASSES)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    made.inputs(1)
    made.weights(1)
    made.reference(made.inputs(2), made.weights(1))
    assert torch.equal(torch.rand(4), expected)


def test_constant_inputs_are_made_to_vary(tmp_path):
    mask = "torch.full((n, n), float('-inf')).triu(1)"
    made = problem(
        tmp_path, model("return x", inputs=f"[torch.ones(n, 4), {mask}, torch.zeros(n), torch.arange(n)]"), n=50
    )
    ones, masked, zeros, positions = made.inputs(1)
    others = made.inputs(2)
    assert made.traits.frozen == {0, 1, 2, 3}
    assert not torch.equal(ones, others[0]) and 0.89 < float(ones.min()) < float(ones.max()) < 1.11
    assert torch.equal(masked, torch.full((50, 50), float("-inf")).triu(1))  # nothing but zeros and infinities
    assert not torch.equal(zeros, others[2]) and 0.01 < float(zeros.std()) < 0.5
    assert torch.equal(positions, torch.arange(50))


def test_inputs_are_contiguous_and_carry_no_graph(tmp_path):
    made = problem(tmp_path, model("return x", inputs="[torch.rand(4, n).T, torch.rand(n, requires_grad=True)]"))
    args = made.inputs(1)
    assert all(a.is_contiguous() and not a.requires_grad for a in args)


def test_where_inputs_lie_is_a_trait(tmp_path):
    inputs = [
        "torch.rand(n, 4)",
        "torch.rand(4, n).T",
        "torch.rand(n, 12)[:, 4:8]",
        "torch.rand(1, 4).expand(n, 4)",  # no place of its own for each element
        "torch.rand(n, 400)[:, :4]",  # as good as empty
        "torch.rand(3 * n, 4)[2 * n :]",
        "torch.randint(9, (2, 2, n)).mT",
    ]
    placed = problem(tmp_path, model("return x", inputs=f"[{', '.join(inputs)}]")).traits.placed
    assert placed == {
        1: (24, (1, 6), 0),
        2: (4 + 5 * 12 + 4, (12, 1), 4),
        5: (24 + 48, (4, 1), 48),
        6: (24, (12, 1, 6), 0),
    }


def test_scaled_inputs_spare_labels(tmp_path):
    made = problem(
        tmp_path, model("return x", inputs="[torch.rand(n, 4), torch.randint(0, 2, (n,)).float() * 2 - 1]"), n=64
    )
    plain, scaled = made.inputs(1), made.inputs(1, "large_scale")
    assert made.traits.labels == {1}
    assert torch.equal(scaled[0], plain[0] * 128) and torch.equal(scaled[1], plain[1])
    uneven = made.inputs(1, "outlier")
    assert not torch.equal(uneven[0], plain[0]) and torch.equal(uneven[1], plain[1])
    with pytest.raises(UsageError, match="no distribution 'outliers'"):
        made.inputs(1, "outliers")


def test_outliers_have_rows_of_their_own_size_both_signs_and_a_heavy_end(tmp_path):
    (x,) = problem(tmp_path, model("return x", inputs="[torch.rand(n, 200)]"), n=64).inputs(1, "outlier")
    sizes = x[:, :190].abs().median(dim=1).values
    assert float(sizes.max() / sizes.min()) > 30
    assert 0.4 < float((x < 0).float().mean()) < 0.6
    assert float(x.reshape(-1)[-8:].abs().max()) > 0.09 * float(x.norm())


def test_the_heavy_ends_of_two_arguments_do_not_cancel(tmp_path):
    made = problem(tmp_path, model("return x - more[0]", inputs="[torch.rand(n, 200), torch.rand(n, 200)]"), n=64)
    for seed in range(30):
        ends = [v.reshape(-1)[-8:].abs().argmax() for v in made.inputs(seed, "outlier")]
        assert ends[0] != ends[1]


def test_trained_weights_are_unlike_those_that_a_module_is_made_with(tmp_path):
    file = write(
        tmp_path,
        """
        import torch
        import torch.nn as nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.LayerNorm(64)
                self.faint = nn.Parameter(1e-6 * torch.ones(64))
                self.linear = nn.Linear(64, 64)
                self.twin = self.linear

            def forward(self, x):
                return self.linear(self.norm(x)) * self.faint

        def get_inputs():
            return [torch.rand(8, 64)]

        def get_init_inputs():
            return []
        """,
    )
    made = ModuleProblem(ProblemFile(file), {}, "cpu")
    usual, trained = made.weights(1), made.weights(1, "trained")
    for name in ("norm.weight", "faint"):
        assert (trained[name] < 0).any() and (trained[name] > 0).any() and float(trained[name].abs().max()) > 3
    assert float(trained["norm.bias"].std()) > 5 * float(usual["norm.bias"].std())
    assert torch.equal(trained["linear.weight"], trained["twin.weight"]), "tied weights stay tied"
    assert float(trained["linear.weight"].std()) > 1.5 * float(usual["linear.weight"].std())


@pytest.mark.parametrize(
    ("expression", "structured"),
    [
        ("(lambda x: x + x.mT + 1e-7 * torch.rand(7, 9, 9))(torch.randn(7, 9, 9))", True),  # as x @ x.mT is
        ("(lambda x: x + x.mT + 1e-3 * torch.rand(7, 9, 9))(torch.randn(7, 9, 9))", False),
        ("torch.rand(n, n)", False),
        ("torch.rand(n, n).triu()", True),
        ("(lambda a: a + a.T)(torch.rand(n, n))", True),
        ("torch.rand(n)", False),
    ],
)
def test_structure_is_seen(tmp_path, expression, structured):
    made = problem(tmp_path, model("return x", inputs=f"[{expression}]"), n=128)
    assert made.traits.structured == ({0} if structured else set())


@pytest.mark.parametrize(
    ("expression", "trait"),
    [
        ("torch.rand(n, 30).softmax(-1)", "normed"),
        ("torch.rand(n, 30).softmax(-1).bfloat16()", "normed"),
        ("F.normalize(torch.randn(n, 8), dim=-1)", "normed"),
        ("torch.rand(n).softmax(0)", "normed"),
        ("F.one_hot(torch.randint(0, 9, (n,)), 9).float()", "labels"),
        ("torch.linalg.qr(torch.randn(n, 3, 3))[0]", "rigid"),
        (
            "F.pad(torch.linalg.qr(torch.randn(n, 3, 3))[0], (0, 1, 0, 1)) + torch.eye(4)[3:].T * torch.eye(4)[3:]",
            "rigid",
        ),
        ("torch.randn(n, 3, 3)", ""),
        ("torch.rand(n, 30)", ""),
    ],
)
def test_rows_of_length_one_are_never_scaled(tmp_path, expression, trait):
    """Kernels may rely on probabilities, directions and rotations: a loss by soft targets and the inverse of a pose
    were rejected.
    """
    made = problem(tmp_path, model("return x", inputs=f"[{expression}]"), n=128)
    assert {name for name in ("normed", "rigid", "labels") if 0 in getattr(made.traits, name)} >= {trait} - {""}
    for distribution in ("large_scale", "small_scale", "negative", "outlier", "far_mean", "alike"):
        same = torch.equal(made.inputs(3, distribution)[0], made.inputs(3)[0])
        assert same == bool(trait), distribution


@pytest.mark.parametrize(
    ("expression", "records"),
    [
        ("torch.rand(n, 4)", False),
        ("torch.rand(n, 2).cumsum(-1)", True),
        ("(lambda x: torch.cat([x, x + torch.rand(n, 2) + 0.1], 1))(torch.rand(n, 2))", True),
        ("torch.rand(3, 2).cumsum(-1)", False),
        ("torch.rand(n, 30).cumsum(-1)", False),
    ],
)
def test_boxes_and_intervals_stay_such(tmp_path, expression, records):
    made = problem(tmp_path, model("return x", inputs=f"[{expression}]"), n=128)
    assert made.traits.records == ({0} if records else set())
    for distribution in DISTRIBUTIONS if records else ():
        (x,) = made.inputs(1, distribution)
        assert bool((x[:, 0] <= x[:, -1 if x.shape[1] == 2 else 2]).all()), distribution


@pytest.mark.parametrize("distribution", ["alike", "padded"])
def test_scattered_boxes_overlap_once(tmp_path, distribution):
    """Of scattered boxes a kernel that keeps the last of two with one score suppressed as many as the file."""
    boxes = "torch.cat([torch.arange(n)[:, None] % 3, (p := torch.rand(n, 2)), p + torch.rand(n, 2) / 64], 1)"
    made = problem(tmp_path, model("return x", inputs=f"[{boxes}]"), n=128)
    (x,), (own,) = made.inputs(1, distribution), made.inputs(1)
    assert torch.equal(x[:, 0], own[:, 0]) and bool((x[:, 1:3] < x[:, 3:]).all())

    def overlaps(boxes):
        apart = torch.maximum(boxes[:, None, 1:3], boxes[:, 1:3]) < torch.minimum(boxes[:, None, 3:], boxes[:, 3:])
        return int(apart.all(-1).sum())

    assert overlaps(x) > 2 * overlaps(own)


def test_python_and_numpy_random_numbers_are_seeded_too(tmp_path):
    text = model(
        "return x", inputs="[torch.tensor([random.random(), numpy.random.rand()])]", top="import random, numpy"
    )
    made = problem(tmp_path, text)
    assert torch.equal(made.inputs(1)[0], made.inputs(1)[0])
    assert not torch.equal(made.inputs(1)[0], made.inputs(2)[0])
    assert made.traits.frozen == set()


# --------------------------------------------------------------------------------------------------------------------
# Weights
# --------------------------------------------------------------------------------------------------------------------

NORM = model(
    "return self.norm(self.linear(x)) + self.table.masked_fill(self.mask == 0, 0.0)",
    init="""self.linear = nn.Linear(4, 64)
self.norm = nn.BatchNorm1d(64)
self.register_buffer("mask", torch.tril(torch.ones(64, 64))[:1])
self.register_buffer("table", torch.full((64,), float("-inf")))
self.index = nn.Parameter(torch.arange(3), requires_grad=False)""",
)


def test_seed_zero_gives_the_weights_as_initialised(tmp_path):
    made = problem(tmp_path, NORM)
    torch.manual_seed(0)
    with torch.no_grad():
        expected = made.file.execute({}).Model().state_dict()
    weights = made.weights(0)
    assert list(weights) == list(expected)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    weights["linear.weight"].zero_()
    assert largest(made.weights(0)["linear.weight"]) > 0


def test_other_seeds_change_every_weight_and_keep_its_scale(tmp_path):
    made = problem(tmp_path, NORM)
    first, one, other = made.weights(0), made.weights(1), made.weights(2)
    assert torch.equal(one["linear.weight"], made.weights(1)["linear.weight"])
    for name in ("linear.weight", "linear.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"):
        assert not torch.equal(one[name], other[name]) and not torch.equal(one[name], first[name])
        assert one[name].dtype == first[name].dtype and one[name].is_contiguous()
    assert 0.7 < float(one["linear.weight"].std() / first["linear.weight"].std()) < 1.4
    assert float(one["norm.running_var"].min()) > 0.5
    assert float(one["norm.weight"].min()) > 0.5 and largest(one["norm.bias"]) < 1
    assert torch.equal(one["norm.num_batches_tracked"], first["norm.num_batches_tracked"])
    assert torch.equal(one["index"], first["index"]) and torch.equal(one["table"], first["table"])
    assert torch.equal(one["mask"], first["mask"])


def test_tied_weights_stay_tied(tmp_path):
    text = model(
        "return self.b(self.a(x))",
        init="self.a = nn.Linear(4, 4)\nself.b = nn.Linear(4, 4)\nself.b.weight = self.a.weight",
    )
    weights = problem(tmp_path, text).weights(9)
    assert torch.equal(weights["a.weight"], weights["b.weight"])
    assert not torch.equal(weights["a.bias"], weights["b.bias"])


# --------------------------------------------------------------------------------------------------------------------
# Reference and oracle
# --------------------------------------------------------------------------------------------------------------------


def test_the_oracle_is_the_reference_in_fp64(tmp_path):
    made = problem(tmp_path, LINEAR)
    args, weights = made.inputs(1), made.weights(1)
    (native,), (exact,) = made.reference(args, weights), made.oracle(args, weights)
    assert native.dtype == torch.float32 and exact.dtype == torch.float64
    assert 0 < largest(native.double() - exact) < 1e-5
    by_hand = torch.relu(args[0].double() @ weights["linear.weight"].double().T + weights["linear.bias"].double())
    assert largest(by_hand - exact) < 1e-12


def test_weights_are_used(tmp_path):
    made = problem(tmp_path, LINEAR)
    args = made.inputs(1)
    assert largest(made.reference(args, made.weights(1))[0] - made.reference(args, made.weights(2))[0]) > 1e-3


def test_no_state_leaks_from_call_to_call(tmp_path):
    text = model(
        "self.calls += 1\nself.kept = self.kept + x.sum()\nreturn self.norm(x)",
        init="self.norm = nn.BatchNorm1d(4)\nself.calls = 0\nself.kept = torch.zeros(())",
    )
    made = problem(tmp_path, text)
    args, weights = made.inputs(1), made.weights(3)
    first, second = made.reference(args, weights), made.reference(args, weights)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(weights[name], made.weights(3)[name]) for name in weights)
    assert largest(made.oracle(args, weights)[0] - first[0].double()) < 1e-4


def test_a_module_in_eval_mode_uses_its_running_statistics(tmp_path):
    made = problem(tmp_path, model("return self.norm(x)", init="self.norm = nn.BatchNorm1d(4)\nself.norm.eval()"))
    args, weights = made.inputs(1), made.weights(3)
    scale = weights["norm.weight"] / torch.sqrt(weights["norm.running_var"] + 1e-5)
    expected = (args[0] - weights["norm.running_mean"]) * scale + weights["norm.bias"]
    assert largest(made.reference(args, weights)[0] - expected) < 1e-5


def test_inputs_written_by_the_model_stay_as_they_are(tmp_path):
    made = problem(tmp_path, model("return x.mul_(2), x"))
    args = made.inputs(1)
    before = args[0].clone()
    for _ in range(3):
        doubled, same = made.reference(args, {})
        assert torch.equal(args[0], before) and torch.equal(doubled, before * 2)
        assert doubled.data_ptr() != same.data_ptr()


def test_outputs_never_share_memory_with_inputs(tmp_path):
    made = problem(tmp_path, model("return x, x.T, x[:2]"))
    args = made.inputs(1)
    for _ in range(2):
        outputs = made.reference(args, {})
        places = {t.untyped_storage().data_ptr() for t in (*args, *outputs)}
        assert len(places) == 4


def test_nested_outputs_come_flat_and_in_order_named_ones_by_name(tmp_path):
    made = problem(tmp_path, model('return {"b": (x, [x.sum(), 3]), "a": x.argmax(1), "n": None}'))
    args = made.inputs(1)
    outputs, exact = made.reference(args, {}), made.oracle(args, {})
    assert [tuple(o.shape) for o in outputs] == [(6,), (6, 4), (), ()]
    assert [o.dtype for o in exact] == [torch.int64, torch.float64, torch.float64, torch.int64]
    assert made.output_form == {"dict": [["a", "tensor"], ["b", {"list": ["tensor", {"list": ["tensor", "number"]}]}]]}


def test_no_tensor_comes_out(tmp_path):
    with pytest.raises(UsageError, match="of type str, in which no tensor is found; return"):
        problem(tmp_path, model("return str(x.sum())")).reference([torch.rand(6, 4)], {})


@pytest.mark.parametrize(
    "forward",
    [
        "return F.dropout(x, 0.5, training=True)",
        "return x + torch.randn(4)",
        "return torch.bernoulli(x)",
        "return x @ self.hidden[0]",
    ],
)
def test_random_problems_are_refused(tmp_path, forward):
    made = problem(tmp_path, model(forward, init="self.hidden = [torch.randn(4, 4)]"))
    for _ in range(2):
        with pytest.raises(UsageError, match="cannot be judged: its outputs"):
            made.reference(made.inputs(1), {})


@pytest.mark.parametrize(
    "forward", ["return F.dropout(x, 0.0)", "return F.dropout(x * 0, 0.5)", "return x + len(self.hidden)"]
)
def test_random_numbers_without_effect_are_no_harm(tmp_path, forward):
    made = problem(tmp_path, model(forward, init="self.hidden = [torch.randn(4, 4)]"))
    made.reference(made.inputs(1), {})


@pytest.mark.parametrize(
    "forward",
    [
        "return x.float() * torch.tensor(1 / 3) + torch.zeros(4)",
        "return x.to(torch.float32).exp() + torch.full((4,), 0.1, dtype=torch.float32)",
        "return (x @ self.own) + self.table['a'][0]",
        "return x.type_as(self.own) + torch.linspace(0, 1, 4)",
    ],
)
def test_precision_written_into_forward_does_not_reach_the_oracle(tmp_path, forward):
    init = "self.own = torch.full((4, 4), 0.1)\nself.table = {'a': (torch.full((4,), 0.3),)}"
    made = problem(tmp_path, model(forward, init=init))
    args = made.inputs(1)
    (native,), (exact,) = made.reference(args, {}), made.oracle(args, {})
    assert exact.dtype == torch.float64 and native.dtype == torch.float32
    assert 0 <= largest(native.double() - exact) < 1e-5
    assert torch.get_default_dtype() == torch.float32


def test_a_problem_without_an_oracle_says_so(tmp_path):
    made = problem(tmp_path, model("return torch.from_numpy(x.numpy().astype('float16'))"))
    args = made.inputs(1)
    assert made.reference(args, {})[0].dtype == torch.float16
    with pytest.raises(UsageError, match=r"output 0 is torch\.float16"):
        made.oracle(args, {})
    assert torch.get_default_dtype() == torch.float32


def test_errors_in_the_oracle_are_told(tmp_path):
    made = problem(tmp_path, model("if x.dtype == torch.float64: raise RuntimeError('no doubles')\nreturn x"))
    with pytest.raises(UsageError, match=r"line 10: Model.forward in fp64 raised RuntimeError: no doubles"):
        made.oracle(made.inputs(1), {})
    assert torch.get_default_dtype() == torch.float32


def test_init_arguments_travel_as_they_are(tmp_path):
    text = model("return x").replace(
        "return []", "return [(3, 4), [1, 2.5], None, 'a', torch.float16, torch.ones(2), {'k': (1,)}]"
    )
    made = ProblemFile(write(tmp_path, text.replace("def __init__(self)", "def __init__(self, *args)")))
    args = ModuleProblem(made, {}, "cpu").init_args
    back = decode_plain(encode_plain(args))
    assert back[0] == (3, 4) and isinstance(back[0], tuple) and back[1:5] == [[1, 2.5], None, "a", torch.float16]
    assert torch.equal(back[5], torch.ones(2)) and back[6] == {"k": (1,)}


# --------------------------------------------------------------------------------------------------------------------
# Sweep
# --------------------------------------------------------------------------------------------------------------------

CONV = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.norm = nn.GroupNorm(groups, out_channels)
        self.bias = nn.Parameter(torch.randn(bias_shape))
    def forward(self, x):
        return self.norm(self.conv(x)) + self.bias
batch_size = 16
in_channels, out_channels = 32, 64
height = width = 64
kernel_size = (3, 5)
groups = 8
bias_shape = (out_channels, 1, 1)
unused = 100
def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]
def get_init_inputs():
    return [in_channels, out_channels, kernel_size, groups, bias_shape]
"""


def surveys_of(folder: Path, text: str) -> Surveys:
    return Surveys(ProblemFile(write(folder, text)))


def variants_by_seed(folder, text, seeds):
    """The variants under each seed, by one survey of each size."""
    surveys = surveys_of(folder, text)
    with mock.patch("kerneleval.tasks.formats.surveys._MAX_PROBES", 10_000):  # as many as each has alone
        return [variants(surveys, seed) for seed in range(seeds)]


def test_only_sizes_are_varied(tmp_path):
    found = {unit.names for unit in units(surveys_of(tmp_path, CONV))}
    assert found == {("batch_size",), ("in_channels",), ("out_channels",), ("height",), ("width",)}


def test_sizes_that_must_be_equal_change_together(tmp_path):
    text = LINEAR.replace("torch.relu(self.linear(x))", "x + self.linear(x)").replace("= 40", "= 24")
    assert {unit.names for unit in units(surveys_of(tmp_path, text))} == {("batch",), ("features_in", "features_out")}


MASKED = """
def make():
    x = torch.rand(64, 48)
    x[torch.rand(64, 48) < 0.1] = 0
    return x
"""


@pytest.mark.parametrize(
    ("top", "inputs", "init", "names"),
    [
        ("", "[torch.rand(64, 48)]", "[]", [("get_inputs[0]",), ("get_inputs[1]",)]),
        ("", "[torch.randn([4 * 16, 48], dtype=torch.float32)]", "[]", [("get_inputs[0]",), ("get_inputs[1]",)]),
        ("rows = 6", "[torch.rand(rows, 48).transpose(0, 1)]", "[]", [("rows",), ("get_inputs[0]",)]),
        ("def make(n=48):\n    return torch.rand(64, n)", "[make()]", "[]", [("make[0]",), ("make[1]",)]),
        ("cfg = {'rows': 64, 'layers': 12}", "[torch.rand(cfg['rows'], cfg['layers'])]", "[]", [("cfg[0]",)]),
        ("class Sizes:\n    rows = 64", "[torch.rand(Sizes.rows, 3)]", "[]", [("get_inputs[0]",), ("Sizes[0]",)]),
        ("", "[torch.randint(0, 7, (33,))]", "[7]", [("get_inputs[1]",), ("get_init_inputs[0]", "get_inputs[0]")]),
        ("", "[torch.rand(2, 20)]", "[1, 20]", [("get_inputs[0]",), ("get_inputs[1]", "get_init_inputs[0]")]),
        ("cfg = {'rows': 64, 'dim': 48}", "[torch.rand(cfg['rows'], cfg['dim'])]", "[]", [("cfg[0]",), ("cfg[1]",)]),
        (
            "num_patches = 64",
            "[torch.rand(num_patches, 3).cumsum(dim=1)]",
            "[]",
            [("num_patches",), ("get_inputs[0]",)],
        ),
        (
            "tokens_per_group = 64",
            "[torch.rand(2, tokens_per_group)]",
            "[]",
            [("tokens_per_group",), ("get_inputs[0]",)],
        ),
        (MASKED, "[make()]", "[]", [("make[0]", "make[2]"), ("make[1]", "make[3]")]),
    ],
)
def test_sizes_written_inside_functions_are_varied(tmp_path, top, inputs, init, names):
    body = "self.act = nn.LayerNorm(width) if width else nn.ReLU()\nself.table = nn.Parameter(torch.randn(table, 5))"
    text = model("return self.act(x) if x.is_floating_point() else self.table[x]", body, inputs, top)
    text = text.replace("return []", f"return {init}")
    text = text.replace("def __init__(self)", "def __init__(self, table=1, width=None, kernel=3)")
    surveys = surveys_of(tmp_path, text)
    assert [unit.names for unit in units(surveys)] == names
    (one, *_) = names
    assert surveys.at(dict.fromkeys(one, 5)).arguments != surveys.at({}).arguments


def test_numbers_that_are_no_sizes_stay(tmp_path):
    inputs = "[torch.rand(n, 8).unsqueeze(2).permute(0, 2, 1), torch.rand(n)[:5] * 3, *[2.0 for _ in range(3)]]"
    surveys = surveys_of(tmp_path, model("return x", inputs=inputs))
    assert {name for unit in units(surveys) for name in unit.names} == {"n", "get_inputs[0]"}


def test_what_the_model_reads_itself_is_not_varied(tmp_path):
    text = LINEAR.replace("nn.Linear(features_in, features_out)", "nn.Linear(features_in, 2 * WIDTH)").replace(
        "features_out = 40", "features_out = 40\nBASE = 20\nWIDTH = BASE"
    )
    assert {unit.names for unit in units(surveys_of(tmp_path, text))} == {("batch",)} | {("features_in",)}


@pytest.mark.slow
def test_a_sweep_chooses_bounded_working_sizes(tmp_path):
    surveys = surveys_of(tmp_path, CONV)
    base, own = surveys.at({}), surveys.file.constructor
    chosen = [(c, dims) for c, dims in variants(surveys) if all(dims.get(name, own[name]) == own[name] for name in own)]
    assert 4 <= len(chosen) <= 7
    assert {"non_power_of_two", "small", "tiny", "rectangular"} <= {category for category, _ in chosen}
    assert len({tuple(dims.values()) for _, dims in chosen}) == len(chosen)
    for category, dims in chosen:
        assert dims["out_channels"] % 8 == 0 and (dims["kernel_size[0]"], dims["groups"], dims["unused"]) == (3, 8, 100)
        made = surveys.at(dims)
        assert made.form != base.form
        assert made.bytes <= GROWTH * base.bytes and made.flops <= GROWTH * base.flops
        if category == "tiny":
            assert dims["batch_size"] <= 16 and dims["in_channels"] <= 16 and dims["height"] <= 16
            small = ModuleProblem(surveys.file, dims, "cpu")
            assert small.reference(small.inputs(1), small.weights(1))[0].shape == made.outputs[0].shape
    near = next(dims for category, dims in chosen if category == "non_power_of_two")
    assert (near["batch_size"], near["in_channels"], near["out_channels"], near["height"]) == (15, 31, 56, 63)


def test_what_could_be_varied_is_not_sought_where_a_file_is_small(tmp_path, monkeypatch):
    """It was most of the time of reading such a file as it is."""
    monkeypatch.setattr("kerneleval.tasks.formats.sweep.units", lambda _: pytest.fail("sought"))
    assert shrink(surveys_of(tmp_path, LINEAR), 1 << 40, 1 << 40) == {}


def test_rows_of_a_pair_are_no_size(tmp_path):
    """Sources and targets of edges had a third row; candidates take them apart."""
    inputs = "[torch.rand(20, 3), torch.randint(0, 20, (2, 50))]"
    text = model("return x.index_add(0, more[0][1], x[more[0][0]])", inputs=inputs)
    named = {name for unit in units(surveys_of(tmp_path, text)) for name in unit.names}
    assert "get_inputs[3]" in named and "get_inputs[2]" not in named


@pytest.mark.slow
def test_a_state_is_no_longer_than_its_window(tmp_path):
    """A window of 1 keeps a state of ``x[-0:]``: all of a sequence, and of a sequence of 1 no more than that."""
    text = model(
        "p = F.pad(x, (self.width - 1, 0))\nreturn F.conv1d(p[:, None], self.w[None, None]), p[:, -(self.width - 1) :]",
        init="self.width = width\nself.w = nn.Parameter(torch.rand(width))",
        inputs="[torch.rand(4, 50)]",
    )
    text = text.replace("def __init__(self)", "def __init__(self, width)").replace("return []", "return [4]")
    for found in variants_by_seed(tmp_path, text, 8):
        chosen = [dims for _, dims in found]
        widths = {dims["get_init_inputs[0]"] for dims in chosen}
        assert 1 not in widths and len(widths) > 1


def test_complex_inputs_are_no_indices(tmp_path):
    surveys = surveys_of(tmp_path, model("return x.abs()", inputs="[torch.randn(12, 40).to(torch.complex64)]"))
    assert len(variants(surveys)) > 3


def test_a_little_file_has_a_large_variant(tmp_path):
    """Of 40 x 100 numbers the first 64 rows, or 256 columns, were all that any case had."""
    text = model("return x.softmax(-1)", inputs="[torch.rand(rows, columns)]", top="rows = {}; columns = {}")
    chosen = dict(variants(surveys_of(tmp_path, text.format(40, 100))))
    assert 120 <= chosen["large"]["rows"] <= 200 and 300 <= chosen["large"]["columns"] <= 500
    assert "large" not in dict(variants(surveys_of(tmp_path, text.format(400, 1000))))


def test_a_sweep_avoids_sizes_at_which_the_problem_degenerates(tmp_path):
    text = (
        model(
            "return F.group_norm(self.linear(x), 8)",
            init="self.linear = nn.Linear(4, width)",
            inputs="[torch.rand(n, 4)]",
            top="n = 64; width = 64",
        )
        .replace("def __init__(self)", "def __init__(self, width)")
        .replace("return []", "return [width]")
    )
    surveys = surveys_of(tmp_path, text.replace("; ", "\n"))
    chosen = variants(surveys)
    assert {"tiny", "small"} <= {category for category, _ in chosen}
    assert all(dims["width"] % 8 == 0 and dims["width"] > 8 for _, dims in chosen)


def test_a_sweep_selects_nothing_that_is_masked(tmp_path):
    """Any of the masked ones may be the last of the selected, so nothing says what is right."""
    forward = "return x.masked_fill(torch.arange(x.shape[1]) >= x.shape[1] // 2, -torch.inf).topk(6)[1]"
    chosen = variants(surveys_of(tmp_path, model(forward, inputs="[torch.rand(n, width)]", top="n = 64\nwidth = 48")))
    assert {"tiny", "small"} <= {category for category, _ in chosen}
    assert all(dims["width"] // 2 >= 6 for _, dims in chosen)


def test_a_sweep_selects_nothing_that_a_drawn_mask_may_hide(tmp_path):
    """Of two beams both are finished once in 25 rows: what is taken of the other ends is any."""
    forward = (
        "ended = torch.where(torch.arange(x.shape[2]) == 0, 0, -torch.inf)\n"
        "return torch.where(more[0][:, :, None], ended, x).flatten(1).topk(4)[1]"
    )
    inputs = "[torch.rand(n, beams, width), torch.rand(n, beams) < 0.2]"
    text = model(forward, inputs=inputs, top="n = 3\nbeams = 4\nwidth = 40")
    chosen = variants(surveys_of(tmp_path, text))
    assert {"tiny", "small"} <= {category for category, _ in chosen}
    assert all(dims["beams"] >= 4 for _, dims in chosen)


@pytest.mark.slow
def test_a_sweep_is_the_same_for_the_same_file_and_seed(tmp_path):
    first = variants(surveys_of(tmp_path, CONV))
    assert first == variants(surveys_of(tmp_path, CONV))
    assert first != variants(surveys_of(tmp_path, CONV), suite_seed=1)
    assert first != variants(surveys_of(tmp_path, CONV + "\n# another text\n"))


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.bincount((x * 4).long().flatten(), minlength=8)[:4].to(x.dtype)",
        "return x * len(torch.unique((x * 0).long()))",
        "return x + torch.nonzero(x > 2).shape[0]",
    ],
)
def test_operators_that_need_values_to_know_their_shape_are_read(tmp_path, forward):
    task = read(write(tmp_path, model(forward)))
    dims = dict(task.case_dims[0][1])
    assert task.bytes(dims, "float32") > 0
    problem = task.build(dims, "cpu")
    assert all(t.isfinite().all() for t in problem.reference(problem.inputs(1), problem.weights(1)))


def test_a_swept_task(tmp_path):
    task = read(write(tmp_path, LINEAR), sweep=True)
    assert task.case_dims[0] == ("given", {"batch": 16, "features_in": 24, "features_out": 40})
    assert task.distributions == ("standard", "large_scale", "small_scale", "negative", "outlier", "trained")
    for dim in task.dims:
        assert all(dim.low <= dims[dim.name] <= dim.high for _, dims in task.case_dims)


def test_distributions_are_kept_only_where_the_problem_is_defined(tmp_path):
    small = ("small_scale", "tiny_scale")
    logarithm = read(write(tmp_path, model("return torch.log(x)"), "a.py"))
    assert logarithm.distributions == ("standard", "large_scale", *small)
    both = read(write(tmp_path, model("return torch.log(x) + torch.log(1 - x)"), "c.py"))
    assert both.distributions == ("standard", *small)
    exponential = read(write(tmp_path, model("return torch.exp(x * 40)"), "b.py"))
    assert exponential.distributions == ("standard", "small_scale", "negative")
    raises = "assert x.max() <= 8, 'too large'; return x * 2"
    assert read(write(tmp_path, model(raises), "d.py")).distributions == (*exponential.distributions, "padded")


@pytest.mark.slow
@pytest.mark.parametrize("forward", ["return F.dropout(x)", "return x * torch.randn(x.shape[1])"])
def test_a_random_problem_is_refused_in_one_true_sentence_when_it_is_swept(tmp_path, forward):
    said = r"cannot be judged: .*random numbers that forward draws .*make the random part an input"
    with pytest.raises(UsageError, match=said):
        read(write(tmp_path, model(forward)), sweep=True)


def test_a_problem_shrinks_as_far_as_it_goes(tmp_path):
    surveys = surveys_of(tmp_path, CONV)
    dims = shrink(surveys, 200_000, 10**7)
    made = surveys.at(dims)
    assert made.bytes <= 200_000 and made.flops <= 10**7
    ends = "torch.rand(*map(int, '16 24'.split()))"  # sizes that are no numbers in the source
    fixed = surveys_of(tmp_path, LINEAR.replace("torch.rand(batch, features_in)", ends))
    assert shrink(fixed, 1, 1) == {"features_out": 1}


def test_control_flow_on_values_takes_real_tensors(tmp_path):
    surveys = surveys_of(tmp_path, model("return x[x > 0.5].sum() + x if bool(x.sum() > 0) else -x"))
    assert surveys.at({}).real and surveys.at({}).outputs[0].shape == (6, 4)
    assert units(surveys)
    broken = surveys_of(tmp_path / "b", model("if bool(x.sum() > 0): raise ValueError('no')\nreturn x"))
    with pytest.raises(UsageError, match=r"line 10: Model\.forward raised ValueError: no"):
        broken.at({})


def test_constructors_may_read_values(tmp_path):
    text = model("return x * self.rate", init="self.rate = torch.linspace(0, 1, 3)[1].item()")
    assert surveys_of(tmp_path, text).at({}).outputs[0].shape == (6, 4)


@pytest.mark.parametrize(
    ("forward", "terms"),
    [
        ("return x.sum()", 24),
        ("return x.mean(1)", 4),
        ("return torch.softmax(x, dim=0)", 6),
        ("return torch.cumsum(x, dim=1)", 4),
        ("return F.layer_norm(x, (4,))", 4),
        ("return x @ x.T", 4),
        ("return F.relu(x)", 1),
        ("return F.mse_loss(x, x * 2)", 24),
    ],
)
def test_summed_terms_are_counted(tmp_path, forward, terms):
    assert surveys_of(tmp_path, model(forward)).at({}).terms == terms


# --------------------------------------------------------------------------------------------------------------------
# The benchmark over a whole repository
# --------------------------------------------------------------------------------------------------------------------


def test_the_levels_benchmark_tells_good_weak_and_random_problems(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("kernelbench_levels", ROOT / "benchmarks" / "kernelbench_levels.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    folder = tmp_path / "KernelBench" / "level1"
    write(folder, LINEAR, "1_Linear.py")
    write(folder, model("return F.relu(x)"), "2_ReLU.py")
    write(folder, model("return F.dropout(x)"), "10_Dropout.py")
    options = SimpleNamespace(own_sizes=False, sweep=False, mebibytes=8, gigaflops=0.5, device="cpu")
    rows = [script.examine(path, options) for path in script.problems(tmp_path, "1", "")]
    assert [row["problem"] for row in rows] == ["level1/1_Linear", "level1/2_ReLU", "level1/10_Dropout"]
    assert rows[0]["reason"] == "" and rows[0]["weak"] == [] and 0 < rows[0]["error"] < 1e-5
    assert rows[1]["weak"] == ["a copy of input 0 is right"]
    assert "random numbers" in rows[2]["reason"]
    assert script.summary(rows).startswith("2 of 3 problems can be judged; 1 of them are weak")


def test_a_function_that_holds_modules_belongs_to_its_own_copy(tmp_path):
    """The copy in fp64 called the original's modules: level 3, problem 44."""
    init = "self.parts = nn.ModuleDict({'a': nn.Linear(4, 4)})\nm = self.parts\nself.block = lambda x: m.a(x)"
    init = init.replace("m.a(x)", "m['a'](x)")
    made = problem(tmp_path, model("return self.block(x)", init))
    args, weights = made.inputs(1), made.weights(1)
    (native,), (exact,) = made.reference(args, weights), made.oracle(args, weights)
    assert exact.dtype == torch.float64
    assert float((native - exact).abs().max()) < 1e-5
    assert float((native - torch.nn.functional.linear(args[0], weights["parts.a.weight"])).std()) > 0


def test_plain_floats_vary_beside_other_inputs(tmp_path):
    """Who writes 3.14 into the kernel is right on the file's own inputs."""
    made = problem(tmp_path, model("return x * more[0]", inputs="[torch.rand(n, 4), 3.14, 2]"))
    own, other = made.inputs(1), made.inputs(1, "negative")
    assert own[1:] == [3.14, 2] and other[2] == 2
    assert 0.8 * 3.14 <= other[1] < 0.95 * 3.14
    assert made.inputs(5, "large_scale")[1] == other[1]
    (found,) = made.reference(other, made.weights(1))
    assert torch.equal(found, other[0] * other[1])


def test_plain_floats_in_lists_vary_too(tmp_path):
    """A kernel that wrote the two factors of a tuple out passed without a word."""
    text = model("return x * more[0][1] + more[1]['b']", inputs="[torch.rand(n, 4), (2, 0.5), {'b': 0.25, 'c': 'no'}]")
    made = problem(tmp_path, text)
    assert made.inputs(1)[1:] == [(2, 0.5), {"b": 0.25, "c": "no"}]
    _, (whole, part), named = made.inputs(1, "small_scale")
    assert whole == 2 and 0.4 <= part < 0.475 and 0.2 <= named["b"] < 0.2375 and named["c"] == "no"


def test_rows_of_length_one_that_never_change_are_varied_as_such(tmp_path):
    """A box filter and a basis may be written into a kernel as little as other constants."""
    shares, basis = "torch.full((8, 4), 0.25)", "torch.linalg.qr(torch.arange(16.0).view(4, 4).sin())[0]"
    made = problem(tmp_path, model("return x", inputs=f"[{shares}, {basis}, torch.rand(1, 64).softmax(-1)]"))
    one, other = made.inputs(1), made.inputs(2)
    assert torch.allclose(one[0].sum(-1), torch.ones(8)) and not torch.equal(one[0], other[0])
    assert torch.allclose(one[1] @ one[1].T, torch.eye(4), atol=1e-5) and not torch.equal(one[1], other[1])
    assert {0, 2} <= made.traits.normed and 1 in made.traits.rigid


def varied_with(folder: Path, forward: str, inputs: str) -> tuple[list[Unit], list[dict[str, int]], list[str]]:
    """Units, the dims of the variants and what the verdict warns of, for a file of ``forward`` and ``get_inputs``."""
    path = folder / "problem.py"
    text = f"    def forward(self, x, lengths, most):\n        {forward}\ndef get_inputs():\n    {inputs}\n"
    head = "import torch\nclass Model(torch.nn.Module):\n"
    path.write_text(head + text + "def get_init_inputs():\n    return []\n")
    surveys = Surveys(ProblemFile(path))
    told = [found.message for found in read(path, sweep=True).findings]
    return units(surveys), [dims for _, dims in variants(surveys)], told


MASKED = "return x.masked_fill(torch.arange(x.shape[1], device=x.device) >= lengths[:, None], 0).sum(1)"


def test_a_plain_argument_that_is_not_used_stays(tmp_path):
    """Who goes as far as the longest sequence was wrong where the sweep took that for a size."""
    varied, dims, told = varied_with(
        tmp_path, MASKED, "return [torch.randn(5, 37), torch.tensor([9, 3, 30, 7, 8]), 30]"
    )
    assert [unit.value for unit in varied] == [37]
    assert not any("most" in name for one in dims for name in one)
    assert any("argument most is the same in every draw" in text for text in told)


def test_a_plain_argument_that_is_used_is_varied(tmp_path):
    forward = "return x.masked_fill(torch.arange(x.shape[1], device=x.device) >= most, 0).sum(1)"
    varied, *_ = varied_with(tmp_path, forward, "return [torch.randn(5, 37), 0.5, 30]")
    assert [unit.value for unit in varied] == [5, 37, 30]


@pytest.mark.slow
def test_the_largest_length_follows_the_size_that_bounds_lengths(tmp_path):
    """Lengths of 1 to 37 beside 18 or 74 steps: kernels read behind the end, and never met the longer ones."""
    inputs = "return [torch.randn(6, 37), torch.randint(1, 38, (6,)), 37]"
    varied, dims, _ = varied_with(tmp_path, MASKED, inputs)
    (steps,) = (unit for unit in varied if unit.value == 37)
    assert len(steps.names) == 2 and len(steps.ends) == 1
    assert all(one[steps.ends[0]] == one[steps.names[0]] + 1 == one[steps.names[1]] + 1 for one in dims)
    for starts in ("0", "torch.randint(38, (6,))[0]"):
        inputs = f"return [torch.randn(6, 37), torch.randint({starts}, 38, (6,)), 37]"
        assert not any(unit.ends for unit in varied_with(tmp_path, MASKED, inputs)[0])


@pytest.mark.slow
@pytest.mark.parametrize("longest", [64, 54])
def test_the_largest_length_follows_no_width_that_is_as_large(tmp_path, longest):
    """Segments of 64 rows beside a width and a longest segment of 31: who goes as far as that was rejected."""
    forward = "return torch.stack([x[:b].sum(0) - x[:a].sum(0) for a, b in zip(lengths[:-1], lengths[1:])])"
    inputs = f"return [torch.randn(120, 64), torch.tensor([0, 17, {17 + longest}, 90, 120]), 64]"
    varied, dims, _ = varied_with(tmp_path, forward, inputs)
    (width,) = (unit for unit in varied if unit.value == 64)
    assert len(width.names) == 1 and len({one[width.names[0]] for one in dims}) > 3


@pytest.mark.slow
def test_no_sequence_becomes_longer_than_is_told(tmp_path):
    """The last end followed the rows, and the longest sequence was longer than its own length said."""
    forward = "return torch.stack([x[:b].sum(0) - x[:a].sum(0) for a, b in zip(lengths[:-1], lengths[1:])])"
    inputs = "return [torch.randn(60, 6), torch.tensor([0, 10, 25, 31, 60]), 29]"
    _, dims, _ = varied_with(tmp_path, forward, inputs)
    assert dims and all(one["get_inputs[0]"] <= 60 for one in dims)


def test_no_more_is_used_than_there_is(tmp_path):
    """Of 30 rows 20 were in use, and of 5 rows 16: a slice takes that, and who reads row by row raised."""
    varied, dims, _ = varied_with(tmp_path, "return x[:, :lengths].sum(1)", "return [torch.randn(4, 30, 8), 20, None]")
    assert [unit.value for unit in varied] == [4, 30, 8, 20] and len(dims) > 5
    used = [(one["get_inputs[3]"], one["get_inputs[1]"]) for one in dims]
    assert all(some <= rows for some, rows in used) and {some for some, _ in used} >= {1, 10, 19}


GROUPS = """out = x.new_zeros(x.shape[0], most.shape[2])
        start = 0
        for size, group in zip(lengths.tolist(), most):
            out[start : start + size] = x[start : start + size] @ group
            start += size
        return out"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "grows"),
    [
        ("return x.new_zeros(more[1], x.shape[1]).index_add(0, more[0], x)", True),
        ("return F.one_hot(more[0], more[1]).to(x.dtype).T @ x", True),
        ("return x.cumsum(0)[more[1] - 1] + more[0].sum()", False),
    ],
)
def test_numbers_of_segments_exceed_other_sizes(tmp_path, forward, grows):
    """16 segments were never more than the width of 18, and a table of 18 of them passed."""
    inputs = "[torch.rand(100, 18), torch.randint(0, 13, (100,)), 16]"
    found = [dims["get_inputs[4]"] for dims in varied_sizes(tmp_path, model(forward, inputs=inputs))]
    assert (max(found) > 24) is grows


def test_groups_of_rows_leave_no_row_out(tmp_path):
    """A kernel that takes the groups' rows as all rows was wrong beside one row more, or one group less."""
    inputs = "return [torch.randn(32, 12), torch.tensor([8, 8, 16]), torch.randn(3, 12, 10)]"
    varied, dims, _ = varied_with(tmp_path, GROUPS, inputs)
    assert {unit.value for unit in varied} >= {12, 10} and len(dims) > 5
    problem = ModuleProblem(ProblemFile(tmp_path / "problem.py"), {}, "cpu")
    for one in dims:
        x, parts, groups = ModuleProblem(problem.file, one, "cpu").inputs(1)
        assert int(parts.sum()) == len(x) and len(parts) == len(groups)
    redrawn = [problem.inputs(seed, "redrawn")[1].tolist() for seed in range(9)]
    assert all(sorted(parts) == [8, 8, 16] != parts for parts in redrawn)


# Files of which no size was varied, or one that no candidate can take.
# --------------------------------------------------------------------------------------------------------------------


def varied_sizes(folder: Path, text: str) -> list[dict[str, int]]:
    return [dims for _, dims in variants(Surveys(ProblemFile(write(folder, text))))]


def test_moments_that_begin_at_zero_leave_the_sizes_free(tmp_path):
    """Noise in their place has no root, and all sizes fell out."""
    text = model(
        "more[0].mul_(0.9).addcmul_(x, x)\nreturn x / (more[0].sqrt() + 1)", inputs="[torch.randn(n), torch.zeros(n)]"
    )
    assert len(varied_sizes(tmp_path, text.replace("n = 6", "n = 600"))) > 2


def test_a_name_that_bounds_random_integers_follows_its_table(tmp_path):
    """The table alone was made smaller, and what indexed it was not: the file was refused."""
    text = model("return self.table(x)", "self.table = nn.Embedding(vocab, 6)", "None").replace(
        "self):", "self, vocab):", 1
    )
    text = text.replace("    return None", "    V, L = 200, 30\n    return [torch.randint(1, V, (8, L))]").replace(
        "return []", "return [200]"
    )
    found = varied_sizes(tmp_path, text)
    tables = [
        (dims["get_init_inputs[0]"], dims["get_inputs[0]"]) for dims in found if dims["get_init_inputs[0]"] != 200
    ]
    assert tables and all(one == other for one, other in tables)


@pytest.mark.parametrize(
    ("made", "follows"),
    [
        ("torch.randint(0, 16, (40, 9), dtype=torch.uint8)", False),
        ("torch.randint(0, 16, (40, 9)).to(torch.int8)", False),
        ("torch.randint(high=16, size=(40, 9)).byte()", False),
        ("torch.randint(0, 16, (40, 9))", True),
    ],
)
def test_levels_of_a_quantisation_follow_no_size(tmp_path, made, follows):
    """Beside 16 rows numbers of four bits went up to 48: a kernel that keeps them in eight bits was rejected."""
    text = model("return x @ more[0].to(x.dtype)", inputs=f"[torch.rand(16, 40), {made}]")
    found = surveys_of(tmp_path, text)
    (rows,) = (unit for unit in units(found) if unit.value == 16)
    assert len(rows.names) == 1 + follows


def test_flags_follow_no_size_of_two(tmp_path):
    """They became numbers up to 3 where two channels became four."""
    inputs = "[torch.randn(3, 2, 20), torch.randint(0, 2, (3, 2, 20), dtype=torch.uint8)]"
    file = ProblemFile(write(tmp_path, model("return x * more[0]", inputs=inputs)))
    followers = {name for unit in units(Surveys(file)) for name in unit.names if file.literals[name].bound}
    assert not followers and any(literal.bound for literal in file.literals.values())


def test_coordinates_stay_three(tmp_path):
    """A kernel that reads x, y and z was given two of them."""
    inputs = "[torch.rand(5, 120, 3), torch.rand((5, 40, 3))]"
    file = ProblemFile(write(tmp_path, model("return torch.cdist(x, more[0])", inputs=inputs)))
    assert sorted(literal.value for literal in file.literals.values()) == [5, 5, 40, 120]


ATTENTION = "return F.scaled_dot_product_attention(x, *more, enable_gqa=True)"


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (
            "[torch.randn(2, 4, 96, 16), torch.randn(2, 4, 96, 16), torch.randn(2, 4, 96, 16)]",
            {2: 1, 4: 1, 96: 1, 16: 1},
        ),
        ("[torch.randn((2, 4, 80, 16)), torch.randn((2, 2, 80, 16)), torch.randn((2, 2, 80, 16))]", {80: 1, 16: 1}),
        ("[torch.randn(2, 4, 96, 16), torch.randn(2, 4, 96, 24), torch.randn(2, 4, 96, 24)]", {2: 1, 4: 1, 96: 1}),
    ],
)
def test_sizes_of_three_inputs_written_alike_are_one(tmp_path, inputs, expected):
    """Values with a head size of their own, and queries of one batch beside two, failed who takes the sizes as one."""
    forward = ATTENTION if "24" not in inputs else "return x.sum(-1) + more[0].sum(-1) + more[1].sum(-1)"
    found = [unit.value for unit in units(surveys_of(tmp_path, model(forward, inputs=inputs)))]
    assert {value: found.count(value) for value in expected} == expected


def test_shared_heads_are_never_tried_without_any(tmp_path):
    """PyTorch divides by their number, and the whole process ended."""
    inputs = "[torch.randn(2, 8, 40, 16), torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 16)]"
    found = variants(surveys_of(tmp_path, model(ATTENTION, inputs=inputs)), 0)
    assert found and all(min(dims.values()) > 0 for _, dims in found)


def test_shapes_that_begin_alike_share_these_sizes(tmp_path):
    """Slices let one input be shorter than the others, and a last chunk of one row was broadcast: a scan step by step
    failed. So might a batch of one beside two."""
    forward = """
        gate, bias, state = more
        return torch.cat([(a * b[..., None]).relu() + c + state for a, b, c in zip(*(
            [t[:, i : i + 8] for i in range(0, x.shape[1], 8)] for t in (x, gate, bias)))], 1)
    """
    inputs = "[torch.randn(2, 40, 12), torch.rand(2, 40), torch.randn((2, 40, 1)), torch.zeros(2, 1, 12)]"
    found = [unit.value for unit in units(surveys_of(tmp_path, model(forward, inputs=inputs)))]
    assert sorted(found) == [2, 12, 40]


def test_a_number_for_each_row_shares_the_rows_sizes(tmp_path):
    """Places are held within the rows, so durations ran beside fewer of these, and masks in their place raised."""
    forward = """
        ends = more[0].cumsum(1)
        at = torch.searchsorted(ends, torch.arange(9).expand(len(x), 9).contiguous(), right=True)
        return x.gather(1, at.clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[2]))
    """
    inputs = "[torch.randn(6, 17, 12), torch.randint(0, 10, (6, 17))]"
    found = units(surveys_of(tmp_path, model(forward, inputs=inputs)))
    assert sorted(unit.value for unit in found) == [6, 12, 17]


def test_no_batch_of_one_is_repeated_for_positions_of_two(tmp_path):
    """The file writes them out: a kernel whose outputs are as large as its inputs was rejected."""
    inputs = "[torch.randn(2, 33, 16), torch.arange(33) + torch.tensor([[0], [100]])]"
    found = varied_sizes(tmp_path, model("return x * more[0][..., None].float().cos()", inputs=inputs))
    assert found and all(dims.get("get_inputs[0]", 2) > 1 for dims in found)


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("reads", ["more[0][0]", "more[0][:1]", "more[0]"])
@pytest.mark.parametrize(
    "given", ["torch.ones(4, 12, 12).tril()", "torch.randn(12, 12).expand(4, -1, -1)", "torch.ones(4, 12, 12)"]
)
def test_as_many_masks_are_given_as_items_though_the_first_is_read_alone(tmp_path, reads, given):
    """The masks of a batch had a size of their own, and who reads each item's was out of bounds."""
    surveys = surveys_of(tmp_path, model(f"return x * {reads}", inputs=f"[torch.randn(4, 12, 12), {given}]"))
    shapes = [surveys.at(dims).arguments for _, dims in variants(surveys)]
    assert len({x.shape[0] for x, _ in shapes}) > 3 and all(x.shape[0] == mask.shape[0] for x, mask in shapes)


def test_who_reads_more_than_the_first_row_has_a_size_of_its_own(tmp_path):
    inputs = "[torch.randn(4, 12), torch.randn(4, 12)]"
    for forward, several in (("x @ more[0].T @ more[0]", True), ("x * more[0][0]", False)):
        surveys = surveys_of(tmp_path, model(f"return {forward}", inputs=inputs))
        shapes = [surveys.at(dims).arguments for _, dims in variants(surveys)]
        assert any(x.shape[0] != other.shape[0] for x, other in shapes) is several


def items_of(folder: Path, forward: str, inputs: str, init: str = "pass") -> tuple[Surveys, list[dict[str, int]]]:
    """The dims of the variants in which there is more than the file's batch of one."""
    surveys = surveys_of(folder, model(forward, init, inputs, top="batch = 1"))
    return surveys, [dims for _, dims in variants(surveys) if any(dims.get(name, 1) > 1 for name in ITEMS)]


@pytest.mark.slow(every=2)
@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x.softmax(-1)", "[torch.randn(1, 40)]"),
        ("return x.softmax(-1)", "[torch.randn(batch, 5, 7)]"),
        ("return F.instance_norm(x)", "[torch.randn(300, 40)[None, :7]]"),
        ("return torch.arange(64.0)[more[0]][..., None] * x", "[torch.randn(1, 40, 6), torch.arange(40)[None]]"),
        ("return (x @ x.mT).masked_fill(more[0] == 0, -9)", "[torch.randn(1, 9, 6), torch.ones(1, 9, 9).tril()]"),
        ("return x.cumsum(1) * more[0]", "[torch.randn(1, 9, 6), torch.rand(1)]"),
    ],
)
def test_a_batch_of_one_grows(tmp_path, forward, inputs):
    """Candidates that drop the batch, or compute its first item alone, passed: a size of 1 was never another."""
    surveys, found = items_of(tmp_path, forward, inputs)
    (dims,) = found
    own, made = surveys.at({}), surveys.at(dims)
    assert own.outputs[0].shape[0] == 1 and made.outputs[0].shape[0] == made.arguments[0].shape[0] == 3
    first, *rest = ModuleProblem(surveys.file, dims, "cpu").inputs(1)
    assert not torch.equal(first[0], first[1])
    for spec, mask in zip(own.arguments[1:], rest, strict=True):
        assert mask.shape[0] == (1 if spec.shape == (1,) else 3)


@pytest.mark.parametrize(
    ("forward", "inputs", "init"),
    [
        ("return x / x.norm()", "[torch.randn(1, 40)]", "pass"),  # items are not apart
        ("return self.norm(x)", "[torch.randn(1, 4, 40)]", "self.norm = nn.BatchNorm1d(4)"),
        ("return x[0] * 2", "[torch.randn(1, 40)]", "pass"),
        ("return x.squeeze() * 2", "[torch.randn(1, 40, 6)]", "pass"),
        ("return x.sum()", "[torch.randn(1, 40)]", "pass"),
        ("return x.view(1, 5, 8).cos()", "[torch.randn(1, 40)]", "pass"),
        ("return more[0] @ x.T", "[torch.randn(1, 40), torch.randn(7, 40)]", "pass"),
        ("return x * more[0]", "[torch.randn(1, 40), torch.randn(7, 40)]", "pass"),
        ("return x + more[0][0][:, None]", "[torch.randn(1, 12, 32), torch.randn(1, 1, 32)]", "pass"),  # layers first
    ],
)
def test_no_batch_of_one_grows_where_that_is_another_problem(tmp_path, forward, inputs, init):
    assert not items_of(tmp_path, forward, inputs, init)[1]


_HEADS = "q, k, v = (t.permute(1, 2, 0, 3) for t in (x, *more))"


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("forward", "inputs", "init"),
    [
        (
            "return self.l(x, (more[0], more[1]))[0]",
            "[torch.randn(9, 1, 8), *torch.randn(2, 1, 1, 6)]",
            "nn.LSTM(8, 6)",
        ),
        ("return self.l(x, x, x)[0]", "[torch.randn(9, 1, 8)]", "nn.MultiheadAttention(8, 2)"),
        (
            "return self.l(x, x, x, key_padding_mask=more[0])[0]",
            "[torch.randn(9, 1, 8), torch.arange(9)[None] > 6]",
            "nn.MultiheadAttention(8, 2)",
        ),
        (
            f"{_HEADS}; return F.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3)",
            "[torch.randn(9, 1, 2, 8) for _ in range(3)]",
            "None",
        ),
        ("return self.l(x).cumsum(0)", "[torch.randint(40, (9, 1))]", "nn.Embedding(40, 8)"),
        (
            "return x.cumsum(0) * (torch.arange(len(x))[:, None] < more[0])[..., None]",
            "[torch.randn(9, 1, 8), torch.tensor([6])]",
            "None",
        ),
    ],
)
def test_a_batch_of_one_behind_the_steps_grows(tmp_path, forward, inputs, init):
    """Candidates that compute the first sequence alone passed."""
    surveys, (dims,) = items_of(tmp_path, forward, inputs, f"self.l = {init}")
    own, made = surveys.at({}), surveys.at(dims)
    assert own.outputs[0].shape[1] == 1 and made.outputs[0].shape[:2] == made.arguments[0].shape[:2] == (9, 3)
    first, *rest = ModuleProblem(surveys.file, dims, "cpu").inputs(1)
    assert not torch.equal(first[:, 0], first[:, 1])
    assert all(3 in spec.shape[:2] for spec in rest)


@pytest.mark.slow(every=2)
@pytest.mark.parametrize(
    ("forward", "inputs", "init"),
    [
        ("return x @ more[0].mT", "[torch.randn(5, 1, 8), torch.randn(5, 9, 8)]", "None"),  # a query for each item
        ("return F.max_pool2d(x, 2)", "[torch.randn(5, 1, 8, 8)]", "None"),  # of grey
        ("return more[0] @ x", "[torch.randn(40, 1), torch.randn(7, 40)]", "None"),  # a vector
        ("return self.l(x)", "[torch.randn(40, 1, 7)]", "nn.BatchNorm1d(1)"),
        ("return x.squeeze(1).cumsum(0)", "[torch.randn(40, 1, 7)]", "None"),
        ("return (x - x.mean(0)) / (x.std(0) + 1e-5)", "[torch.randn(40, 1, 7)]", "None"),  # of a batch of 40
        ("return x / x.amax(0)", "[torch.randn(40, 1, 7).abs()]", "None"),
        ("return x.softmax(0)", "[torch.randn(40, 1, 7)]", "None"),
    ],
)
def test_other_dims_of_one_stay(tmp_path, forward, inputs, init):
    assert not items_of(tmp_path, forward, inputs, f"self.l = {init}")[1]


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x + more[0]", "[torch.randn(1, 4, 9), torch.randn(1, 4, 1)]"),
        ("return x @ x.mT + more[0]", "[torch.randn(1, 4, 5, 9), torch.randn(1, 4, 5, 5)]"),  # of the heads
    ],
)
def test_what_all_items_may_share_is_given_to_all(tmp_path, forward, inputs):
    """A kernel may read one bias of a batch of one for all items, or each item's own."""
    surveys, (dims,) = items_of(tmp_path, forward, inputs)
    x, bias = ModuleProblem(surveys.file, dims, "cpu").inputs(1)
    assert not torch.equal(x[0], x[1]) and torch.equal(bias, bias[:1].expand_as(bias))


def test_the_first_of_several_inputs_is_each_items_own(tmp_path):
    inputs = "[torch.randn(1, 1, 9), torch.randn(1, 5, 9)]"  # a single query for each item
    surveys, (dims,) = items_of(tmp_path, "return x @ more[0].mT", inputs)
    x, _ = ModuleProblem(surveys.file, dims, "cpu").inputs(1)
    assert not torch.equal(x[0], x[1])
    surveys, (dims,) = items_of(tmp_path, "return x * 2", "[torch.randn(1, 1, 9)]")
    (x,) = ModuleProblem(surveys.file, dims, "cpu").inputs(1)
    assert not torch.equal(x[0], x[1])


def test_two_inputs_written_alike_have_sizes_of_their_own(tmp_path):
    inputs = "[torch.rand(64, 64), torch.rand(64, 64)]"
    found = units(surveys_of(tmp_path, model("return x @ more[0]", inputs=inputs)))
    assert sorted(len(unit.names) for unit in found) == [1, 1, 2]


def test_every_size_is_once_one(tmp_path):
    """Paths of their own for a single sequence or token passed, wrong as they were, in 15 of 16 files."""
    inputs = "[torch.rand(batch, length, width), torch.rand(batch, width)]"
    top = "batch = 16\nlength = 30\nwidth = 40\n"
    found = surveys_of(tmp_path, model("return x.cos() + more[0][:, None]", inputs=inputs, top=top))
    for seed in range(4):
        chosen = [dims for _, dims in variants(found, seed)]
        assert all(min(dims[name] for dims in chosen) == 1 for name in ("batch", "length", "width"))


@pytest.mark.slow
def test_no_size_becomes_one_where_that_is_another_problem(tmp_path):
    """Dims that ``squeeze`` drops at 1, halves of 1 that are nothing, ``x[-0:]`` that is all of it, and rows that are
    repeated at 1 alone.
    """
    turned = "h = x.shape[-1] // 2\na, b = x[..., :h], x[..., h:]\nreturn torch.cat([a - b, b + a], -1)"
    for forward, inputs in (
        ("return x.sum(1, keepdim=True).squeeze()", "[torch.rand(16, 40)]"),
        ("w = torch.squeeze(x.mean(-1, keepdim=True))\nreturn (w[..., None] * x).sum(1)", "[torch.rand(16, 5, 40)]"),
        (turned, "[torch.rand(16, 40)]"),
        ("return torch.cat([x, x.square()], 1)[:, 1 - len(more[0]) :]", "[torch.rand(9, 40), torch.rand(7, 40)]"),
    ):
        chosen = varied_sizes(tmp_path, model(forward, inputs=inputs))
        first = {turned: "get_inputs[1]"}.get(forward, "get_inputs[2]" if "more" in forward else "get_inputs[0]")
        assert chosen and all(dims[first] > 1 for dims in chosen)
    for few in 2, 3:
        inputs = f"[torch.rand(40, {few}, 50), torch.rand(40, {few}, 50)]"
        found = units(surveys_of(tmp_path, model("return x + more[0]", inputs=inputs)))
        assert [len(unit.names) for unit in found] == [2, 2, 2]


@pytest.mark.parametrize(
    ("forward", "beside", "sizes"),
    [
        ("a, b = x.chunk(2, -1)\nreturn torch.cat([a * a.cos() - b * a.sin(), b * a.cos() + a], -1)", "", (3,)),
        ("a, b, c = x.chunk(3, -1)\nreturn torch.where(a > 0, b, c) * a", "", (5, 7)),
        ("a, b, c, d = x.chunk(4, -1)\nout = a * b\nreturn out.masked_fill_(c > 0, 0) * d", "", (7,)),
        ("return x + more[0]", ", torch.rand(48)", (1,)),
    ],
)
def test_no_size_runs_because_one_part_is_stretched(tmp_path, forward, beside, sizes):
    """Of three columns the second half is one, and met each of the first: a rotary embedding of halves failed."""
    text = model(forward, inputs=f"[torch.rand(40, d){beside}]", top="d = 48\nfew = 48")
    text = text.replace("torch.rand(48)", "torch.rand(few)")
    surveys, name = surveys_of(tmp_path, text), "few" if beside else "d"
    assert all(surveys.probe({name: size}) is None and surveys.at({name: size}) is not None for size in sizes)
    assert surveys.probe({"d": 24, "few": 24}) is not None


STEPS = """
        gates, skip = more
        state, outs = x.new_zeros(x.shape[0], x.shape[2], 4), []
        for t in range(x.shape[1]):
            state = gates[:, t, :, None] * state + x[:, t, :, None]
            outs.append(state.sum(-1))
        return torch.stack(outs, 1) + x * skip
"""


@pytest.mark.slow
def test_steps_of_a_loop_are_varied(tmp_path):
    """Behind a loop of fewer steps, operators were taken for others of the loop, and none of its lengths was known."""
    inputs = "[torch.rand(2, steps, 6), torch.rand(2, steps, 6), torch.rand(6)]"
    surveys = surveys_of(tmp_path, model(STEPS, inputs=inputs, top="steps = 40"))
    assert all(surveys.probe({"steps": size}) is not None for size in (1, 20, 39, 80))
    chosen = [dims["steps"] for _, dims in variants(surveys)]
    assert min(chosen) < 20 and max(chosen) > 40


@pytest.mark.parametrize("place", ["front", "loop", "behind"])
def test_what_is_stretched_beside_loops_of_another_length_is_found(tmp_path, place):
    """In front of a loop it was lost: its operators have names of the loop's, and so an honest candidate failed."""
    halves, parts = "a, b = {0}.chunk(2, -1)", "a, b = {0}[..., :24], {0}[..., :24]"
    front, loop, behind = (halves if place == name else parts for name in ("front", "loop", "behind"))
    forward = (
        f"{front.format('x[:, 0]')}\nout = torch.cat([a * b, b], -1)[:, :1] * x[:, 0]\n"
        f"for t in range(x.shape[1]):\n    {loop.format('x[:, t]')}\n"
        f"    out = out * 0.5 + torch.cat([a * b, b], -1)[:, :1]\n{behind.format('out')}\nreturn a * b"
    )
    surveys = surveys_of(tmp_path, model(forward, inputs="[torch.rand(5, steps, d)]", top="steps = 20\nd = 48"))
    assert surveys.probe({"steps": 10, "d": 24}) is not None
    assert all(surveys.at({"steps": n, "d": 3}) and surveys.probe({"steps": n, "d": 3}) is None for n in (10, 20, 30))


@pytest.mark.parametrize(
    ("forward", "beside"),
    [
        ("return x.log_softmax(1).gather(1, more[0][:, None])[:, 0]", "torch.randint(0, 9, (few, 7))"),
        ("return x.take_along_dim(more[0][:, None], 1)[:, 0]", "torch.randint(0, 9, (few, 7))"),
        ("return torch.zeros_like(x).scatter_add_(1, more[0][:, None], x)", "torch.randint(0, 9, (few, 7))"),
    ],
)
def test_no_size_runs_because_a_part_of_a_tensor_is_read(tmp_path, forward, beside):
    """``gather`` takes labels of fewer items than there are: a focal loss by ``cross_entropy`` failed."""
    text = model(forward, inputs=f"[torch.rand(many, 9, 7), {beside}]", top="many = 6\nfew = 6")
    surveys = surveys_of(tmp_path, text)
    assert surveys.probe({"many": 3, "few": 3}) is not None
    assert all(surveys.probe(dims) is None for dims in ({"few": 3}, {"few": 1}, {"many": 12}))


def test_inputs_of_the_files_own_sizes_are_given_up_once_read(tmp_path):
    """They were kept as long as the task was, and took gigabytes while candidates were judged."""
    inputs = "[torch.rand(97, 101), torch.arange(97), torch.rand(97, 101) < 0.5, 40]"
    text = model("return (x * more[1]).roll(more[2], 0)[more[0]]", inputs=inputs)
    surveys = surveys_of(tmp_path, text)
    chosen = variants(surveys)
    gc.collect()
    tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    shapes = [one.shape for one in tensors if not one.is_meta]
    assert chosen and (97, 101) not in shapes and (97,) in shapes


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x @ more[0]", "[torch.rand(48, d), torch.rand(d, 48)]"),
        ("return x * more[0][:, None]", "[torch.rand(d, 48), torch.rand(d)]"),
        ("return x * x.mean(-1, keepdim=True)", "[torch.rand(48, d)]"),
        ("return x.gather(1, more[0])", "[torch.rand(48, d), torch.zeros(48, 48, dtype=torch.long)]"),
        ("return F.embedding(more[0] % len(x), x)", "[torch.rand(d, 48), torch.arange(48)]"),
        ("return torch.einsum('ij,jk->ik', x, more[0])", "[torch.rand(48, d), torch.rand(d, 48)]"),
        ("return F.layer_norm(x, x.shape[-1:])", "[torch.rand(48, 48, d)[..., 0, :]]"),
    ],
)
def test_sizes_of_one_that_nothing_is_stretched_for_stay(tmp_path, forward, inputs):
    surveys = surveys_of(tmp_path, model(forward, inputs=inputs, top="d = 48"))
    assert all(surveys.probe({"d": size}) is not None for size in (1, 2, 3, 7))


def test_no_vector_of_one_number_is_normalised(tmp_path):
    """It is 1 or -1, and distances of such are what rounding leaves: another formula for them was rejected."""
    forward = "x = F.normalize(x, dim=1)\nreturn (2 - 2 * x @ x.T).clamp(min=1e-12).sqrt().amax(1)"
    chosen = varied_sizes(tmp_path, model(forward, inputs="[torch.randn(16, 40)]"))
    assert min(dims["get_inputs[1]"] for dims in chosen) > 1


def test_lengths_above_zero_stay_above_it(tmp_path):
    """Half of a size of 1 is 0, and what is read at ``length - 1`` is then the last one for the reference."""
    inputs = "[torch.rand(6, length), torch.randint(length // 2, length + 1, (6,))]"
    path = model(
        "return x.gather(1, more[0][:, None] - 1 + 0 * (more[0][:, None] < 1))", inputs=inputs, top="length = 9"
    )
    chosen = varied_sizes(tmp_path, path)
    assert chosen and all(dims["length"] > 1 for dims in chosen)


@pytest.mark.slow
def test_every_size_is_once_larger_than_the_files_own(tmp_path):
    """A mask of the first length, sliced for others, was too small in none of the cases."""
    inputs = "[torch.randn(batch, heads, length, width) for _ in range(3)]"
    top = "batch = 2\nheads = 3\nlength = 48\nwidth = 16\n"
    own = {"batch": 2, "heads": 3, "length": 48, "width": 16}
    forward = "return F.scaled_dot_product_attention(x, *more, is_causal=True)"
    for found in variants_by_seed(tmp_path, model(forward, inputs=inputs, top=top), 4):
        chosen = [dims for _, dims in found]
        for name, size in own.items():
            assert min(dims[name] for dims in chosen) < size < max(dims[name] for dims in chosen)
    alone = [
        dims["n"] for dims in varied_sizes(tmp_path, model("return x + 1", inputs="[torch.rand(n)]", top="n = 99"))
    ]
    assert min(alone) < 99 < max(alone) and len(alone) == 6


@pytest.mark.slow
def test_rows_whose_number_counts_twice_are_once_more(tmp_path):
    """Others took all the room for more operations: a kernel that reads the first 96 keys passed."""
    inputs, top = "[torch.randn(B, H, T, D) for _ in range(3)]", "B, H, T, D = 2, 4, 96, 32"
    forward = "return (x @ more[0].mT).softmax(-1) @ more[1]"
    for found in variants_by_seed(tmp_path, model(forward, inputs=inputs, top=top), 8):
        assert max(dims["T"] for _, dims in found) > 96


def test_only_rectangles_have_larger_sizes(tmp_path):
    top = "rows = 512\ncols = 1024\nheads = 4\n"
    own = {"rows": 512, "cols": 1024, "heads": 4}
    text = model("return x.softmax(-1)", inputs="[torch.randn(rows, cols, heads)]", top=top)
    for found in variants_by_seed(tmp_path, text, 4):
        for category, dims in found:
            assert category == "rectangular" or all(dims[name] <= size for name, size in own.items()), (category, dims)


@pytest.mark.slow
def test_keys_are_more_where_queries_may_not_be(tmp_path):
    mask = "torch.ones(len(x), len(more[0])).tril(len(more[0]) - len(x)) == 0"
    forward = f"return (x @ more[0].mT).masked_fill({mask}, -torch.inf).softmax(-1)"
    inputs, top = "[torch.randn(q, d), torch.randn(k, d)]", "q = 32\nk = 32\nd = 16\n"
    for found in variants_by_seed(tmp_path, model(forward, inputs=inputs, top=top), 4):
        chosen = [dims for _, dims in found]
        assert max(dims["k"] for dims in chosen) > 32 and all(dims["q"] <= dims["k"] for dims in chosen)


def test_no_size_cuts_a_fixed_number_of_outputs(tmp_path):
    """Eight of five are five, and a kernel that writes eight was rejected."""
    text = model("return x.sort(-1).values[:, : self.k]", "self.k = k", "[torch.rand(7, 120)]")
    text = text.replace("self):", "self, k):", 1).replace("return []", "return [8]")
    found = varied_sizes(tmp_path, text)
    assert found and all(dims["get_inputs[1]"] >= dims.get("get_init_inputs[0]", 8) for dims in found)


def test_no_size_leaves_weights_out(tmp_path):
    """Three tables zipped with one or two rows of indices: a kernel that reads all three was rejected."""
    text = model(
        "return torch.stack([table(row) for table, row in zip(self.tables, x)])",
        "self.tables = nn.ModuleList(nn.Embedding(50, 8) for _ in range(3))",
        "[torch.randint(0, 50, (3, 40))]",
    )
    found = varied_sizes(tmp_path, text)
    assert found and all(dims["get_inputs[1]"] >= 3 for dims in found)


def test_the_number_of_inputs_stays_beside_positions_that_are_written_out(tmp_path):
    inputs = "[torch.rand(n, 9) for _ in range(4)] + [torch.tensor([0, 3, 3, 17])]"
    text = model("return torch.stack([x, *more[:-1]]).sum(0)[more[-1]]", inputs=inputs, top="n = 40")
    found = varied_sizes(tmp_path, text)
    assert found and all(dims.get("get_inputs[2]", 4) == 4 and dims["n"] > 17 for dims in found), found


@pytest.mark.parametrize("to", ["to_sparse()", "to_sparse_csr()"])
def test_a_file_may_use_sparse_tensors_inside(tmp_path, to):
    """They have no storage to look at, by which it is known what reads a weight."""
    text = model(f"return torch.sparse.mm((x > 0.5).float().{to}, self.line(x.T))", "self.line = nn.Linear(n, 3)")
    assert varied_sizes(tmp_path, text)


def test_the_fast_path_of_an_encoder_is_taken_in_double_too(tmp_path):
    """It leaves zeros at padded places in eval mode; the oracle had numbers there."""
    layer = "nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)"
    init = f"self.encoder = nn.TransformerEncoder({layer}, 1)\nself.eval()"
    inputs = "[torch.randn(3, 7, 16), torch.arange(7)[None] >= torch.tensor([[7], [4], [2]])]"
    made = problem(tmp_path, model("return self.encoder(x, src_key_padding_mask=more[0])", init, inputs))
    weights = made.weights(1)
    (native,), (exact,) = made.reference(made.inputs(1), weights), made.oracle(made.inputs(1), weights)
    assert exact.dtype == torch.float64 and not native[2, 2:].any()
    assert largest(native - exact) < 1e-5


def test_arguments_that_were_drawn_are_gone_with_their_last_name():
    """Each draw stayed until the next garbage collection: nine of 1 GiB each filled the memory of the machine."""
    gc.disable()
    try:
        tensor = torch.zeros(3)
        gone = weakref.ref(tensor)
        leaves, form = flat([tensor, [tensor, 2]], lambda value: isinstance(value, torch.Tensor))
        values = nested(form, leaves)
        assert values[1][0] is tensor
        del tensor, leaves, form, values
        assert gone() is None
    finally:
        gc.enable()
