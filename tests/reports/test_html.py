"""The HTML report: one file, nothing silent, nothing that a candidate could do to its reader."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
import sys
from html.parser import HTMLParser

import pytest
from tests.reports import report_builders as build

from kerneleval.records import Failed, Passed, Result, UsageError, Verdict
from kerneleval.reports import html
from kerneleval.reports.html import gather, page, sections
from kerneleval.reports.html.document import SECTIONS
from kerneleval.reports.html.plots import ticks
from kerneleval.scores import score_all
from kerneleval.scores.fast_p import fast_p
from kerneleval.store import NewRun, RunInfo, open_store
from kerneleval.store.plan import Planned

VOID = {"meta", "input", "br", "wbr", "circle", "line", "rect"}


class Page(HTMLParser):
    """What a browser would see: tags with attributes, text by element, scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        of = {name: value or "" for name, value in attrs}
        self.tags.append((tag, of))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((of, ""))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        if tag in self.open:
            while self.open and self.open.pop() != tag:
                pass

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())

    @property
    def data(self):
        return json.loads(next(text for of, text in self.scripts if of.get("id") == "data"))


@pytest.fixture(scope="module")
def full():
    return build.full()


@pytest.fixture(scope="module")
def full_page(full):
    return Page(html.render(full))


@pytest.fixture(scope="module")
def hostile_text():
    return html.render(build.hostile())


# --------------------------------------------------------------------------------------------------------------------
# One file
# --------------------------------------------------------------------------------------------------------------------


def test_nothing_is_asked_of_a_network(full) -> None:
    text = html.render(full)
    seen = Page(text)
    assert not {"link", "iframe", "object", "embed", "img", "base", "form"} & {tag for tag, _ in seen.tags}
    for tag, of in seen.tags:
        assert "src" not in of and "srcset" not in of and "action" not in of, (tag, of)
        assert of.get("href", "#").startswith("#"), (tag, of)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style and "url(" not in style[1] and "@import" not in style[1]
    own = text.replace(page._plotly(), "")
    assert "://" not in own


def test_only_our_scripts_may_run(full_page) -> None:
    policy = next(of["content"] for tag, of in full_page.tags if of.get("http-equiv") == "Content-Security-Policy")
    running = [text for of, text in full_page.scripts if of.get("type") != "application/json"]
    wanted = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in running]
    assert len(running) == 2
    assert policy.startswith("default-src 'none'; script-src " + " ".join(reversed(wanted)) + ";")
    assert "unsafe" not in policy.split("style-src")[0]
    assert not [name for _, of in full_page.tags for name in of if name.startswith("on")]


def test_every_section_is_there_with_a_link_to_it(full_page) -> None:
    found = [of["id"] for tag, of in full_page.tags if tag == "section"]
    assert found == list(SECTIONS)
    ids = [of["id"] for _, of in full_page.tags if "id" in of]
    assert len(ids) == len(set(ids)), "an identifier stands twice"
    for tag, of in full_page.tags:
        for name in ("href", "aria-labelledby", "aria-controls", "popovertarget", "data-search", "data-toggle"):
            if name in of and of[name] != "#":
                assert of[name].removeprefix("#") in ids, (tag, name, of[name])


def test_tables_have_their_cells(full_page) -> None:
    words = full_page.words
    for text in ("careful", "fragile", "hasty", "pass@1", "Example CUDA 9000", "no AMD GPU here", "decoy_kernel"):
        assert text in words
    assert "kerneleval check kernel.py --task layer_norm --device cuda" in words
    assert "the first of each task, at most 4 of a generator and 12 in all" in words
    for title in ("Speed, forward", "Speed, together", "Shape CV, backward"):
        assert title in words


# --------------------------------------------------------------------------------------------------------------------
# Nothing is left out in silence
# --------------------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_told() -> None:
    made = build.Made(tasks=("gelu",), generators=("hasty",), devices=(build.CPU,), samples=1)
    made.results = [
        dataclasses.replace(r, origin=dataclasses.replace(r.origin, tokens_in=0), group="", judged_s=math.nan)
        for r in made.results
    ]
    document = made.document()
    assert set(document["not_evaluated"]) == {"fast-p", "shapes", "roofline", "cost", "rounds", "rubric"}
    shown = Page(html.render(document))
    for section, why in document["not_evaluated"].items():
        assert f"{SECTIONS[section]} Not evaluated: {why}." in shown.words
    assert "Not evaluated: KernelBench-X's groups" in shown.words


