"""The documents say what the program does: reasons, commands, options, links."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import re
from pathlib import Path

import pytest

import kerneleval
from kerneleval import records

ROOT = Path(__file__).parent.parent
SOURCE = Path(kerneleval.__file__).parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "results/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
JUDGING = [*(SOURCE / "judge").rglob("*.py"), SOURCE / "worker" / "host.py", *(SOURCE / "pipeline").rglob("*.py")]


def reasons() -> set[str]:
    """Every slug that the source gives as the reason of a failure."""
    found = set()
    for path in JUDGING:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "reason" and isinstance(node.value, ast.Constant):
                found.add(str(node.value.value))
            elif isinstance(node, ast.Dict):
                found |= {
                    str(value.value)
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "reason" and isinstance(value, ast.Constant)
                }
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                first = node.args[0]
                if node.func.id in ("WorkerFailure", "BuildFailed", "LoadFailed") and isinstance(first, ast.Constant):
                    found.add(str(first.value))
    return found - {""}


def test_every_reason_of_a_verdict_is_explained() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text()
    explained = set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE))
    assert reasons(), "the source was read"
    assert reasons() - {""} <= explained  # an audit of a candidate that passed gives none


def test_every_stage_and_track_is_explained() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text()
    for word in (*records.STAGES, *records.TRACKS, *(f.name for f in records.Verdict.__dataclass_fields__.values())):
        assert f"`{word}`" in page, word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_that_are_named_exist(page: Path) -> None:
    for target in re.findall(r"docs/[a-z-]+\.md", page.read_text()):
        assert (ROOT / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    roots = (ROOT, SOURCE, SOURCE / "judge", SOURCE / "tasks" / "operators", ROOT / "tests", ROOT / "tests" / "attacks")
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|csv|sh))`", page.read_text()))
    assert not [name for name in sorted(named) if not any((root / name).exists() for root in roots)]


def test_pages_that_the_source_names_exist() -> None:
    missing = {
        f"{path.relative_to(SOURCE)}: {target}"
        for path in SOURCE.rglob("*.py")
        for target in re.findall(r"docs/[a-z-]+\.md", path.read_text())
        if not (ROOT / target).exists()
    }
    assert not missing


def test_the_glossary_is_in_order_and_names_what_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith("| ") and "| meaning |" not in line]
    terms = [re.sub(r"[^a-z0-9 ]", "", term.lower()).strip() for term, _, _ in rows]
    assert terms == sorted(terms)
    places = [place for _, _, cell in rows for place in re.findall(r"`([\w./-]+)`", cell)]
    assert len(places) == len(rows)
    assert not [place for place in places if not any((root / place).exists() for root in (SOURCE, ROOT))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_shown_exist(page: Path) -> None:
    known = options()
    for line in re.findall(r"^\$ (kerneleval .*)$|`(kerneleval [^`]*)`", page.read_text(), re.MULTILINE):
        words = " ".join(line).split()
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in known, f"{page.name}: {' '.join(words)}"


def sentences(text: str) -> tuple[list[str], list[str]]:
    """The sentences of a page: those of paragraphs and list items, and those of table cells."""
    prose, cells = [], []
    block: list[str] = []
    for line in [*re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL).splitlines(), ""]:
        starts = re.match(r"\s*(?:[-*+]|\d+\.)\s", line)
        if (not line.strip() or starts or line.startswith(("#", "|", "    "))) and block:
            prose += _split(" ".join(block))
            block = []
        if line.startswith("|"):
            cells += [sentence for cell in line.strip("|").split("|") for sentence in _split(cell)]
        elif line.strip() and not line.startswith(("#", "    ")):
            block.append(line[starts.end() :] if starts else line.strip())
    return prose, cells


def _split(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])[)*\"]*\s+|:$", text.strip()) if re.search("[A-Za-z]", part)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    prose, cells = sentences(page.read_text())
    words = [len(sentence.split()) for sentence in prose]
    assert sum(words) <= 25 * len(words)
    assert not [sentence for sentence in (*prose, *cells) if len(sentence.split()) > 40]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([a-z-]+\.md)\)", index))


def test_the_newest_results_are_kept_and_named() -> None:
    text = (ROOT / "results" / "README.md").read_text()
    newest: dict[str, set[str]] = {}
    for path in (ROOT / "results").iterdir():
        if path.name == "README.md":
            continue
        name = re.fullmatch(r"([a-z_]+)-(.+)-(\d{4}-\d\d-\d\d)\.(json|txt|md)", path.name)
        assert name, f"{path.name}: not BENCHMARK-MACHINE-DATE"
        assert re.search(rf"^\| `{name[1]}` \| .* \| {name[3]} \|", text, re.MULTILINE), path.name
        newest.setdefault(f"{name[1]}-{name[2]}", set()).add(name[3])
    assert newest
    assert not {measured: dates for measured, dates in newest.items() if len(dates) > 1}


def test_the_reading_list_is_short_and_names_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Reading list")[2]
    files = re.findall(r"^\d+\. `([\w/]+\.py)`: .+", text, re.MULTILINE)
    assert 10 <= len(files) <= 20
    assert len(files) == len(re.findall(r"^\d+\. ", text, re.MULTILINE))
    assert not [file for file in files if not (SOURCE / file).is_file()]


@functools.cache
def options() -> frozenset[str]:
    """Every option of every command."""
    from kerneleval import cli

    known = {"--help", "--install-completion", "--show-completion", "--version"}
    for one in cli.app.registered_commands:
        assert one.callback is not None
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            cli.main([one.name or one.callback.__name__, "--help"])
        known |= set(re.findall(r"--[a-z0-9-]+", text.getvalue()))
    return frozenset(known)
