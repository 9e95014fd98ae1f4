"""What imports what, and how long it takes: the package without torch, the core without anything of the shell."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kerneleval

SOURCE = Path(kerneleval.__file__).parent
CORE = ("records", "languages", "devices", "sandbox", "worker", "judge", "tasks")
CORE_MAY_IMPORT = {"numpy", "scipy", "torch", "triton"}
SHELL = ("typer", "rich", "click", "pydantic", "pydantic_settings", "sqlalchemy", "psycopg")
PROBLEM_FILES_BRING = "transformers"
CANDIDATES_BRING = {"numba", "llvmlite", "pyopencl"}
"""What the language of that name imports, once a candidate in it is there."""


def python(code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ["torch", "triton", "numpy", "scipy", "rich", "typer", "sqlalchemy", "pydantic", "numba", "pyopencl"]
    done = python(f"import sys, kerneleval; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_records_need_the_standard_library_only() -> None:
    # -S: no site-packages at all, and so none of what is installed there.
    done = python("import kerneleval; print(kerneleval.Case.__name__)", "-S", PYTHONPATH=str(SOURCE.parent))
    assert done.stdout.strip() == "Case", done.stderr


@pytest.mark.slow
def test_the_first_gradient_of_a_worker_imports_nothing() -> None:
    """PyTorch brings in SymPy there: half a second in every worker that nobody had prepared."""
    done = python(
        "import sys, torch; from kerneleval.worker import zygote; zygote._preload_gradients();"
        "known = set(sys.modules); x = torch.ones(3, requires_grad=True);"
        "torch.autograd.grad(torch.nn.functional.gelu(x), (x,), torch.ones(3)); print(set(sys.modules) - known)"
    )
    assert done.stdout.strip() == "set()", done.stderr


HEAVY = {"numpy", "rich", "scipy", "sqlalchemy", "torch", "triton", "typer"}


def brought_in(code: str) -> list[str]:
    """Modules that the code imports, beyond those of a bare interpreter."""
    told = python(
        f"import sys; bare = set(sys.modules); {code}; print(*sorted(set(sys.modules) - bare), file=sys.stderr)"
    )
    return told.stderr.split()


def test_importing_the_package_brings_in_little() -> None:
    """How long it takes is measured by benchmarks/start_times.py."""
    modules = brought_in("import kerneleval; kerneleval.Case")
    assert not HEAVY & {name.partition(".")[0] for name in modules}
    assert len(modules) < 120, f"{len(modules)}: {modules}"


def test_help_brings_in_no_pytorch() -> None:
    modules = brought_in("from kerneleval import cli; cli.main(['--help'])")
    assert not {"numpy", "scipy", "sqlalchemy", "torch", "triton"} & {name.partition(".")[0] for name in modules}


@pytest.mark.slow
def test_a_verdict_needs_no_statistics_of_scipy() -> None:
    """They take a second to import: the tasks that draw, and the tiers above the quick one, alone have use for them."""
    plan = "shapes.plan(tasks.find('gelu'), kerneleval.Protocol(), shapes.Budget(memory_bytes=10**6, flops=10**8))"
    modules = brought_in(
        f"import kerneleval.judge.judge; from kerneleval import tasks; from kerneleval.tasks import shapes; {plan}"
    )
    assert "scipy.stats" not in modules


def imported(path: Path) -> set[tuple[str, bool]]:
    """(top-level package, whether inside a function) of every import in a file; type-checking blocks left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    inside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {(alias.name.partition(".")[0], id(node) in inside) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add((node.module.partition(".")[0], id(node) in inside))
    return found


def core_files() -> list[Path]:
    files = []
    for stage in CORE:
        files += sorted(path for path in (SOURCE / stage).rglob("*.py") if path.parent.name != "known")  # candidates
    return files


@pytest.mark.parametrize("path", core_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_imports_nothing_but_the_standard_library_numpy_scipy_torch_and_triton(path: Path) -> None:
    allowed = CORE_MAY_IMPORT | {"kerneleval"} | set(sys.stdlib_module_names)
    for package, lazily in imported(path):
        if package in CANDIDATES_BRING and "languages" in path.parts and lazily:
            continue
        if package == PROBLEM_FILES_BRING and path.name == "model_configs.py" and lazily:
            continue
        assert package in allowed, f"{path.relative_to(SOURCE)} imports {package}"


def test_the_core_works_where_nothing_else_is_installed() -> None:
    code = f"""
import importlib, importlib.abc, pkgutil, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SHELL}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import kerneleval
for stage in {CORE}:
    module = importlib.import_module("kerneleval." + stage)
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        if info.name != "kerneleval.worker.zygote":
            importlib.import_module(info.name)
print(kerneleval.check.__name__, len(importlib.import_module("kerneleval.tasks").all_tasks()))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    name, tasks = done.stdout.split()
    assert name == "check"
    assert int(tasks) >= 28


def test_the_command_says_what_to_install_where_typer_is_missing() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['kerneleval', 'tasks'];"
        "from kerneleval.__main__ import main; sys.exit(main())"
    )
    done = python(code)
    assert done.returncode == 2
    assert done.stderr.strip() == "error: the command line needs typer; install it: pip install typer"
