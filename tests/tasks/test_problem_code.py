"""What the code of a problem file may do to the judge around it, and what is said of files that cannot be judged."""

from __future__ import annotations

import random
import signal
import warnings
from pathlib import Path

import numpy
import pytest
import torch

from kerneleval.records import UsageError
from kerneleval.tasks.formats import problem_file
from kerneleval.tasks.formats import survey as survey_module
from kerneleval.tasks.formats.kernelbench import read
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.outcomes import Outcomes
from kerneleval.tasks.formats.problem_file import ProblemFile, seeded
from kerneleval.tasks.formats.survey import build_model, call_inputs, survey

PROBLEM = """
import torch
{top}
class Model(torch.nn.Module):
    def __init__(self{takes}):
        super().__init__()
        {init}
    def forward(self, x, *more):
        {forward}
def get_inputs():
    {inputs}
def get_init_inputs():
    return {given}
"""


def write(
    folder: Path,
    forward: str = "return x * 2",
    inputs: str = "return [torch.randn(6, 8)]",
    *,
    top: str = "",
    init: str = "pass",
    takes: str = "",
    given: str = "[]",
) -> Path:
    """A problem file of these parts."""
    path = folder / "problem.py"
    lines = {name: text.replace("\n", "\n        ") for name, text in (("forward", forward), ("init", init))}
    inputs = inputs.replace("\n", "\n    ")
    path.write_text(PROBLEM.format(top=top, takes=takes, inputs=inputs, given=given, **lines))
    return path


def problem(path: Path) -> ModuleProblem:
    """The problem of a file at its own sizes."""
    return ModuleProblem(ProblemFile(path), {}, "cpu")


# -- Settings ---------------------------------------------------------------------------------------------------------


def settings() -> tuple[object, ...]:
    """What a problem file may not change for the judge."""
    cudnn = torch.backends.cudnn
    return (
        torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled(), torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), cudnn.benchmark,
        cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32,
    )  # fmt: skip


