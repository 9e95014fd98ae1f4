"""The whole program as a user runs it: a process, a file, an exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kerneleval import cli

from .commands import kerneleval

GELU_CPP = """
#include <cmath>
#include <cstdint>
extern "C" int gelu(const float* x, float* out, int64_t M, int64_t N, void*) {
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    return 0;
}
"""
LIBRARY = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"
WRONG = "import torch\n\n\ndef gelu(x):\n    return torch.relu(x)\n"
PATCHES = """import torch


def patchify(x, patch):
    B, C, H, W = x.shape
    cut = x.reshape(B, C, H // patch, patch, W // patch, patch)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(B, (H // patch) * (W // patch), C * patch * patch)
"""
DEAF = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x - x


def get_inputs():
    return [torch.rand(32, 32)]


def get_init_inputs():
    return []
"""
SLOW = "import time, torch\n\n\ndef gelu(x):\n    time.sleep(60)\n    return torch.nn.functional.gelu(x)\n"

FEW = ("--task", "gelu", "--device", "cpu", "--dtype", "fp32", "--direction", "forward", "--category", "tiny,small")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_cache: Callable[[], Path]) -> Iterator[Path]:
    """A working directory with candidates."""
    for name, text in (("g.cpp", GELU_CPP), ("library.py", LIBRARY), ("wrong.py", WRONG), ("slow.py", SLOW)):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KERNELEVAL_CACHE_DIR", str(new_cache()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go; they must be gone afterwards. Not under pytest's own, which is closed to workers."""
    with tempfile.TemporaryDirectory(prefix="kerneleval-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("TMPDIR", name)
        yield folder
        assert list(folder.iterdir()) == [], "temporary files were left behind"


def as_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kerneleval", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.usefixtures("place")
def test_a_right_kernel_of_its_own_passes() -> None:
    done = as_a_process("check", "g.cpp", *FEW, "--no-timing", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["verdict"], verdict["reason"], verdict["track"]) == ("passed", "ok", "custom")
    assert all(cell["outcome"]["passed"] for cell in verdict["cells"])


@pytest.mark.usefixtures("place")
def test_a_wrong_kernel_fails_and_its_replay_line_fails_alike() -> None:
    done = kerneleval("check", "wrong.py", *FEW, "--json")
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["verdict"], verdict["stage"], verdict["reason"]) == ("failed", "correctness", "wrong_output")
    words = shlex.split(verdict["replay"])
    assert words[0] == "kerneleval"
    again = kerneleval(*words[1:], "--json")
    assert again.returncode == 1, again.stderr
    (cell,) = json.loads(again.stdout)["cells"]
    assert cell["outcome"]["reason"] == "wrong_output"


@pytest.mark.usefixtures("place")
def test_the_library_itself_is_no_kernel_unless_allowed() -> None:
    refused = kerneleval("check", "library.py", *FEW, "--no-timing", "--json")
    assert refused.returncode == 1
    verdict = json.loads(refused.stdout)
    assert (verdict["stage"], verdict["reason"], verdict["track"]) == ("honesty", "track_not_allowed", "library")
    assert kerneleval("check", "library.py", *FEW, "--no-timing", "--allow", "library").returncode == 0


