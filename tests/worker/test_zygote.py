"""The zygote loads PyTorch while whoever made it does something else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kerneleval.judge.windows.worker_pool import _limits
from kerneleval.worker import host
from kerneleval.worker.host import Zygote


def test_the_first_worker_waits_for_it_and_nobody_before() -> None:
    with Zygote("cpu") as zygote:
        assert (zygote.start_s, zygote.loaded) == (0.0, {}), "it was waited for"
        zygote.fork(_limits(1 << 30)).close()
        assert zygote.start_s > zygote.loaded["total_s"] > 0


def test_one_that_is_not_ready_is_ended_at_once() -> None:
    zygote = Zygote("cpu")
    zygote.close()
    assert zygote._process.returncode == -signal.SIGKILL, "it was asked to end, and loaded PyTorch first"
    assert not zygote.root.exists()


def test_one_begun_ahead_is_taken_once_and_waits_for_the_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with host.ahead("cpu"):
        (begun,) = host._AHEAD
        zygote = host.zygote_of("cpu", "x86_64")
        assert zygote is begun and not host._AHEAD
        with zygote:
            zygote.fork(_limits(1 << 30)).close()


@pytest.mark.parametrize("device", ["cuda", "toaster"])
def test_one_begun_ahead_that_nobody_takes_is_ended(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(ZeroDivisionError), host.ahead(device):
        begun = list(host._AHEAD)
        assert bool(begun) is (device == "cuda")
        with host.zygote_of("cpu", "") as other:
            assert other not in begun
        raise ZeroDivisionError
    assert not host._AHEAD
    assert all(zygote._process.returncode is not None and not zygote.root.exists() for zygote in begun)


def test_a_check_begins_it_before_pytorch_is_loaded(tmp_path: Path) -> None:
    gelu = tmp_path / "gelu.py"
    gelu.write_text("import torch\n\n\ndef gelu(x):\n    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))\n")
    code = f"""
import sys
from kerneleval.worker import host
begin = host.Zygote.__init__
def noted(self, *given):
    print("torch" in sys.modules)
    begin(self, *given)
host.Zygote.__init__ = noted
import kerneleval
verdict = kerneleval.check({str(gelu)!r}, "gelu", device="cpu", allow=["library"], timed=False, categories=["tiny"])
print(verdict.verdict)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["False", "passed"]