CHANGES = (
    "torch.set_default_dtype(torch.float16)",
    "torch.set_default_device('meta')",
    "torch.set_grad_enabled(False)",
    "torch.set_num_threads(torch.get_num_threads() + 1)",
    "torch.use_deterministic_algorithms(True)",
    "torch.set_float32_matmul_precision('high')",
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.allow_tf32 = False",
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", ["top", "inputs", "init", "forward"])
def test_settings_of_torch_that_a_file_changes_are_the_judges_again(tmp_path, change, place):
    parts = {"forward": "return x * 2", "inputs": "return [torch.randn(6, 8)]", "init": "pass", "top": ""}
    if place == "inputs":
        change = change.replace("meta", "cpu")
    parts[place] = f"{change}\n{parts[place]}"
    before = settings()
    made = problem(write(tmp_path, **parts))
    args, weights = made.inputs(1), made.weights(1)
    made.reference(args, weights)
    made.oracle(args, weights)
    assert settings() == before


def test_random_numbers_go_on_as_if_no_file_had_drawn_any():
    draws = (numpy.random.rand, random.random, lambda: torch.rand(()).item())

    def drawn() -> list[float]:
        return [draw() for draw in draws]

    with seeded(4, "cpu", place=False):
        expected = [drawn(), drawn()]
    with seeded(4, "cpu", place=False):
        found = [drawn()]
        with pytest.raises(KeyError), seeded(5, "cpu"):
            drawn()
            with seeded(4, "cpu"):
                assert drawn() == expected[0]
            raise KeyError
        found.append(drawn())
    assert found == expected
    state = numpy.random.get_state()[1].tolist()
    with seeded(6, "meta"):
        numpy.random.rand(700)
    assert numpy.random.get_state()[1].tolist() == state


def test_a_survey_tells_the_same_where_its_operators_are_known(tmp_path, monkeypatch):
    """Of those that are known, sizes, types and strides are kept, and nothing is run."""
    forward = "y = [(v * 2).sigmoid_() for v in (x, x.half(), x[:2], x.t())]; return *y, y[0] @ y[3], x / 2, *x.max(-1)"
    files = [
        ProblemFile(write(tmp_path / name, forward, top=f"torch.set_default_dtype(torch.{name})\n"))
        for name in ("float32", "float64")
        if not (tmp_path / name).mkdir()
    ]
    monkeypatch.setattr(survey_module, "_MADE", {})
    first = [survey(file, {}) for file in files]
    assert survey_module._MADE
    again = [survey(file, {}) for file in files]
    monkeypatch.setattr(survey_module, "_key", lambda *_: None)
    assert first == again == [survey(file, {}) for file in files]
    assert [spec.dtype for spec in first[0].outputs] == ["float32", "float16", *["float32"] * 5, "int64"]
    assert [spec.dtype for spec in first[1].outputs] == ["float64", "float16", *["float64"] * 5, "int64"]


def test_an_operator_that_writes_a_tensor_that_it_is_given_is_run(monkeypatch):
    """``out=`` gives that tensor, whichever of equal form it is."""
    monkeypatch.setattr(survey_module, "_MADE", {})
    one, other = torch.empty(3, device="meta"), torch.empty(3, device="meta")
    for first in (one, other):
        made = survey_module._run_once(torch.ops.aten.add.out, (first, one), {"out": one}, (first, one, one))
        assert made is one


def test_several_outputs_of_an_operator_are_known_but_no_views(monkeypatch):
    """``_unsafe_view`` does not say that it gives one."""
    monkeypatch.setattr(survey_module, "_MADE", {})
    x = torch.empty(3, 4, device="meta")
    for _ in range(2):
        view = survey_module._run_once(torch.ops.aten._unsafe_view.default, (x, [12]), {}, (x,))
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
        made = survey_module._run_once(torch.ops.aten.native_layer_norm.default, (x, [4], None, None, 1e-5), {}, (x,))
        assert [tuple(one.shape) for one in made] == [(3, 4), (3, 1), (3, 1)]
    assert [key[0] for key in survey_module._MADE] == [torch.ops.aten.native_layer_norm.default]


def test_the_default_dtype_that_a_file_sets_holds_for_its_own_code(tmp_path):
    top = "torch.set_default_dtype(torch.float16)"
    forward = "assert torch.get_default_dtype() == torch.float16 or x.dtype == torch.float64\nreturn self.layer(x)"
    path = write(tmp_path, forward, top=top, init="self.layer = torch.nn.Linear(8, 4)")
    made = problem(path)
    args, weights = made.inputs(1), made.weights(1)
    assert args[0].dtype == torch.float16 and {w.dtype for w in weights.values()} == {torch.float16}
    (native,), (exact,) = made.reference(args, weights), made.oracle(args, weights)
    assert native.dtype == torch.float16 and exact.dtype == torch.float64
    assert float((native - exact).abs().max()) < 0.01
    task = read(path)
    assert task.arguments(task.case_dims[0][1], "float32")[0].dtype == "float16"


def test_what_a_file_prints_goes_to_stderr(tmp_path, capsys):
    made = problem(write(tmp_path, "print('calls')\nreturn x * 2", "print('draws')\nreturn [torch.randn(3)]",
                         top="print('begins')", init="print('builds')"))  # fmt: skip
    made.reference(made.inputs(1), made.weights(1))
    out, err = capsys.readouterr()
    assert out == "" and all(word in err for word in ("begins", "builds", "draws", "calls"))


def test_warnings_of_a_file_are_not_shown(tmp_path):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = problem(write(tmp_path, "import warnings\nwarnings.warn('no')\nreturn x"))
        made.reference(made.inputs(1), made.weights(1))
    assert not seen


# -- Arguments of the constructor -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "given", "arguments", "keywords"),
    [
        ("a, b=2, c=3", "[[1], {'c': 5}]", [1, 2, 5], {}),
        ("a, b", "[[1], {'b': 5}]", [1, 5], {}),
        ("a, **rest", "[[1], {'b': 5}]", [1], {"b": 5}),
        ("*, a, b=2", "[[], {'a': 5}]", [], {"a": 5}),
        ("a, b=2, *rest, c=3", "[[1, 2, 3], {'c': 5}]", [1, 2, 3], {"c": 5}),
        ("a, b", "[[1], {'k': 5}]", [[1], {"k": 5}], {}),
        ("a, b=2", "[[1], {}]", [1], {}),
        ("a, b=2, c=3", "{'c': 5, 'a': 1}", [1, 2, 5], {}),
        ("a, *, b=2", "{'b': 5, 'a': 1}", [1], {"b": 5}),
        ("", "{}", [], {}),
    ],
)
def test_arguments_and_keywords_of_the_constructor(tmp_path, takes, given, arguments, keywords):
    made = problem(write(tmp_path, takes=f", {takes}", given=given))
    assert (made.init_args, made.init_keywords) == (arguments, keywords)
    made.reference(made.inputs(1), made.weights(1))