def test_a_run_without_anything() -> None:
    run = dataclasses.replace(build.Made(tasks=("gelu",), samples=1).run, generators=(), planned=0, finished=0)
    document = html.build(run, {}, iter(()), iter(()), {})
    words = Page(html.render(document)).words
    assert "nothing was planned in this run" in words
    assert words.count("Not evaluated") >= 8


def test_attempts_that_are_not_judged_yet_are_counted() -> None:
    made = build.Made(tasks=("gelu",), samples=1)
    made.run = dataclasses.replace(made.run, planned=made.run.finished + 7)
    assert "7 attempts of 13 not judged yet: they count as failed" in Page(html.render(made.document())).words


def test_a_sample_of_the_cells_says_so(monkeypatch) -> None:
    monkeypatch.setattr(sections, "FAILED_CELLS", 30)
    monkeypatch.setattr(sections, "PASSED_CELLS", 50)
    monkeypatch.setattr(sections, "SHAPE_POINTS", 100)
    document = build.full()
    cells = document["cells"]
    assert (cells["failed"][0], cells["passed"][0]) == (30, 50)
    assert cells["failed"][1] + cells["passed"][1] == cells["total"] == 1536
    assert all(len(c.get("codes") or c["values"]) == 80 for c in cells["columns"])
    words = Page(html.render(document)).words
    assert f"Showing 80 of 1,536: 30 of the {cells['failed'][1]} that failed and 50 of the" in words
    shapes = document["shapes"]
    assert shapes["shown"] < shapes["timed"]
    assert f"Showing {shapes['shown']} of {shapes['timed']} timed cells, drawn at random within each operator" in words


def test_the_sample_is_the_same_each_time(monkeypatch) -> None:
    monkeypatch.setattr(sections, "PASSED_CELLS", 50)
    assert build.full()["cells"] == build.full()["cells"]


def test_of_many_operators_thirty_are_drawn_and_all_are_in_the_menu() -> None:
    tasks = tuple(f"task{i:02d}" for i in range(40))
    made = build.Made(tasks=tasks, generators=("careful",), devices=(build.CPU,), samples=1)
    shown = Page(html.render(made.document()))
    assert len([of for tag, of in shown.tags if of.get("class") == "panel"]) == 30
    assert len([tag for tag, of in shown.tags if tag == "option" and of["value"].isdigit()]) == 40
    assert "Showing 30 of 40 operators" in shown.words


def test_findings_beyond_the_list_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(gather, "FINDINGS", 10)
    document = build.full()
    assert len(document["findings"]["listed"]) == 10 < document["findings"]["total"]
    assert f"Showing 10 of {document['findings']['total']} findings" in Page(html.render(document)).words


def test_a_dishonest_verdict_is_a_finding_even_without_one(full) -> None:
    told = [one for one in full["findings"]["listed"] if one["check"] == "decoy_kernel"]
    assert told and all(one["level"] == "fail" and one["layer"] == "ghost" for one in told)


# --------------------------------------------------------------------------------------------------------------------
# Figures
# --------------------------------------------------------------------------------------------------------------------


def test_curves_agree_with_the_score() -> None:
    made = build.Made()
    rows = {name: [r for r in made.results if r.generator == name] for name in build.GENERATORS}
    first = made.results[0].machine
    setting = dataclasses.replace(made.setting, primary=first, thresholds=(0.0, 0.3, 0.55, 1.0, 1.3, 1.45, 1.6, 9.0))
    found = sections.curves(rows, setting)
    assert found["largest"] == max(c["p"][-1] for c in found["curves"].values()) > 1.5
    for name, curve in found["curves"].items():
        assert curve["p"] == sorted(curve["p"]) and curve["value"] == sorted(curve["value"], reverse=True)
        for p, score in fast_p(rows[name], setting).items():
            at = max(i for i, step in enumerate(curve["p"]) if step <= float(p))
            assert curve["value"][at] == pytest.approx(score.value), (name, p)
            assert curve["low"][at] == pytest.approx(score.low)
            assert curve["high"][at] == pytest.approx(score.high)


