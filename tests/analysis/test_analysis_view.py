"""Analyses in a terminal: every figure that matters, at any width, and nothing that names can forge."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.console import Console
from tests.scores.score_builders import rows

from kerneleval import tasks
from kerneleval.analysis import rubric
from kerneleval.analysis.attribution import attribute
from kerneleval.analysis.difficulty import PROXIES, difficulty
from kerneleval.analysis.hardware import hardware
from kerneleval.analysis.sources import by_generators, measure
from kerneleval.records import Candidate, to_plain
from kerneleval.reports import analysis_view as view

for package in ("radon", "lizard"):
    pytest.importorskip(package, reason=f"{package} is not installed (pip install 'kerneleval[analysis]')")

HOSTILE = "g\x1b[2J\u202e[bold]x\n"
NAMES = ("gelu", "exp", "sum", "layer_norm", "softmax", "matmul", "linear")
SOURCE = Candidate(files=(("candidate.py", "import triton\n@triton.jit\ndef k(x):\n    pass\n"),), language="triton")


def results(second="cuda"):
    """Two generators, the one with a hostile name right where the index is even, on two machines."""
    found = []
    for device, speed in (("cpu", 1.0), (second, 2.5)):
        for i, name in enumerate(NAMES):
            for generator in ("plain", HOSTILE):
                right = generator == "plain" or i % 2 == 0
                of = rows(name, [speed + i if right else "wrong_output"], generator=generator, device=device,
                          category=tasks.find(name).category)  # fmt: skip
                found += [dataclasses.replace(r, candidate=SOURCE.hash) for r in of]
    return found


def shown(render, record, *more, width=110):
    """What a view prints of a record that went through JSON."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    render(json.loads(json.dumps(to_plain(record), allow_nan=False)), console, *more)
    text = console.file.getvalue()
    assert "\x1b[2J" not in text and "\u202e" not in text
    assert all(len(line) <= width for line in text.splitlines())
    return text


LIBRARY = {name: tasks.find(name) for name in NAMES}
MEASURED = {SOURCE.hash: measure(SOURCE)}

VIEWS = {
    "attribution": lambda of: (view.render_attribution, attribute(of)),
    "difficulty": lambda of: (view.render_difficulty, difficulty(of, LIBRARY)),
    "hardware": lambda of: (view.render_hardware, hardware(of)),
    "sources": lambda of: (view.render_sources, by_generators(MEASURED, of)),
    "rubric": lambda of: (
        view.render_rubric,
        rubric.profiles(rubric.rate(of, LIBRARY, {SOURCE.hash: SOURCE}, {})),
    ),
}


@pytest.mark.parametrize("width", [200, 100, 60, 40])
@pytest.mark.parametrize("name", VIEWS)
def test_any_width_without_control_characters(name, width):
    assert shown(*VIEWS[name](results()), width=width).strip()


@pytest.mark.parametrize("name", VIEWS)
def test_no_results(name):
    shown(*VIEWS[name]([]))


def test_attribution_shows_models_levels_and_reasons():
    found = attribute(results())
    text = shown(*VIEWS["attribution"](results()))
    assert f"{found.method.pseudo_r2:.2f}" in text and f"{found.category.pseudo_r2:.2f}" in text
    assert "separated: plain all right" in text and "reference" in text and "79 % of 14 pairs" in text
    assert "[bold]x" in text  # as text, not as markup


def test_difficulty_shows_correlations_and_the_hardest_task():
    found = difficulty(results(), LIBRARY)
    text = shown(*VIEWS["difficulty"](results()))
    complexity = next(one for one in found.correlations if one.proxy == "complexity")
    assert f"{complexity.rho.value:.2f} [" in text and PROXIES["complexity"] in text
    assert text.index(found.tasks[0].task) < text.index(found.tasks[-1].task)


def test_hardware_shows_both_machines_or_why_not():
    text = shown(*VIEWS["hardware"](results()))
    assert "cpu" in text and "cuda" in text and "2.50x" in text and "Kendall's τ-b = 1.00" in text
    alone = [r for r in results() if r.device == "cpu"]
    assert "not evaluated: one machine says nothing of others" in shown(*VIEWS["hardware"](alone))


def test_rubric_shows_levels_and_why_there_is_none():
    text = shown(*VIEWS["rubric"](results()))
    assert "K kernel complexity" in text and "high-level DSL" in text
    assert "7 attempts: not recorded whether a human changed it (A)" in text and "3 attempts: not right (P)" in text


def test_sources_show_medians():
    text = shown(*VIEWS["sources"](results()))
    assert "maintainability index (0 to 100)" in text and "1.00 [1.00, 1.00]" in text