def test_keywords_that_the_constructor_does_not_take_are_told(tmp_path):
    with pytest.raises(UsageError, match=r"gives \[\[arguments\], \{keywords\}\], which Model.* argument 'stride'"):
        read(write(tmp_path, takes=", a", given="[[1], {'stride': 5}]"))
    with pytest.raises(UsageError, match=r"which Model.* argument 'stride'"):  # nor is the dict one argument of two
        read(write(tmp_path, takes=", a, b=2", given="{'a': 1, 'stride': 5}"))


def test_keywords_must_be_plain_too(tmp_path):
    with pytest.raises(UsageError, match=r"argument stride of get_init_inputs\(\) holds a object"):
        read(write(tmp_path, takes=", a, **more", given="[[1], {'stride': object()}]"))


# -- Casts and constants in the oracle --------------------------------------------------------------------------------

SOBEL = "EDGES = torch.tensor([[-1.0, 0.1, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])"
SEEDED = "torch.manual_seed(1)\nTABLE = torch.randn(9, 16)"
HALF = "K = torch.tensor([0.1, 0.2]).half()"
COMPLEX = "return [torch.randn(6, 8, dtype=torch.complex64)]"
AUTOCAST = "with torch.autocast('cpu', dtype=torch.bfloat16):\n    return {}"
FLOAT = "return [torch.randn(6, 8)]"
IDS = "return [torch.randint(0, 9, (6, 8))]"


@pytest.mark.parametrize(
    ("forward", "top", "inputs", "inside"),
    [
        ("return torch.nn.functional.conv2d(x[None, None], EDGES[None, None])", SOBEL, FLOAT, None),
        ("return torch.stack([EDGES, EDGES.T])[0] @ x[:3, :3]", SOBEL, FLOAT, None),
        ("return torch.cat([EDGES, EDGES])", SOBEL, FLOAT, None),
        ("return x.sum(-1, dtype=torch.float32)", "", FLOAT, None),
        ("return x.short().view(torch.float16) * 1", HALF, IDS, torch.float16),
        ("return TABLE[x].mean(1)", SEEDED, IDS, None),
        ("t = EDGES.clone()\nt[0, 0] = x[0, 0]\nt.mul_(2)\nreturn t", SOBEL, FLOAT, None),
        ("t = torch.from_numpy(EDGES.numpy())\nreturn x[:3, :3] * t.to(x.device)", SOBEL, FLOAT, None),
        ("return x.abs()", "", COMPLEX, None),
        ("return torch.fft.ifft(x * 2).to(torch.complex64)", "", COMPLEX, None),
        ("return x.cfloat().abs()", "", FLOAT, None),
        ("return x.half()", "", FLOAT, torch.float16),
        ("return x.to(torch.bfloat16).float() * 3", "", FLOAT, torch.bfloat16),
        ("return x.to(device='cpu', dtype=torch.float16) @ x.half().T", "", FLOAT, torch.float16),
        ("return (x.half() * 3).bfloat16()", "", FLOAT, torch.bfloat16),
        ("return x[:, :2] * K", HALF, FLOAT, torch.float16),
        ("return x.type_as(K)", HALF, FLOAT, torch.float16),
        (AUTOCAST.format("x @ x.T"), "", FLOAT, torch.bfloat16),
        (AUTOCAST.format("(x @ x.T).float().softmax(-1)"), "", FLOAT, torch.bfloat16),
    ],
)
def test_what_forward_casts_or_holds_is_fp64_in_the_oracle(tmp_path, forward, top, inputs, inside):
    made = problem(write(tmp_path, forward, inputs, top=top))
    args, weights = made.inputs(1), made.weights(1)
    (native,), (exact,) = made.reference(args, weights), made.oracle(args, weights)
    assert exact.dtype in (torch.float64, torch.complex128) and made.inside is inside
    step = 1e-6 if inside is None else torch.finfo(inside).eps
    error = float((native - exact).abs().max() / exact.abs().max())
    rounds = inside is not None and top != HALF
    assert (step / 100 if rounds else 0) <= error < 2 * step