def test_a_right_task_without_a_time_counts_at_zero_only() -> None:
    made = build.Made(tasks=("gelu", "silu"), generators=("careful",), devices=(build.CPU,), samples=1)
    untimed = [dataclasses.replace(r, outcome=Passed()) if r.task == "silu" else r for r in made.results]
    curve = sections.curves({"careful": untimed}, made.setting)["curves"]["careful"]
    assert curve["value"] == pytest.approx([1.0, 0.5, 0.0])
    assert curve["p"][:2] == [0.0, 1e-9]


def test_long_curves_are_thinned_and_say_so(monkeypatch) -> None:
    monkeypatch.setattr(sections, "CURVE_STEPS", 3)
    document = build.full()
    curve = document["fast_p"]["curves"]["careful"]
    assert curve["drawn"] == 3 < curve["steps"]
    assert curve["value"][0] == 1.0 and curve["value"][-1] == 0.0
    assert f"careful: drawn at 3 of its {curve['steps']} steps" in Page(html.render(document)).words


def test_cells_that_compute_nothing_are_left_out_of_the_roofline_visibly() -> None:
    more = build.extras()
    points = more["roofline"]
    nothing = [{**points[0], "intensity": math.inf}, {**points[0], "intensity": 0.0, "achieved_flop_s": 0.0}]
    made = build.Made(tasks=("gelu",), samples=1)
    words = Page(html.render(made.document(limits=more["limits"], roofline=points[:9] + nothing))).words
    assert "2 cells of 11 left out: they move data and compute nothing" in words
    document = made.document(limits=more["limits"], roofline=nothing)
    assert document["not_evaluated"]["roofline"].startswith("no correct, timed forward cell has a known number")


def test_limits_of_the_run_stand_in() -> None:
    from kerneleval.records import Limits

    made = build.Made(tasks=("gelu",), samples=1)
    known = Limits(bandwidth_bytes_per_s=2e12, flop_per_s=(("float32", 5e13),))
    made.run = dataclasses.replace(made.run, limits={build.CUDA.fingerprint: known})
    document = made.document(roofline=build.extras()["roofline"])
    assert document["limits"] == {build.CUDA.fingerprint: {"bandwidth_byte_s": 2e12, "flop_s": {"float32": 5e13}}}
    words = Page(html.render(document)).words
    assert "2 TB/s; float32 50 TFLOP/s" in words


def test_portability_tells_pass_fail_and_not_evaluated(full) -> None:
    table = {row["device"]: {name: cell["status"] for name, cell in row["by"].items()} for row in full["portability"]}
    assert table == {
        "cuda": {"careful": "pass", "fragile": "fail", "hasty": "fail"},
        "cpu": {"careful": "pass", "fragile": "fail", "hasty": "fail"},
        "rocm": dict.fromkeys(build.GENERATORS, "not evaluated"),
    }
    assert full["portability"][0]["by"]["careful"]["directions"].keys() == {"forward", "backward"}


def test_costs_are_counted_once_a_sample(full) -> None:
    cost = full["cost"]["careful"]
    samples = len(build.TASKS) * 2
    assert cost["samples"] == samples == cost["right"]
    assert cost["tokens_out"] == 2400 * samples
    assert cost["judged_s"] == pytest.approx(1.5 * samples * 2), "on two devices"
    assert cost["models"] == ["m-1"]


def test_conditions_are_the_lowest_and_highest(full) -> None:
    read = full["conditions"]["machines"][build.CUDA.fingerprint]
    assert read["clock_sm_mhz"] == "1,755 to 1,980"
    assert read["temperature_c"] == "41 to 63"
    assert read["throttled"] == "power_cap"


def test_warnings_that_differ_in_figures_are_one() -> None:
    made = build.Made(tasks=("gelu", "matmul"), generators=("careful",), devices=(build.CPU,), samples=1)
    assert [one["verdicts"] for one in made.document()["conditions"]["warnings"]] == [2]


def test_a_failure_without_a_replay_line_gets_its_verdicts() -> None:
    made = build.Made(tasks=("gelu", "softmax"), generators=("hasty",), devices=(build.CPU,), samples=1)
    made.results = [dataclasses.replace(r, outcome=dataclasses.replace(r.outcome, replay="")) for r in made.results]
    shown = [one["replay"] for group in made.document()["failures"] for one in group["examples"]]
    assert shown and all(line.startswith("kerneleval check") for line in shown)


