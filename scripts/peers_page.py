"""Prints ``docs/peers.md``, the map of peers as a page.

python scripts/peers_page.py > docs/peers.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kerneleval.tasks import peers

_ABOUT = {
    "KernelBench-X": "https://github.com/BonnieW05/KernelBenchX: 184 files, of which its list has 176 (the others are "
    "`mul`, `relu`, `sigmoid` and `tanh` in two half types). Groups are its categories.",
    "KernelGenBench": "https://github.com/flagos-ai/KernelGenBench: 110 of PyTorch's ATen operators, 50 of vLLM 0.13, "
    "50 of cuBLAS.",
    "KernelBench": "https://github.com/ScalingIntelligence/KernelBench: levels 1 and 2. Its problem files themselves "
    "can be judged, too: [kernelbench.md](kernelbench.md).",
}


def page() -> str:
    """The page."""
    return "\n".join((*_head(), *(line for system in peers.systems() for line in _section(system)), ""))


def _head() -> Iterator[str]:
    yield from (
        "# The map of peers",
        "",
        "Every name of three other benchmarks, and the [built-in tasks](tasks.md) that cover it. The table is",
        "`src/kerneleval/tasks/peers.csv`; `python scripts/peers_page.py` prints this page.",
        "",
        "A task covers a name if it computes the same function. Notes say where it does not, or not of all that the",
        "peer's operator takes. What holds throughout is not noted. Sizes, dtypes, distributions and layouts are those",
        "that the judge plans. Plain numbers (widths and strides of kernels and pools, factors, bounds) are ours.",
        "Outputs are fresh tensors. A random mask is an argument, so that there is one right answer. Factorisations,",
        "determinants and solvers work on the identity, or a fixed diagonal, plus the matrix that is given.",
        "",
        "`python -m benchmarks.peers_map` runs each peer's own reference beside ours on the same numbers, where their",
        "arguments can be brought together. The newest result is in [results](../results/README.md).",
        "",
        "| peer | names | mapped | tasks |",
        "|---|---:|---:|---:|",
    )
    for system in peers.systems():
        counts = peers.covered(system)
        yield f"| {system} | {counts.names} | {counts.mapped} | {counts.tasks} |"


def _section(system: str) -> Iterator[str]:
    yield from ("", f"## {system}", "", _ABOUT[system], "", f"{peers.covered(system)}.")
    for group in dict.fromkeys(row.group for row in peers.names(system)):
        counts = peers.covered(system, group)
        yield from ("", f"### {group}", "", f"{counts.mapped} of {counts.names} mapped.", "")
        yield from ("| name | tasks | note |", "|---|---|---|")
        for row in peers.names(system, group):
            tasks = " ".join(f"`{task}`" for task in row.tasks) or "none"
            yield f"| `{row.name}` | {tasks} | {row.note} |"


if __name__ == "__main__":
    sys.stdout.write(page())
