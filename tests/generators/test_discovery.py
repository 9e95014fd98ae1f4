"""Finding generators: built-in ones, directories, a user's own module."""

import subprocess
import sys

import pytest

from kerneleval import generators, tasks
from kerneleval.generators.archetypes import SUITE, _sections
from kerneleval.records import UsageError


def test_names_and_find():
    assert {"baseline", "fragile", "robust"} <= set(generators.names())
    for name in generators.names():
        generator = generators.find(name)
        assert generator.name == name
        assert generator.summary
        assert isinstance(generator, generators.Generator)


def test_unknown_name_suggests_near_ones():
    with pytest.raises(UsageError, match="robust"):
        generators.find("robst")


@pytest.mark.parametrize("name", ["no/such/directory", "missing.py"])
def test_missing_path(name):
    with pytest.raises(UsageError, match="no such directory or file"):
        generators.find(name)


def test_import_needs_no_torch():
    code = "import sys, kerneleval.generators as g; g.find('robust'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_directory_by_path(tmp_path):
    (tmp_path / "gelu.py").write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    generator = generators.find(str(tmp_path))
    assert generator.name == tmp_path.name
    (candidate,) = generator.candidates(tasks.find("gelu"), "cpu")
    assert candidate.language == "torch"
    assert candidate.origin.generator == tmp_path.name


OWN = """
from kerneleval.generators import register
from kerneleval.records import Candidate

@register
class Echo:
    name = "echo"
    summary = "the same for every task"

    def candidates(self, task, device):
        yield Candidate(files=(("a.py", f"# {task.name}"),), language="torch")
"""


def test_own_module(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    generator = generators.find(str(file))
    assert generator.name == "echo"
    assert [c.main for c in generator.candidates(tasks.find("gelu"), "cpu")] == ["# gelu"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "declares 0 generators, and must declare one: put @register"),
        ("from kerneleval.generators import register\nregister(3)", "bad.py:2: this is no generator: it needs name"),
        ("import no_such_module", "no_such_module"),
    ],
)
def test_own_module_that_is_none(tmp_path, text, message):
    file = tmp_path / "bad.py"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        generators.find(str(file))


def test_archetypes_cover_the_suite():
    counts = {}
    for device in ("cpu", "cuda"):
        for name in ("baseline", "fragile", "robust"):
            made = [list(generators.find(name).candidates(tasks.find(task), device)) for task in SUITE]
            counts[name] = sum(len(m) for m in made)
            assert all(len(m) <= 1 for m in made)
        assert counts["robust"] == counts["baseline"] == len(SUITE) >= 10
        assert counts["fragile"] < counts["robust"]
    backward = [t for t in SUITE if not tasks.find(t).no_backward]
    assert len(backward) >= 6


@pytest.mark.parametrize("device", ["metal", "nowhere"])
def test_archetypes_have_nothing_elsewhere(device):
    assert list(generators.find("robust").candidates(tasks.find("gelu"), device)) == []


def test_archetypes_have_nothing_beyond_the_suite():
    assert list(generators.find("robust").candidates(tasks.find("matmul"), "cpu")) == []


def test_candidates_differ_and_stay_the_same():
    hashes = {}
    for name in ("baseline", "fragile", "robust"):
        for task in SUITE:
            for device in ("cpu", "cuda"):
                for candidate in generators.find(name).candidates(tasks.find(task), device):
                    hashes[name, task, device] = candidate.hash
                    (again,) = generators.find(name).candidates(tasks.find(task), device)
                    assert again.hash == candidate.hash
    assert len(set(hashes.values())) == len(hashes)


@pytest.mark.parametrize("file", [f"{n}{s}" for n in ("baseline", "fragile", "robust") for s in (".cpp", ".py")])
def test_every_section_is_used(file):
    sections = _sections(file)
    used = {need for needs, _ in sections.values() for need in needs} | set(SUITE) | {""}
    assert set(sections) <= used