def test_inputs_lie_on_the_problems_device_whatever_the_default_one_is(tmp_path):
    made = problem(write(tmp_path))
    with torch.device("meta"):
        assert {value.device.type for value in made.inputs(1)} == {"cpu"}


def test_a_type_that_numpy_fixes_has_no_oracle(tmp_path):
    made = problem(write(tmp_path, "return torch.from_numpy(x.numpy().astype('float32'))"))
    with pytest.raises(UsageError, match=r"output 0 is torch\.float32 though Model was run in fp64.*NumPy"):
        made.oracle(made.inputs(1), {})


# -- What is said of files that cannot be judged ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("return [torch.eye(8).to_sparse()]", r"argument 0 is sparse \(torch\.sparse_coo\).*indices and values"),
        ("return [torch.eye(8).to_sparse_csr()]", r"argument 0 is sparse \(torch\.sparse_csr\)"),
        ("return [torch.randn(3, device='meta')]", "argument 0 is on the device meta"),
        ("return torch.randn(3)", r"must give a list of arguments, .* write 'return \[x\]'"),
        ("return {'y': torch.randn(3)}", r"which Model\.forward does not take as keywords: missing .* argument: 'x'"),
        ("torch.randn(3)", r"got a NoneType \(None\); it has no return statement"),
        ("return [torch.randint(3, (3,)).to(torch.uint16)]", r"argument 0 is torch\.uint16, .* types are "),
        ("raise KeyboardInterrupt", r"line 11: get_inputs\(\) raised KeyboardInterrupt$"),
        (
            "return [torch.zeros(3).sum().backward()]",
            "does not require grad.*inputs and weights come without gradients",
        ),
    ],
)
def test_inputs_that_are_not_judged_are_told_with_what_to_do(tmp_path, inputs, message):
    with pytest.raises(UsageError, match=message):
        problem(write(tmp_path, inputs=inputs)).inputs(1)