@pytest.mark.slow
def test_a_kernel_at_the_shapes_of_models(place: Path) -> None:
    (place / "patches.py").write_text(PATCHES)
    (place / "wrong_patches.py").write_text(PATCHES.replace("3, 5)", "5, 3)"))
    few = "--task patchify --device cpu --shapes real --dtype fp32 --direction forward --allow library --no-timing"
    done = kerneleval("check", "patches.py", *few.split(), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads(done.stdout)
    assert {cell["case"]["shape_category"] for cell in verdict["cells"]} == {"real:vit_b16.patches"}
    assert verdict["protocol"]["shapes"] == "real"
    wrong = kerneleval("check", "wrong_patches.py", *few.split())
    assert wrong.returncode == 1, wrong.stderr
    assert "real:vit_b16.patches" in wrong.stdout
    assert "--shapes real" in wrong.stdout


def test_a_run_at_the_shapes_of_models_says_what_it_leaves_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host that takes less: the largest that hosts take are slow."""
    monkeypatch.setattr("kerneleval.judge.judge._REAL_BYTES", 1)
    (place / "mine").mkdir()
    (place / "mine" / "abs.py").write_text("def abs(x):\n    return x + 1\n")
    words = "run -g mine/ --task abs --device cpu --shapes real --distribution zeros --direction forward"
    done = kerneleval(*words.split(), "--quick", "--store", "s.db")
    assert done.returncode == 0, done.stderr
    assert "note: abs: bert_large.hidden (M=4096,N=1024) is left out forward in float32" in done.stderr
    refused = kerneleval("run", "--task", "cholesky", "--device", "cpu", "--shapes", "real", "--store", "t.db")
    assert refused.returncode == 2
    assert "task cholesky has no shapes of real models" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "check library.py --task gelu --shapes real --category tiny",
            "shape categories (tiny) are for sampled shapes",
        ),
        ("check nothing.py --task gelu", "nothing.py"),
        ("check library.py --task geluu", "did you mean gelu"),
        ("check library.py --task nothing.py", "nothing.py"),
        ("check library.py --task library.py", "defines no task"),
        ("check library.py --task gelu --dtype int8", "int8"),
        ("check library.py --task gelu --device cpu --case gelu/forward/M=1", "gelu/forward/M=1"),
        (
            "check library.py --task gelu --device cpu --case gelu/forward/M=8,N=-1/float32/contiguous/standard",
            "N must be an integer from 1 to 8192 or 0, not '-1'",
        ),
        ("check library.py --task gelu --language fortran", "fortran"),
        ("run --generator nobody", "nobody"),
        ("run --task gelu --store none/s.db", "none"),
        ("score --store library.py", "library.py"),
        ("score --store none.db", "none.db"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: str, said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in place.iterdir())
    code = cli.main(arguments.split())
    out, err = capsys.readouterr()
    assert code == 2, out + err
    assert err.startswith("error: "), err
    assert err.count("\n") == 1, err
    assert said in err
    assert out == ""
    assert sorted(path.name for path in place.iterdir() if path.name != "cache") == before


@pytest.mark.usefixtures("place")
def test_a_process_with_bad_input_ends_with_2_and_one_line() -> None:
    done = as_a_process("check", "library.py", "--task", "geluu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_the_selftest_passes_tasks_and_finds_a_bad_one(place: Path) -> None:
    good = kerneleval(
        "selftest", "argmax", "sum", "--device", "cpu", "--dtype", "fp32", "--direction", "forward", "--json"
    )
    assert good.returncode == 0, good.stdout + good.stderr
    told = json.loads(good.stdout)
    assert [(one["task"], one["passed"], one["findings"]) for one in told] == [("argmax", True, []), ("sum", True, [])]
    assert all(one["cases"] > 10 for one in told)
    (place / "deaf.py").write_text(DEAF)
    bad = kerneleval("selftest", "deaf.py", "--device", "cpu")
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert "may be replaced by zeros" in bad.stdout
    assert "1 of 1 tasks failed" in bad.stdout


@pytest.mark.usefixtures("place")
def test_a_device_that_is_not_there_is_named() -> None:
    from kerneleval import devices

    absent = [name for name in devices.names() if devices.find(name).available()]
    if not absent:
        pytest.skip("every known device is here")
    done = kerneleval("check", "library.py", "--task", "gelu", "--device", absent[0])
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: device {absent[0]!r} cannot be used here")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_whole_group_ends_all_in_order(sent: signal.Signals, code: int, temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kerneleval", "check", "slow.py", *FEW, "--no-timing"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),  # a background job's shell has it ignored
    )
    deadline = time.monotonic() + 60
    while not list(temporary.glob("kerneleval-*/*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(temporary.glob("kerneleval-*/*")), "no worker started"
    time.sleep(1.0)
    os.killpg(process.pid, sent)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert out == ""
    assert err == "interrupted\n"
    assert not _session_members(process.pid), "processes were left behind"


def _session_members(session: int) -> list[int]:
    """Processes that are still in that session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            if int(fields[3]) == session:
                found.append(int(entry.name))
    return found


def test_a_runs_failures_are_replayed_from_their_files(place: Path) -> None:
    from kerneleval.store import open_store

    (place / "bad").mkdir()
    (place / "bad" / "gelu.py").write_text(WRONG)
    few = ("--device", "cpu", "--direction", "forward", "--quick", "--json")
    done = kerneleval("run", "--generator", "bad", "--task", "gelu", *few, "--store", "s.db")
    assert done.returncode == 0, done.stderr
    outcomes = [result.outcome for result in open_store("s.db", create=False).results("latest")]
    (line, *_) = [outcome.replay for outcome in outcomes if not hasattr(outcome, "timing")]
    words = shlex.split(line)
    assert words[:5] == ["kerneleval", "check", "bad/gelu.py", "--task", "gelu"]
    assert kerneleval(*words[1:]).returncode == 1


def test_a_run_is_stored_and_scored_and_not_judged_again(place: Path) -> None:
    made = place / "mine"
    made.mkdir()
    (made / "gelu.cpp").write_text(GELU_CPP)
    command = ("run", "--generator", "mine", "--task", "gelu", "--device", "cpu", "--direction", "forward", "--quick")
    first = kerneleval(*command, "--store", "s.db", "--json")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert document["scores"]["mine"]["fast_p"]["0"]["value"] == 1  # right; a plain loop may well be slower
    again = kerneleval("score", "--store", "s.db", "--json")
    assert json.loads(again.stdout) == document
    second = kerneleval(*command, "--store", "s.db", "--json")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["scores"] == document["scores"], "known cells were judged, and timed, again"