def test_examples_are_of_different_tasks_and_generators(full) -> None:
    for group in full["failures"]:
        places = [(one["generator"], one["task"]) for one in group["examples"]]
        assert len(places) == len(set(places)) <= gather.EXAMPLES
        assert all(places.count(place) <= gather.EXAMPLES_OF_ONE for place in places)
    assert sum(group["cells"] for group in full["failures"]) == full["cells"]["failed"][1]


def test_samples_and_evidence_are_let_go() -> None:
    made = build.Made(tasks=("gelu", "softmax"), samples=1)
    for row in gather.gather(iter(made.results), iter(made.verdicts)).rows:
        if isinstance(row.outcome, Failed):
            assert not row.outcome.evidence and not row.outcome.message
        else:
            assert not row.outcome.evidence
            assert row.outcome.timing is None or not row.outcome.timing.samples.candidate_ns


def test_ticks_are_few_and_hold_one() -> None:
    for low, high in ((0.9, 1.1), (0.5, 2.0), (0.01, 300.0), (1e-6, 1e6)):
        values, texts = ticks(low, high)
        assert 1 <= len(values) <= 8 and len(values) == len(texts)
        assert all(low * 0.99 <= v <= high * 1.01 for v in values)


# --------------------------------------------------------------------------------------------------------------------
# Text of others
# --------------------------------------------------------------------------------------------------------------------


def test_a_candidates_text_does_nothing(hostile_text) -> None:
    hostile_text.encode()
    assert not set(hostile_text) & set("\x00\x1b\x07\u202e\u2028\u2029\ud800")
    shown = Page(hostile_text)
    assert [tag for tag, _ in shown.tags].count("script") == 3
    assert not {"img", "a"} & {tag for tag, of in shown.tags if tag != "a" or not of["href"].startswith("#")}
    assert "<!--" not in hostile_text.replace(page._plotly(), "")
    assert "\\u202eevil" in shown.words and "{{ 7*7 }}" in shown.words, "shown by its codes, and not evaluated"


def test_the_data_of_the_plots_is_escaped(hostile_text) -> None:
    shown = Page(hostile_text)
    raw = next(text for of, text in shown.scripts if of.get("id") == "data")
    assert not set(raw) & set("<>&") and raw.isascii()
    named = [t["name"] for plot in shown.data["plots"].values() for t in plot["data"] if "name" in t]
    assert named and all("<" not in name for name in named), "plotly.js reads tags in names"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("x = 1\n" * 10_000, "the first 400 of 10,000 lines, 2,399 of 60,000 characters"),
        ("y" * 3_000_000, "the first 1 of 1 lines, 40,000 of 3,000,000 characters"),
    ],
)
def test_long_sources_are_shortened_visibly(text: str, note: str) -> None:
    made = build.Made(tasks=("gelu", "softmax"), generators=("hasty",), devices=(build.CPU,), samples=1)
    candidate = build.source("hasty", "softmax", text=text)
    made.sources = dict.fromkeys(made.sources, candidate)
    shown = html.render(made.document())
    assert f"Shortened: {note}." in shown
    assert len(shown) < 6_000_000


def test_all_sources_together_have_a_limit(monkeypatch) -> None:
    from kerneleval.reports.html import document as module

    monkeypatch.setattr(module, "CODE_IN_ALL", 100)
    document = build.full()
    files = [file for of in document["sources"].values() for file in of]
    assert sum(len(file["text"]) for file in files) <= 100
    assert all(file["note"] for file in files[2:])


def test_a_source_that_is_not_at_hand_is_told() -> None:
    made = build.Made(tasks=("gelu", "softmax"), generators=("hasty",), samples=1)
    made.sources = {}
    assert "is not at hand" in html.render(made.document())


def test_evidence_of_any_size_is_shortened() -> None:
    made = build.Made(tasks=("gelu", "softmax"), generators=("hasty",), devices=(build.CPU,), samples=1)
    evidence = {"log": "x" * 1_000_000, "deep": [[["y"] * 1000] * 100]} | {f"k{i}": i for i in range(1000)}
    made.results = [
        dataclasses.replace(r, outcome=dataclasses.replace(r.outcome, evidence=evidence)) for r in made.results
    ]
    shown = html.render(made.document())
    assert "996,000 more characters" in shown and "978 more entries" in shown
    assert len(shown) < 6_000_000