def test_inputs_in_a_dict_come_in_the_order_of_forward(tmp_path):
    path = write(tmp_path, inputs="return {'c': torch.ones(2), 'x': torch.zeros(3)}")
    path.write_text(path.read_text().replace("x, *more", "x, b=None, c=None"))
    x, b, c = problem(path).inputs(1)
    assert (x.shape, b, c.shape) == ((3,), None, (2,))
    path.write_text(path.read_text().replace("c=None", "c=None, d=2, *, e=3"))
    assert len(problem(path).inputs(1)) == 3  # what is left out behind them, a candidate may leave out, too
    path.write_text(path.read_text().replace("c=None, d=2, *, e=3", "*, c=None"))
    with pytest.raises(UsageError, match=r"gives c to Model\.forward as keywords alone"):
        problem(path).inputs(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("inputs", ["return [torch.randn(3, device='cuda')]", "return [torch.randn(3).cuda()]"])
def test_a_file_that_asks_for_cuda_is_told_to_leave_that_out(tmp_path, inputs):
    with pytest.raises(UsageError, match=r"there is no CUDA device here\. Leave device='cuda' and \.cuda\(\) out"):
        problem(write(tmp_path, inputs=inputs)).inputs(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("said", ["Torch not compiled with CUDA enabled", "Found no NVIDIA driver on your system."])
def test_every_build_of_pytorch_is_understood_where_there_is_no_cuda_device(said):
    assert "there is no CUDA device here" in problem_file._hint(Path("x.py"), RuntimeError(said))


@pytest.mark.parametrize(
    ("given", "message"),
    [("None", r"write 'return \[\]'"), ("3", r"must give a list of arguments, got a int")],
)
def test_arguments_that_are_no_list_are_told_with_what_to_write(tmp_path, given, message):
    with pytest.raises(UsageError, match=message):
        read(write(tmp_path, given=given))


@pytest.mark.parametrize("package", [False, True])
def test_a_file_beside_the_problem_is_no_package_to_install(tmp_path, package):
    beside = tmp_path / ("helpers_of_it" if package else "helpers_of_it.py")
    (beside.mkdir if package else beside.touch)()
    with pytest.raises(UsageError, match=r"read alone, without .*helpers_of_it.*copy what it needs") as raised:
        read(write(tmp_path, top="from helpers_of_it.parts import thing"))
    assert "pip install" not in str(raised.value)
    with pytest.raises(UsageError, match="a problem file is read alone"):
        read(write(tmp_path, top="from .other import thing"))


def test_ctrl_c_is_no_error_of_the_file(tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            problem(write(tmp_path, inputs="import signal\nsignal.raise_signal(signal.SIGINT)\nreturn []")).inputs(1)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("init", "said"), [("self.register_buffer('b', torch.ones(8))", False),
                                            ("self.w = torch.nn.Parameter(torch.ones(8))", True)])  # fmt: skip
def test_a_file_without_parameters_has_no_trained_inputs(tmp_path, init, said):
    task = read(write(tmp_path, f"return torch.log(x) * self.{'w' if said else 'b'}",
                      "return [torch.rand(6, 8)]", init=init))  # fmt: skip
    found = " ".join(finding.message for finding in task.findings)
    assert "not judged on" in found and "trained" not in found
    assert ("trained" in task.distributions) == said


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_sparse_weights_are_refused_by_name(tmp_path, layout):
    path = tmp_path / "problem.py"
    init = f"self.register_buffer('a', torch.eye(8).{layout}())"
    path.write_text(
        f"import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, x):\n        return torch.sparse.mm(self.a, x)\n"
        "def get_inputs():\n    return [torch.rand(8, 20)]\ndef get_init_inputs():\n    return []\n"
    )
    with pytest.raises(UsageError, match="weight a of Model is sparse"):
        read(path, sweep=True)


@pytest.mark.parametrize(
    "code", ["torch.rand(4) + torch.zeros(4, device='cpu')", "torch.rand(4) * torch.from_numpy(numpy.ones(4))"]
)
def test_code_that_has_tensors_of_the_host_runs_there(tmp_path, code):
    path = tmp_path / "problem.py"
    path.write_text(
        f"""import numpy, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter({code})
    def forward(self, x):
        return x + self.w
def get_inputs():
    return [{code}]
def get_init_inputs():
    return []
"""
    )
    file = ProblemFile(path)
    namespace = file.execute({})
    with pytest.raises(UsageError, match="device"):
        call_inputs(file, namespace, "meta", 1)
    accelerator = "meta:0"  # a device like any other but for its name, by which "meta" is distinguished
    (x,), _ = call_inputs(file, namespace, accelerator, 1)
    assert x.shape == (4,) and x.is_meta
    assert build_model(file, namespace, ([], {}), accelerator, 1).w.is_meta
    assert file.on_host == {"get_inputs()", "Model(...)"}
    with Outcomes(lambda number: None, 1) as outcomes:  # tried on the device once: every later draw has its number
        call_inputs(file, namespace, accelerator, 1)
    assert outcomes.drawn == 1
