"""Portability over two real devices of one machine: the CPU by C++, and OpenCL's by PoCL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.languages.common import opencl_runtime
from kerneleval.pipeline import run, score
from kerneleval.records import Limits
from kerneleval.store import open_store

if reason := opencl_runtime.unusable():
    pytest.skip(f"not run: {reason}", allow_module_level=True)

pytestmark = pytest.mark.slow

WRONG = """// kerneleval-launch: amax_float32 global=M local=1
kernel void amax_float32(global const float *x, global float *out, long M, long N) {
    const long row = get_global_id(0);
    float most = x[row * N];
    for (long i = 1; i < N - 1; i++) most = x[row * N + i] > most || isnan(x[row * N + i]) ? x[row * N + i] : most;
    out[row] = most;
}
"""


def test_both_devices_count(
    tmp_path: Path, judge: Judge, new_cache: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OpenCL kernel that leaves the last column out is portable nowhere; a right one is judged by its speed."""
    fast = Limits(bandwidth_bytes_per_s=1e13, flop_per_s=(("float32", 1e15),))
    monkeypatch.setattr(
        "kerneleval.judge.machine.peaks.measure_limits", lambda *_, **__: fast
    )  # half a minute for each device
    store = str(tmp_path / "two.db")
    (tmp_path / "robust").mkdir()
    (tmp_path / "robust" / "amax.cl").write_text(WRONG)

    def judged(maker: str, by: Judge, name: str) -> str:
        return run(
            [maker],
            ["amax"],
            judge=by,
            name=name,
            tier="quick",
            directions=["forward"],
            categories=["small"],
            store_url=store,
        )

    on_cpu = judged("robust", judge, "cpu")
    with Judge("opencl", new_cache()) as opencl:
        right = judged("robust", opencl, "right")
        wrong = judged(str(tmp_path / "robust"), opencl, "wrong")
    with open_store(store, create=False, write=False) as opened:
        results = list(opened.results([on_cpu, right]))
    assert {result.device for result in results} == {"cpu", "opencl"}
    assert len({result.machine for result in results}) == 2
    found = score(store, [on_cpu, right])["scores"]["robust"]
    assert found["p_hw"]["n"] == 2
    assert found["device_speedup"]["opencl"]["value"] > 0
    found = score(store, [on_cpu, wrong])["scores"]["robust"]
    assert found["p_hw"]["n"] == 2
    assert found["p_hw"]["value"] <= 0.5
    assert found["device_speedup"]["opencl"]["value"] == 0
