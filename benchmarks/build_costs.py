"""What each language costs to build and call first: the examples of docs/candidates.md, timed in fresh processes.

    TRITON_INTERPRET=1 python benchmarks/build_costs.py [--load-inline] [--repeats 5]

Prints one line a language: the shortest and the median wall time of ``build`` and of ``load`` plus the first forward
call, in seconds, the imports of torch, Triton and Numba not counted. On a machine that does other work too, the
shortest is the one that means something. Languages whose compiler is absent are shown as not run.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("cpp", "cuda", "cuda-device", "hip", "opencl", "torch", "triton", "numba")
LOAD_INLINE = '''
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
torch::Tensor gelu(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float *in = x.data_ptr<float>();
    float *to = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); i++) to[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678f));
    return out;
}
"""
gelu = load_inline("inline_gelu", SOURCE, functions=["gelu"]).gelu
'''


def example(name: str) -> str:
    """The example of that name in docs/candidates.md."""
    if name == "load_inline":
        return LOAD_INLINE
    text = (ROOT / "docs" / "candidates.md").read_text()
    match = re.search(rf"<!-- example: {re.escape(name)} -->\n```[a-z+]+\n(.*?)```", text, re.DOTALL)
    if match is None:
        raise SystemExit(f"docs/candidates.md has no example {name!r}")
    return match.group(1)


def measure(name: str) -> dict[str, float | str]:
    """Seconds of one build and one load with its first call, in this process."""
    import torch

    from kerneleval import devices, languages
    from kerneleval.records import Candidate

    kind = {"cuda-device": "cuda", "load_inline": "torch"}.get(name, name)
    language = languages.find(kind)
    device = language.devices[0] if kind in ("cuda", "hip", "opencl") else "cpu"
    if (language.needs_build or kind == "opencl") and language.missing(device):
        return {"not run": language.missing(device)}
    if kind in ("triton", "numba"):
        __import__(kind)
    candidate = Candidate(files=((f"candidate{language.suffixes[0]}", example(name)),), language=kind)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        language.build(candidate, Path(folder), device, {"cuda": "sm_90", "rocm": "gfx90a"}.get(device, ""))
        built = time.perf_counter()
        if device in ("cuda", "rocm") and devices.find(device).available():
            return {"build": built - start}
        loaded = language.load(candidate, Path(folder), device, names=("gelu",))
        out = languages.OutputSpec(shape=(64, 64), dtype="float32")
        loaded.forward(
            [torch.randn(64, 64, device="cuda" if device in ("cuda", "rocm") else "cpu")], [out], {"M": 64, "N": 64}
        )
        return {"build": built - start, "load and first call": time.perf_counter() - built}


def main() -> None:
    """Time every example in processes of its own and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load-inline", action="store_true", help="time load_inline too (tens of seconds a repeat)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    for name in (*EXAMPLES, *(["load_inline"] if options.load_inline else [])):
        rows = []
        for _ in range(1 if name == "load_inline" else options.repeats):
            command = [sys.executable, __file__, "--one", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr}")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
        if "not run" in rows[0]:
            print(f"{name:12} not run: {rows[0]['not run']}")
            continue
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        shown = (f"{key} {min(s):.3f} s (median {statistics.median(s):.3f})" for key, s in columns.items())
        print(f"{name:12} " + "  ".join(shown) + f"  n={len(rows)}")


if __name__ == "__main__":
    main()
