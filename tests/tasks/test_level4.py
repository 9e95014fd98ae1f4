"""Problem files that take their model from ``transformers``: from a configuration on this machine, without a hub.

A stand-in for the package shows how it is used; where the package itself is installed, real models are judged too.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kerneleval import cli
from kerneleval.generators.common.prompts.source import reference_source
from kerneleval.records import UsageError
from kerneleval.tasks import open_task
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.worker.wire import decode_plain, encode_plain

FILE = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM

class Model{new}(torch.nn.Module):
    def __init__(self, model_name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(model_name, config=config)
    def forward(self, x):
        return self.model(x).logits

model_name = {name!r}
config = AutoConfig.from_pretrained(model_name)
batch_size, sequence_length = 2, 12
def get_inputs():
    return [torch.randint(0, config.vocab_size, (batch_size, sequence_length))]
def get_init_inputs():
    return [model_name, config]
"""

STAND_IN = {
    "__init__.py": """
import json, os, types
import torch

class PretrainedConfig:
    model_type = "tiny"
    def __init__(self, vocab_size=7, width=4, **more):
        self.vocab_size, self.width = vocab_size, width
    def to_json_string(self, use_diff=True):
        return json.dumps({"vocab_size": self.vocab_size, "width": self.width})
    @classmethod
    def get_config_dict(cls, name, local_files_only=False, **more):
        if not os.path.isdir(name):
            raise OSError("the hub was asked" if not local_files_only else "not cached")
        with open(os.path.join(name, "config.json")) as file:
            return json.load(file), more

class AutoConfig:
    @classmethod
    def from_pretrained(cls, name, **more):
        return cls.for_model(**PretrainedConfig.get_config_dict(name, **more)[0])
    @classmethod
    def for_model(cls, model_type, **given):
        return PretrainedConfig(**given)

class PreTrainedModel(torch.nn.Module):
    @classmethod
    def from_pretrained(cls, name, **more):
        raise OSError("weights were loaded")
    @classmethod
    def _from_config(cls, config, **more):
        return cls(config)

class TinyModel(PreTrainedModel):
    def __init__(self, config):
        super().__init__()
        self.table = torch.nn.Embedding(config.vocab_size, config.width)
        self.head = torch.nn.Linear(config.width, config.vocab_size)
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        return types.SimpleNamespace(logits=self.head(self.drop(self.table(x))))

from .models.auto.auto_factory import _BaseAutoModelClass

class AutoModelForCausalLM(_BaseAutoModelClass):
    pass
""",
    "models/__init__.py": "",
    "models/auto/__init__.py": "",
    "models/auto/auto_factory.py": """
class _BaseAutoModelClass:
    @classmethod
    def from_pretrained(cls, name, **more):
        raise OSError("weights were loaded")
    @classmethod
    def from_config(cls, config, **more):
        from transformers import TinyModel
        return TinyModel(config)
""",
}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a configuration, where ``transformers`` is a stand-in."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "transformers"}
    for name in before:
        del sys.modules[name]
    for name, text in STAND_IN.items():
        path = tmp_path / "packages" / "transformers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text(json.dumps({"model_type": "tiny", "vocab_size": 11, "width": 6}))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        del sys.modules[name]
    sys.modules.update(before)


def written(folder: Path, name: str, text: str = FILE) -> Path:
    path = folder / "problem.py"
    path.write_text(text.format(new="", name=name))
    return path


def test_a_configuration_on_this_machine_is_enough(stand_in: Path) -> None:
    path = written(stand_in, str(stand_in / "small"))
    task = open_task(str(path), sweep=True)
    assert len(task.case_dims) > 3 and "trained" in task.distributions
    problem = ModuleProblem(ProblemFile(path), {}, "cpu")
    args, weights = problem.inputs(1), problem.weights(1)
    assert weights["model.table.weight"].shape == (11, 6)
    (native,), (exact,) = problem.reference(args, weights), problem.oracle(args, weights)
    assert native.shape == (2, 12, 11) and torch.allclose(native.double(), exact, atol=1e-5)


def test_the_candidate_gets_the_configuration(stand_in: Path) -> None:
    problem = ModuleProblem(ProblemFile(written(stand_in, str(stand_in / "small"))), {}, "cpu")
    sent = json.loads(json.dumps(encode_plain(problem.init_args)))
    name, config = decode_plain(sent)
    assert name == str(stand_in / "small") and (config.vocab_size, config.width) == (11, 6)
    nested = decode_plain(encode_plain({"deep": [config]}))
    assert nested["deep"][0].width == 6


def test_the_baseline_reads_no_file(stand_in: Path) -> None:
    task = open_task(str(written(stand_in, str(stand_in / "small"))))
    assert reference_source(task) == (stand_in / "problem.py").read_text(), "as people and models read it"
    (stand_in / "small" / "config.json").unlink()
    import transformers

    hub = transformers.AutoModelForCausalLM.__mro__[1].__dict__["from_pretrained"]
    space: dict[str, object] = {"__name__": "baseline"}
    exec(task.baseline_source, space)
    try:
        model = space["Model"](*space["get_init_inputs"]())  # type: ignore[operator]
        assert not model.model.training
    finally:
        space["_kerneleval_hub"].__exit__(None, None, None)  # type: ignore[attr-defined]
    assert transformers.AutoModelForCausalLM.__mro__[1].__dict__["from_pretrained"] is hub, "all is as it was"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpt2", FILE),
        ("EleutherAI/gpt-neo-2p7B", FILE),
        ("gone", FILE.replace("config = AutoConfig", "config = None\nAutoConfig")),
    ],
)
def test_without_it_one_sentence_says_what_to_do(
    stand_in: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(stand_in, name, text)
    assert cli.main(["check", str(path), "--task", str(path), "--device", "cpu"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"the configuration of {name!r} is not on this machine" in err and "save its config.json in a folder" in err


@pytest.mark.parametrize("package", ["no_such_package", "no_such_package.models"])
def test_a_missing_package_is_named_with_what_to_do(tmp_path: Path, package: str) -> None:
    path = written(tmp_path, "x", FILE.replace("from transformers import", f"import {package} as transformers #"))
    with pytest.raises(UsageError, match=r"No module named 'no_such_package'; .*\(pip install no_such_package\)"):
        open_task(str(path))


CONFIGS = {
    "gpt2": {"vocab_size": 97, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "llama": {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_real_models_are_judged(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("not run: transformers is not installed (pip install transformers)")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **CONFIGS[kind]}))
    path = written(tmp_path, str(tmp_path))
    candidate, _, _ = FILE.format(new="New", name="").partition("model_name = ''")
    for right, text in ((True, candidate), (False, candidate.replace(".logits", ".logits * 1.001"))):
        (tmp_path / "new.py").write_text(text)
        options = ["--device", "cpu", "--allow", "library", "--quick"] + ([] if right else ["--fail-fast"])
        code = cli.main(["check", str(tmp_path / "new.py"), "--task", str(path), *options])
        assert code == (0 if right else 1), capsys.readouterr()