# --------------------------------------------------------------------------------------------------------------------
# Making and writing
# --------------------------------------------------------------------------------------------------------------------


def test_a_document_is_plain_and_strict_json(full) -> None:
    again = json.loads(json.dumps(full, allow_nan=False))
    assert html.render(again) == html.render(full)


def test_unknown_extras_are_refused() -> None:
    made = build.Made(tasks=("gelu",), samples=1)
    with pytest.raises(UsageError, match=r"rooflines.*did you mean roofline"):
        made.document(rooflines=[])


def test_a_stored_run(tmp_path) -> None:
    """What a caller does: scores, results, verdicts and sources of a store."""
    made = build.Made(tasks=("gelu", "softmax"), devices=(build.CPU,), samples=1)
    cells: dict[tuple[str, str], list[Result]] = {}
    for r in made.results:
        cells.setdefault((r.generator, r.task), []).append(r)
    with open_store(tmp_path / "s.db") as store:
        plan = [
            Planned(
                generator=name, task=task, category=of[0].category, group=of[0].group, level=1,
                cases=tuple(r.case for r in of), candidate=made.sources.get(of[0].candidate),
            )
            for (name, task), of in cells.items()
        ]  # fmt: skip
        run = store.begin_run(
            NewRun(
                name="stored",
                generators=tuple(build.GENERATORS),
                machines=(build.CPU,),
                protocol=made.run.protocol,
                plan=tuple(plan),
            )
        )
        for attempt, verdict in made.verdicts:
            store.put_verdict(run, attempt.generator, 0, made.sources.get(attempt.candidate), _with(verdict, cells))
        info: RunInfo = store.run(run)
        scores = score_all(store.results(run))
        sources = {name: store.candidate(name) for name in made.sources}
        document = html.build(info, scores, store.results(run), store.verdicts(run), sources)
    assert document["cells"]["total"] == 6 * 16
    assert document["cells"]["failed"][1] == 2 * 16
    html.write(document, tmp_path / "report.html")
    words = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    assert "6 of 6 attempts, 96 cells" in words


def _with(verdict: Verdict, cells) -> Verdict:
    from kerneleval.records import CellResult

    generator = next(
        name for (name, task), of in cells.items() if of[0].candidate == verdict.candidate and task == verdict.task
    )
    own = tuple(CellResult(case=r.case, outcome=r.outcome) for r in cells[generator, verdict.task])
    return dataclasses.replace(verdict, cells=own)


def test_writing_is_whole_or_not_at_all(tmp_path, full, monkeypatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(UsageError, match="is a folder"):
        html.write(full, tmp_path)
    with pytest.raises(UsageError, match="can't be written: No such file"):
        html.write(full, tmp_path / "nowhere" / "report.html")
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", _full_disk)
        with pytest.raises(UsageError, match="No space left"):
            html.write(full, target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    html.write(full, target)
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert target.stat().st_mode & 0o600 == 0o600


def _full_disk(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("missing", ["jinja2", "plotly"])
def test_what_is_not_installed_is_named(missing: str, full, monkeypatch) -> None:
    for name in [m for m in sys.modules if m.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "jinja2":
        monkeypatch.delitem(sys.modules, "kerneleval.reports.html.page")
        monkeypatch.delattr(html, "page")
    else:
        page._plotly.cache_clear()
    with pytest.raises(UsageError, match=f"needs {missing}; install it with"):
        html.render(full)


def test_many_cells_stay_small() -> None:
    made = build.many(4000)
    text = html.render(made.document())
    assert len(text) - len(page._plotly()) < 2_500_000
    assert "Showing 30 of 42 operators" in text


def test_many_generators_have_marks_of_their_own():
    from kerneleval.reports.html import plots

    marks = [(slot % plots.COLOURS, plots.symbol(slot)) for slot in range(40)]
    assert len(set(marks[:32])) == 32
    assert len({plots.symbol(slot) for slot in range(32)}) == 32
    assert len(set(plots.GLYPHS)) == 16
